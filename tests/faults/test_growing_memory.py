"""Memory that grows by so little that only asking on tells whether it ends."""

import pytest

from harness.measuring import campaign as campaign_module
from harness.records.lines import MemorySample
from harness.verdicts.leak import LONG_REQUESTS
from tests.faults.conftest import Measure
from tests.faults.fake_server import FakeServer


class Heap:
    """Grows by 96 KiB a request, for so many requests."""

    requests = 0

    def __init__(self, pid: int | None) -> None:
        self._seen = 0

    def sample(self) -> MemorySample:
        self._seen = min(self._seen + 1, self.requests)
        held = (1 << 30) + self._seen * 96 * 1024
        return MemorySample(rss_bytes=held, rss_anon_bytes=held, swap_bytes=0)

    def unreadable(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    ("requests", "outcome", "samples"),
    [(999, "LEAK", range(LONG_REQUESTS + 1, LONG_REQUESTS + 8)), (14, "PASS", range(14, 36))],
)
def test_memory_that_grows_is_asked_about_until_that_ends_or_is_a_leak(
    run: Measure, monkeypatch: pytest.MonkeyPatch, requests: int, outcome: str, samples: range
) -> None:
    monkeypatch.setattr(Heap, "requests", requests)
    monkeypatch.setattr(campaign_module, "MemoryProbe", Heap)
    with FakeServer() as server:
        result = run(server, depths=(4096,), remeasure_s=30.0, max_repeats=12)
    assert result.record is not None, result.refused
    assert result.verdict is not None
    rung = result.record.rung(4096)
    cell = result.verdict.cell(4096, "memory")
    assert rung is not None
    assert cell is not None
    assert (cell.outcome == "LEAK") == (outcome == "LEAK"), cell.message
    assert len(rung.memory) in samples
