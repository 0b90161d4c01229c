"""Loads the plugin for `pytest` in this repository; elsewhere its entry point does."""

from pathlib import Path

import pytest

pytest_plugins = ["harness.plugin"]
OWN = Path(__file__).parent / "tests"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m long` and `-m smoke` measure: nothing of the project's own tests is imported for them."""
    measures = config.getoption("markexpr").strip() in ("long", "smoke")
    return True if measures and collection_path.parent == OWN and collection_path.is_dir() else None
