"""docs/design/cases.md names tests and rows that exist, and every case once."""

import re
from pathlib import Path

from tests.faults.launched import LAUNCHED
from tests.faults.table import FAULTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/design/cases.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d\d ", line)]


def test_every_case_is_there_once() -> None:
    assert [int(case[2:4]) for case, *_ in ROWS] == list(range(51, 89))
    assert {len(row) for row in ROWS} == {5}


def test_every_test_that_is_named_exists() -> None:
    missing = []
    for _, _, _, tests, _ in ROWS:
        path = None
        for word in re.findall(r"`([^`]+)`", tests):
            if "/" in word:
                path = ROOT / (word if word.endswith(".py") else f"tests/unit/{word}.py")
            elif word.startswith("test_"):
                assert path is not None
                if f"def {word}(" not in path.read_text(encoding="utf-8"):
                    missing.append(f"{path.name}: {word}")
    assert missing == []


def test_every_row_that_is_named_exists() -> None:
    known = {fault.name for fault in (*FAULTS, *LAUNCHED)}
    named = {
        word
        for *_, tests, _ in ROWS
        for listed in re.findall(r"\brows? ((?:`[a-z0-9-]+`(?:, )?)+)", tests)
        for word in re.findall(r"`([^`]+)`", listed)
    }
    assert named
    assert named <= known


def test_every_place_that_is_named_exists() -> None:
    missing = []
    for _, _, places, _, _ in ROWS:
        for word in re.findall(r"`([^`]+)`", places):
            module, _, name = word.partition(".")
            if "/" not in module:
                continue
            top = ROOT if module.startswith("bench/") else ROOT / "harness"
            path = top / f"{module}.py"
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                if name and not re.search(rf"(?:def|class) {name.rpartition('.')[2]}\b", text):
                    missing.append(word)
            elif not (top / module).is_dir():
                missing.append(word)
    assert missing == []
