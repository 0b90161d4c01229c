"""The project's own tests hold a lock of their own, so that a measurement elsewhere stops none."""

import os
import tempfile
from pathlib import Path

import pytest

LOCK_VARIABLE = "HARNESS_LOCK_FILE"


def pytest_configure(config: pytest.Config) -> None:
    """A lock and a folder of notes for this session, unless it measures (`-m long`)."""
    if "not long" in config.option.markexpr and LOCK_VARIABLE not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="longctx-tests-", ignore_cleanup_errors=True)
        os.environ[LOCK_VARIABLE] = str(Path(folder.name, "machine.lock"))
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop(LOCK_VARIABLE, None))
