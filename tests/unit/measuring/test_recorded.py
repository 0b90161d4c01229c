"""The curve of a reading: by the server's own times, and only where it adds up."""

from dataclasses import replace

import pytest

from harness.measuring.recorded import chunks_of
from harness.serving.wire import Exchange, ProgressPoint

TOTAL = 4096


def reading(arrived_ms: list[float], *, server: bool, prompt_ms: float = 800.0) -> Exchange:
    """Batches of 512 tokens that took 100 ms each, arriving when they did."""
    points = tuple(
        ProgressPoint(512 * n, TOTAL, 0, 100.0 * n if server else 0.0, at)
        for n, at in enumerate(arrived_ms)
    )
    exchange = Exchange(
        content="",
        reasoning="",
        finish_reason="stop",
        prompt_tokens=TOTAL,
        cached_tokens=0,
        predicted_tokens=0,
        timings={"prompt_ms": prompt_ms},
        progress=(),
        first_token_ms=None,
        token_event_ms=(),
        wall_ms=900.0,
        started_ns=0,
        ended_ns=1,
    )
    return replace(exchange, progress=points)


CALM = [100.0 * n for n in range(9)]
STOPPED = [*CALM[:4], *(at + 8000.0 for at in CALM[4:])]
CLUMPED = [0.0, *[799.0] * 7, 800.0]


@pytest.mark.parametrize("arrived", [CALM, STOPPED, CLUMPED])
def test_the_server_s_times_hold_however_events_arrive(arrived: list[float]) -> None:
    chunks = chunks_of(reading(arrived, server=True))
    assert [c.ms for c in chunks] == pytest.approx([100.0] * 8, rel=0.03)
    assert sum(c.ms for c in chunks) == pytest.approx(800.0)


def test_arrival_counts_within_the_server_s_grain() -> None:
    arrived = [n * 100.0 + (0.4 if n % 2 else 0.0) for n in range(9)]
    chunks = chunks_of(reading(arrived, server=True))
    assert chunks[0].ms == pytest.approx(100.4, abs=0.01)


def test_without_them_a_curve_that_does_not_add_up_is_none() -> None:
    assert len(chunks_of(reading(CALM, server=False))) == 8
    assert chunks_of(reading(STOPPED, server=False)) == []
