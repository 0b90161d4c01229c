"""Short rungs are read again after the climb, so that their samples lie on both sides of it."""

import pytest

from harness.records.lines import Rung
from tests.faults.conftest import Measure, Result
from tests.faults.fake_server import FakeServer
from tests.faults.turn import Turn

CTX = 32768
DEPTHS = (2048, CTX)


def rungs(result: Result) -> tuple[Rung, Rung]:
    assert result.record is not None, result.refused
    short, deep = (result.record.rung(depth) for depth in DEPTHS)
    assert short is not None
    assert deep is not None
    return short, deep


def test_a_short_rung_has_samples_before_and_after_the_deep_one(run: Measure) -> None:
    with FakeServer(n_ctx=CTX) as server:
        result = run(server, ctx_tokens=CTX, depths=DEPTHS, remeasure_s=0.0)
    short, deep = rungs(result)
    (climb,) = deep.prefills
    assert climb.start_s is not None
    read = [p.start_s for p in short.prefills if p.start_s is not None]
    spoken = [g.start_s for g in short.generations if g.start_s is not None]
    for starts in (read, spoken):
        assert min(starts) < climb.start_s < max(starts)
    assert sum(start > climb.start_s for start in spoken) == 3
    assert result.record is not None
    assert result.record.header.plan.cold_repeats == {2048: sum(s > climb.start_s for s in read)}
    assert len(short.asks) == 3
    assert result.record.footer is not None
    assert result.record.footer.prefilled_tokens is not None
    probe = result.record.header.plan.document_tokens[-1] // 8  # the forecast's, on top of the rest
    assert result.record.footer.prefilled_tokens - probe <= 1.1 * CTX


@pytest.mark.parametrize("place", ["rung", "generation"])
def test_a_failure_at_the_second_visit_costs_no_finished_rung(run: Measure, place: str) -> None:
    """Two readings and six generations of the climb go well; what follows is refused."""
    good = {"rung": 2, "generation": 6}[place]

    def change(turn: Turn) -> None:
        if turn.place == place and turn.nth > good:
            turn.stream, turn.status, turn.reply = False, 500, {"error": {"message": "no more"}}

    with FakeServer(change, n_ctx=CTX) as server:
        result = run(server, ctx_tokens=CTX, depths=DEPTHS, remeasure_s=0.0)
    short, deep = rungs(result)
    assert short.failure is None
    assert deep.failure is None
    assert result.record is not None
    assert result.record.footer is not None
    assert result.record.footer.failure is not None
    assert result.verdict is not None
    cell = result.verdict.cell(2048, "retrieval")
    assert cell is not None
    assert cell.outcome == "NO_BASELINE"
    assert "right" in cell.message
