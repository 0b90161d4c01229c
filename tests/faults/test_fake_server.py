"""The fake is llama-server enough: what a healthy one gets."""

from tests.faults.conftest import DEPTHS, Measure
from tests.faults.fake_server import FakeServer


def test_a_healthy_server_passes(run: Measure) -> None:
    with FakeServer() as server:
        result = run(server)
    assert result.refused is None
    assert result.record is not None
    assert result.record.footer is not None
    assert result.record.footer.complete
    assert "15 of 15" in result.terminal
    assert result.verdict is not None
    for metric in ("generation", "retrieval"):
        for depth in DEPTHS:
            cell = result.verdict.cell(depth, metric)
            assert cell is not None
            assert cell.outcome == "PASS", cell


def test_the_climb_reads_each_token_once(run: Measure) -> None:
    with FakeServer() as server:
        result = run(server)
    assert result.record is not None
    first, second = (rung.prefills[-1] for rung in result.record.rungs)
    assert second.cached_tokens == first.new_tokens
    asks = [a for rung in result.record.rungs for a in rung.asks]
    assert all(0 < (a.new_tokens or 0) <= a.planned_new_tokens for a in asks)
