"""A prefill that falls off its curve: said within three batches, stopped by the budget."""

from collections.abc import Iterator

import pytest

from harness.measuring import prefill as prefill_progress
from harness.records.metrics import METRICS
from tests.faults.conftest import Measure
from tests.faults.fake_server import FakeServer
from tests.faults.turn import Pause, Step, Turn

BATCHES = 40
FAST_S = 0.02
SLOW_S = 40 * FAST_S
"""A cliff is ten times; the rest is for a busy machine, where a short pause lasts longer."""
CLIFF_AT = 20


@pytest.fixture(autouse=True)
def _looks_at_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_progress, "_WATCH_EVERY_S", FAST_S / 2)


def crawling(batches_until_slow: int) -> FakeServer:
    """Reads the second rung in `BATCHES` batches, those after the first few 40 times slower."""

    def paces(steps: list[Step]) -> Iterator[Step]:
        batch = 0
        for step in steps:
            if isinstance(step, Pause):
                batch += 1
                step = Pause(SLOW_S if batch > batches_until_slow else FAST_S)
            yield step

    def change(turn: Turn) -> None:
        if turn.place != "rung" or turn.nth != 2:
            return
        first, last = turn.progress[0], turn.progress[-1]
        span = last["processed"] - first["processed"]
        turn.progress = [
            {**last, "processed": first["processed"] + span * i // BATCHES, "time_ms": i}
            for i in range(BATCHES + 1)
        ]
        turn.wire.append(lambda steps: list(paces(steps)))

    return FakeServer(change)


def test_a_cliff_is_said_within_three_batches_and_stopped_by_the_budget(run: Measure) -> None:
    with crawling(CLIFF_AT) as server:
        result = run(server, budget_s=6.0, remeasure_s=0.0)
    assert result.refused is None
    assert result.record is not None
    assert result.verdict is not None
    at = [e for e in result.record.events if e.code == "cliff"]
    assert len(at) == 1, result.said
    assert any(line.startswith("cliff: ") for line in result.said)
    failed = result.record.rung(4096)
    assert failed is not None
    assert failed.failure is not None
    assert failed.failure.cause == "OVER_BUDGET"
    assert "times its own curve" in failed.failure.message
    shallower, document = result.record.header.plan.document_tokens
    batch_tokens = (document - shallower) / BATCHES
    expected = shallower + CLIFF_AT * batch_tokens
    assert at[0].data["at_tokens"] == pytest.approx(expected, abs=2 * batch_tokens)
    assert at[0].data["chunks"] == 3
    stopped_at = int(failed.failure.message.split()[2])
    assert at[0].data["at_tokens"] + 2.5 * batch_tokens <= stopped_at < document
    assert [control.position for control in result.record.controls] == ["before", "after"]
    shallow = [result.verdict.cell(2048, metric) for metric in METRICS]
    # Its speeds are those of real pauses on a machine that may be busy: only that they are judged.
    judged = {"PASS", "INCONCLUSIVE", "REGRESSED"}
    assert {cell.outcome for cell in shallow if cell} <= judged, shallow
    retrieval = result.verdict.cell(2048, "retrieval")
    assert retrieval is not None
    assert retrieval.outcome == "PASS"
    deep = result.verdict.cell(4096, "prefill")
    assert deep is not None
    assert deep.outcome == "ERROR"
    assert "--budget" in (deep.next_step or "")


def test_a_cliff_without_a_budget_is_said_and_read_to_the_end(run: Measure) -> None:
    with crawling(BATCHES - 4) as server:
        result = run(server, remeasure_s=0.0)
    assert result.record is not None
    assert [e.code for e in result.record.events].count("cliff") == 1
    rung = result.record.rung(4096)
    assert rung is not None
    assert rung.failure is None


def test_an_even_prefill_within_its_budget_is_left_alone(run: Measure) -> None:
    with crawling(BATCHES) as server:
        result = run(server, budget_s=60.0, remeasure_s=0.0)
    assert result.record is not None
    assert not [e for e in result.record.events if e.code == "cliff"]
    assert result.record.footer is not None
    assert result.record.footer.complete
