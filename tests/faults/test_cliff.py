"""A prefill that falls off its curve: said within three batches, stopped by the budget."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from harness.measuring import prefill as prefill_progress
from harness.records.metrics import METRICS
from tests.faults.conftest import Measure
from tests.faults.fake_server import FakeServer
from tests.faults.turn import Turn

BATCHES = 40
TOKEN_S = 1 / 2500
SLOWER = 25
CLIFF_AT = 20
DEEP = 4096

Crawling = Callable[[int], FakeServer]


@pytest.fixture
def crawling(monkeypatch: pytest.MonkeyPatch) -> Crawling:
    """A server that reads the second rung in `BATCHES` batches, and a clock of its own for them.

    Batches after the first few, so many as are given, are 25 times slower. Their time is what
    the clock says and not what the machine makes of a pause, which may be busy.
    """
    original = prefill_progress.PrefillProgress.__call__
    now_s, reached, batch, fast = 0.0, 0, 0, 0

    def timed(self: prefill_progress.PrefillProgress, done: int, total: int) -> None:
        nonlocal now_s, reached, batch
        batch += self._climbing and self._depth == DEEP
        slower = SLOWER if batch > fast + 1 and self._climbing else 1  # the first begins it
        now_s += max(0, done - reached) * TOKEN_S * slower
        reached = done
        original(self, done, total)

    monkeypatch.setattr(prefill_progress, "time", SimpleNamespace(perf_counter=lambda: now_s))
    monkeypatch.setattr(prefill_progress, "_WATCH_EVERY_S", TOKEN_S)
    monkeypatch.setattr(prefill_progress.PrefillProgress, "__call__", timed)

    def change(turn: Turn) -> None:
        if turn.place != "rung" or turn.nth != 2:
            return
        first, last = turn.progress[0], turn.progress[-1]
        span = last["processed"] - first["processed"]
        turn.progress = [
            {**last, "processed": first["processed"] + span * i // BATCHES, "time_ms": i}
            for i in range(BATCHES + 1)
        ]

    def server(batches_until_slow: int) -> FakeServer:
        nonlocal fast
        fast = batches_until_slow
        return FakeServer(change)

    return server


def test_a_cliff_is_said_within_three_batches_and_stopped_by_the_budget(
    run: Measure, crawling: Crawling
) -> None:
    with crawling(CLIFF_AT) as server:
        result = run(server, budget_s=6.0, remeasure_s=0.0)
    assert result.refused is None
    assert result.record is not None
    assert result.verdict is not None
    at = [e for e in result.record.events if e.code == "cliff"]
    assert len(at) == 1, result.said
    assert any(line.startswith("cliff: ") for line in result.said)
    failed = result.record.rung(DEEP)
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
    # Its speeds are those of a machine that may be busy: only that there are some.
    assert "ERROR" not in {cell.outcome for cell in shallow if cell}, shallow
    retrieval = result.verdict.cell(2048, "retrieval")
    assert retrieval is not None
    assert retrieval.outcome == "PASS"
    deep = result.verdict.cell(DEEP, "prefill")
    assert deep is not None
    assert deep.outcome == "ERROR"
    assert "--budget" in (deep.next_step or "")


def test_a_cliff_without_a_budget_is_said_and_read_to_the_end(
    run: Measure, crawling: Crawling
) -> None:
    with crawling(BATCHES - 3) as server:
        result = run(server, remeasure_s=0.0)
    assert result.record is not None
    assert [e.code for e in result.record.events].count("cliff") == 1
    rung = result.record.rung(DEEP)
    assert rung is not None
    assert rung.failure is None


def test_an_even_prefill_within_its_budget_is_left_alone(run: Measure, crawling: Crawling) -> None:
    with crawling(BATCHES) as server:
        result = run(server, budget_s=60.0, remeasure_s=0.0)
    assert result.record is not None
    assert not [e for e in result.record.events if e.code == "cliff"]
    assert result.record.footer is not None
    assert result.record.footer.complete
