"""Loads the plugin for `pytest` in this repository; elsewhere its entry point does."""

from pathlib import Path

import pytest

pytest_plugins = ["harness.plugin"]
ROOT = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m long` and `-m smoke` measure: nothing of the project's own tests is imported for them."""
    measures = config.getoption("markexpr").strip() in ("long", "smoke")
    own = collection_path.is_dir() and collection_path.parent in (ROOT / "tests", ROOT / "training")
    return True if measures and own else None
