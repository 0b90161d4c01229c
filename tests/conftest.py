"""The project's own tests hold a lock of their own, so that a measurement elsewhere stops none."""

import os
import tempfile
from pathlib import Path

import pytest

LOCK_VARIABLE = "HARNESS_LOCK_FILE"


def pytest_configure(config: pytest.Config) -> None:
    """A lock and a folder of notes for this process, unless it measures (`-m long`).

    A worker of pytest-xdist inherits its session's and takes another of its own.
    """
    worker = hasattr(config, "workerinput")
    if "not long" in config.option.markexpr and (worker or LOCK_VARIABLE not in os.environ):
        folder = tempfile.TemporaryDirectory(prefix="longctx-tests-", ignore_cleanup_errors=True)
        os.environ[LOCK_VARIABLE] = str(Path(folder.name, "machine.lock"))
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop(LOCK_VARIABLE, None))
