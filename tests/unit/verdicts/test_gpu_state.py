"""What a GPU's clock explains, and what is said to help."""

import pytest

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import Generation, GpuAt, RunRecord
from harness.verdicts.gpu_state import clock_move, explains
from harness.verdicts.verdict import judge
from tests.made import BANDS, record, rung


def requests(*clocks: float, held_by: tuple[str, ...] | None = (), counter: str = "NVML"):
    return [
        Generation(
            predicted_tokens=128,
            server_ms=100.0,
            wall_ms=110.0,
            ttft_ms=None,
            new_tokens=1,
            cached_tokens=0,
            gpu=GpuAt(counter=counter, core_mhz=mhz, held_by=held_by),
        )
        for mhz in clocks
    ]


def test_a_clock_that_fell_is_named_with_its_reason_and_what_helps() -> None:
    move = clock_move(requests(1980, 1980, 1950), requests(570, 495, 600, held_by=("idle",)))
    assert move is not None
    assert move.sentence == "the GPU's clock fell from 1,980 to 570 MHz (NVML: idle)"
    assert move.next_step is not None
    assert "lock-gpu-clocks" in move.next_step
    assert explains(move, -0.25)
    assert not explains(move, +0.4)


def test_the_reason_is_the_lower_clocks_also_when_it_rose() -> None:
    move = clock_move(requests(570, held_by=("idle",)), requests(1980))
    assert move is not None
    assert move.sentence == "the GPU's clock rose from 570 to 1,980 MHz (NVML: idle)"
    assert explains(move, +0.485)


def test_a_small_move_explains_no_large_change() -> None:
    move = clock_move(requests(1980), requests(1780, held_by=("power limit",)))
    assert move is not None
    assert explains(move, -0.12)
    assert not explains(move, -0.4)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (requests(1980), requests(1950)),
        (requests(1980), []),
        (requests(1980), [r.model_copy(update={"gpu": None}) for r in requests(500)]),
    ],
)
def test_a_steady_or_unknown_clock_explains_nothing(before, after) -> None:
    assert clock_move(before, after) is None


def test_where_nothing_is_known_to_help_nothing_is_said() -> None:
    move = clock_move(requests(2000), requests(1000, held_by=("sync boost",)))
    assert move is not None
    assert move.next_step is None
    untold = clock_move(requests(2900, counter="D3DKMT"), requests(900, held_by=None))
    assert untold is not None
    assert untold.sentence.endswith("(NVML: no reason told)")
    assert untold.next_step is None


def clocked(run_id: str, tok_s: float, mhz: float | None) -> RunRecord:
    """Generation at `tok_s` with a scatter of 1 %, the GPU at `mhz` and held there by idling."""
    gpu = None if mhz is None else GpuAt(counter="NVML", core_mhz=mhz, held_by=("idle",))
    measured = rung(generation_tok_s=[tok_s * x for x in (0.99, 1.0, 1.01, 1.0, 0.995, 1.005)])
    timed = tuple(g.model_copy(update={"gpu": gpu}) for g in measured.generations)
    made = record(measured.model_copy(update={"generations": timed}))
    return made.model_copy(update={"header": made.header.model_copy(update={"run_id": run_id})})


@pytest.mark.parametrize(
    ("tok_s", "mhz", "outcome", "said"),
    [
        (1640.0, 1185.0, "INCONCLUSIVE", "fell from 1,950 to 1,185 MHz (NVML: idle)"),
        (1640.0, 1950.0, "REGRESSED", "−34 %"),
        (1000.0, 1185.0, "REGRESSED", "which does not explain it"),
        (1640.0, None, "REGRESSED", "−34 %"),
    ],
)
def test_a_change_within_the_band_at_equal_clocks_is_not_the_softwares(
    tok_s: float, mhz: float | None, outcome: str, said: str
) -> None:
    runs = [clocked("20260101-000000-aaaaaa", 2500.0, 1980.0)]
    runs.append(clocked("20260101-010000-aaaaab", 2490.0, 1920.0))
    baseline = Baseline(key=key_of(runs[0].header), runs=tuple(accepted(r, "", None) for r in runs))
    cell = judge(clocked("20260102-000000-aaaaac", tok_s, mhz), baseline, BANDS).cell(
        2048, "generation"
    )
    assert cell is not None
    assert cell.outcome == outcome, cell.message
    assert said in cell.message
