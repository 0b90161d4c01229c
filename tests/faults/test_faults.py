"""Every row of the fault table, run for real and judged."""

from collections import Counter

import pytest

from harness.verdicts.cell import CellVerdict
from tests.faults.conftest import API_KEY, Measure, Result
from tests.faults.fake_server import FakeServer
from tests.faults.fault import REFUSED, Fault
from tests.faults.table import FAULTS

PLANNED = {"rung": 1, "warm-up": 16, "ask": 1, "generation": 3, "control": 6}
"""How often one body is sent at most in a run that goes well, by the place of the request."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_gets_its_outcome(fault: Fault, run: Measure) -> None:
    with fault.serve() as server:
        result = run(server, **fault.options)
    assert server.hit or fault.place == "none", "the fault never happened"
    if fault.outcome == REFUSED:
        assert result.refused is not None, result.terminal
        assert fault.phrase in result.refused
        assert "Traceback" not in result.refused
    else:
        check_cell(fault, result)
    check_posts(fault, server, result)
    check_inert(result)


def check_cell(fault: Fault, result: Result) -> None:
    assert result.refused is None
    cell = cell_of(fault, result)
    shown = f"{cell.outcome} {cell.code} {cell.message}"
    assert cell.outcome == fault.outcome, shown
    assert result.record is not None
    footer = result.record.footer
    assert footer is not None
    if fault.outcome == "ERROR":
        assert footer.failure is not None, shown
        assert footer.failure.cause == fault.code, shown
        assert cell.message.startswith(f"{fault.code}: "), shown
        assert result.verdict is not None
        assert result.verdict.exit_code == 3
    else:
        assert fault.code in (None, cell.code), shown
    where = cell.message if fault.outcome != "PASS" else ""
    assert fault.phrase in where + result.terminal + "\n".join(result.said), shown
    if fault.outcome not in ("PASS", "NO_BASELINE"):
        assert fault.phrase in cell.message, shown


def cell_of(fault: Fault, result: Result) -> CellVerdict:
    assert result.verdict is not None
    cell = result.verdict.cell(fault.depth, fault.metric)
    assert cell is not None
    return cell


def check_posts(fault: Fault, server: FakeServer, result: Result) -> None:
    """No measured request was sent again: not as planned ones are repeated, and not on failure."""
    for (place, _), times in Counter(server.turns).items():
        assert times <= PLANNED[place], f"{place} sent {times} times"
    failed = result.refused is not None or fault.outcome == "ERROR"
    if failed and server.turns and fault.place in PLANNED and not isinstance(fault.nth, tuple):
        assert server.seen[fault.place] == (fault.nth or 1), "something was sent after a failure"


def check_inert(result: Result) -> None:
    """Nothing a server sent acts on a terminal or stands raw in a record; no key is anywhere."""
    shown = "\n".join([result.refused or "", result.terminal, *result.said])
    assert all(c.isprintable() or c == "\n" for c in shown), repr(shown)
    assert all(byte >= 0x20 or byte == 0x0A for byte in result.record_bytes)
    assert API_KEY not in shown
    assert API_KEY.encode() not in result.record_bytes
