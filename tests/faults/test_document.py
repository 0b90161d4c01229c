"""The page on faults is what the table says now."""

from tests.faults.document import COMMAND, PAGE, page
from tests.faults.table import FAULTS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"stale; run: {COMMAND}"


def test_names_are_unique_and_reasons_are_checked() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 50
    unexplained = [f.name for f in FAULTS if f.outcome != "PASS" and not f.phrase]
    assert unexplained == []
