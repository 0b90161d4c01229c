"""The fake is llama-server enough: a healthy one is measured and passes."""

from tests.faults.conftest import Measure
from tests.faults.fake_server import FakeServer


def test_a_healthy_server_passes(run: Measure) -> None:
    with FakeServer() as server:
        result = run(server)
    assert result.refused is None
    assert result.verdict is not None
    print(result.terminal)
    for metric in ("prefill", "generation", "retrieval"):
        for depth in (2048, 4096):
            cell = result.verdict.cell(depth, metric)
            assert cell is not None
            assert cell.outcome == "PASS", cell
