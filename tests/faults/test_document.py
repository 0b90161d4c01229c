"""The page on faults is what the table says now."""

from tests.faults.document import COMMAND, PAGE, page
from tests.faults.guards import GUARDS, UNGUARDED
from tests.faults.launched import LAUNCHED
from tests.faults.table import FAULTS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"stale; run: {COMMAND}"


def test_names_are_unique_and_reasons_are_checked() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 50
    unexplained = [f.name for f in FAULTS if f.outcome != "PASS" and not f.phrase]
    assert unexplained == []


def test_every_row_has_a_guard_that_it_needs() -> None:
    rows = {fault.name for fault in FAULTS} | {fault.name for fault in LAUNCHED}
    guarded = {row for guard in GUARDS for row in guard.rows}
    assert rows == guarded | set(UNGUARDED)


def test_every_guard_is_still_in_the_code() -> None:
    root = PAGE.parents[1]
    gone = [
        guard.what
        for guard in GUARDS
        if (root / guard.path).read_text(encoding="utf-8").count(guard.text) != 1
    ]
    assert gone == []
