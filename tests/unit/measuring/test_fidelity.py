"""Rungs between right and wrong numbers: both arms are visited there, and only numbers judged."""

from contextlib import nullcontext

import pytest

from harness.measuring import compare as comparison
from harness.records.fidelity import Numbers
from harness.records.lines import RunRecord
from harness.settings import Settings
from harness.verdicts.compare import Side
from tests.unit.verdicts.test_compare import Arms, visit

WRONG = Numbers(steps=((((2, -0.1), (1, -3.0)),), *((((2, -0.1), (1, -3.0)),),) * 8))
STEADY = Numbers(steps=((((1, -0.1), (2, -3.0)),), *((((1, -0.1), (2, -3.0)),),) * 8))


class Parting(Arms):
    """Arm B's numbers are wrong from `at` tokens on."""

    def __init__(self, at: int) -> None:
        super().__init__(set())
        self._metrics, self._at = ["generation", "fidelity"], at
        settings = Settings(ctx_tokens=32768, depths=(2048, 32768))
        self._arms = {"A": settings, "B": settings}
        self.seen: list[tuple[Side, tuple[int, ...]]] = []

    def _visit(self, side: Side, deepest: int) -> RunRecord:
        depths = self._arms[side].rung_depths
        self.seen.append((side, depths))
        made = visit(side, 0, [100.0, 101.0]).record
        rungs = [
            made.rungs[0].model_copy(
                update={
                    "depth": depth,
                    "numbers": (WRONG if side == "B" and depth >= self._at else STEADY,),
                }
            )
            for depth in depths
        ]
        return made.model_copy(update={"rungs": tuple(rungs)})


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "hold_machine", lambda settings: nullcontext())


def test_both_arms_are_visited_between_and_numbers_alone_are_judged_there() -> None:
    arms = Parting(9000)
    arms.measure(2, 2)
    found = arms.find_onset()
    between = (4096, 8192, 16384)
    assert arms.seen[-2:] == [("A", between), ("B", between)]
    cells = {c.depth: c.outcome for c in found.cells if c.metric.name == "fidelity"}
    assert cells[8192] == "PASS"
    assert cells[16384] == cells[32768] == "REGRESSED"
    assert {c.depth for c in found.cells if c.metric.name == "generation"} == {2048, 32768}
    assert found.exit_code == 1


def test_without_a_wrong_rung_nothing_more_is_measured() -> None:
    arms = Parting(10**6)
    before = arms.measure(2, 2)
    visits = len(arms.visits)
    assert arms.find_onset() == before
    assert len(arms.visits) == visits
