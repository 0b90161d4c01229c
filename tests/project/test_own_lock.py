"""A plain `pytest` in the clone runs while a measurement holds the machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.lock import LOCK_VARIABLE, lock_path, machine_lock
from tests.children import own_environment

ROOT = Path(__file__).parents[2]


def test_a_plain_pytest_does_not_wait_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOCK_VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert lock_path().is_relative_to(tmp_path)
    with machine_lock("a measurement"):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-k", "smoke_answers", "tests/test_long_context.py"),
            ],
            cwd=ROOT,
            env=own_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout
