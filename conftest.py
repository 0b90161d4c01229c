"""Loads the plugin for `pytest` in this repository; elsewhere its entry point does."""

from pathlib import Path

import pytest

pytest_plugins = ["harness.plugin"]
ROOT = Path(__file__).parent
WORKERS = 3
"""One more than the cores of a small machine: a real server is often waited for."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A plain `pytest`, the project's whole suite, runs in three processes; all else in one.

    `-n 0` says otherwise; so do a path, `-m` and `-k`.
    """
    whole = (
        not hasattr(config, "workerinput")  # a worker is asked, too
        and config.args_source is config.ArgsSource.TESTPATHS
        and config.option.markexpr == "not long and not slow"
        and not config.option.keyword
        and not config.option.usepdb
    )
    if whole and config.pluginmanager.hasplugin("xdist") and config.option.numprocesses is None:
        config.option.numprocesses = WORKERS
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False  # real servers first, the many short ones fill up


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m long` and `-m smoke` measure: nothing of the project's own tests is imported for them."""
    measures = config.getoption("markexpr").strip() in ("long", "smoke")
    own = collection_path.is_dir() and collection_path.parent in (ROOT / "tests", ROOT / "training")
    return True if measures and own else None
