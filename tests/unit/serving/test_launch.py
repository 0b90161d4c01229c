"""A server that died: how, with which last lines, and what to do."""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.serving.launch import LaunchSpec, RunningServer


@pytest.mark.parametrize(("free_bytes", "named"), [(0, True), (1 << 30, False)])
def test_a_death_on_a_full_disk_names_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, named: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free_bytes))
    command = (sys.executable, "-c", "raise SystemExit(1)")
    running = RunningServer(LaunchSpec(command, 1, tmp_path / "log"))
    assert running.dies_at_once()
    said = str(running.death("loading its model"))
    running.stop()
    assert "died while loading its model (exit code 1)" in said
    assert ("the disk of its log is full: make room there" in said) is named
