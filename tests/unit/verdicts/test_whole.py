"""What a filter sets aside never hides a change of the whole; what drift and pace may take back."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import Chunk, GpuAt, Prefill, Rung, RunRecord
from harness.verdicts.cell import CellVerdict
from harness.verdicts.levels import fit_levels
from harness.verdicts.verdict import judge
from harness.verdicts.whole import compare_samples, stragglers
from tests.made import (
    control,
    generation,
    pace,
    prefill,
    record,
    rung,
    server_log,
)

BANDS = {"prefill": 0.1, "generation": 0.1, "ttft": 0.1, "memory": 0.1, "retrieval": 0.0}
STEADY = pace((10.0, 10.1, 9.9, 10.0))


def accepted_two(*records: RunRecord) -> Baseline:
    taken = tuple(accepted(r, "2026-01-02", None) for r in (records * 2)[:2])
    return Baseline(key=key_of(records[0].header), runs=taken)


def cell(now: RunRecord, then: Baseline, metric: str, depth: int = 8192) -> CellVerdict:
    found = judge(now, then, BANDS).cell(depth, metric)
    assert found is not None
    return found


def stalling(every: int, times: float, *, offset: int = 0, seed: int = 0) -> Prefill:
    """A reading of 40 batches, every `every`th of which takes `times` as long."""
    rng = np.random.default_rng(seed)
    ms = [200.0 * np.exp(rng.normal(0, 0.01)) for _ in range(40)]
    ms = [m * times if every and i % every == (every - 1 - offset) % every else m
          for i, m in enumerate(ms)]  # fmt: skip
    chunks = tuple(
        Chunk(start_tokens=i * 180, end_tokens=(i + 1) * 180, ms=m) for i, m in enumerate(ms)
    )
    total = sum(ms)
    return prefill(0, 7200, 900.0).model_copy(
        update={"server_ms": total, "wall_ms": total + 2, "chunks": chunks}
    )


def reading(*prefills: Prefill) -> RunRecord:
    return record(rung(8192).model_copy(update={"prefills": prefills}))


# -- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [4, 5, 6, 8])
@pytest.mark.parametrize("times", [2.0, 3.0])
def test_a_prefill_that_stalls_time_and_again_never_passes(every: int, times: float) -> None:
    then = accepted_two(reading(stalling(0, 1.0, seed=1)), reading(stalling(0, 1.0, seed=2)))
    found = cell(reading(stalling(every, times)), then, "prefill")
    assert found.outcome in ("INCONCLUSIVE", "REGRESSED"), found.message
    assert f"of 40 batches took about {times:.1f} times as long, every {every}th" in found.message


def test_stalls_that_change_little_are_named_all_the_same() -> None:
    then = accepted_two(reading(stalling(0, 1.0, seed=1)), reading(stalling(0, 1.0, seed=2)))
    found = cell(reading(stalling(8, 1.3)), then, "prefill")
    assert "5 of 40 batches took about 1.3 times as long, every 8th" in found.message


def test_one_long_stall_in_a_prefill_never_passes() -> None:
    then = accepted_two(reading(stalling(0, 1.0, seed=1)), reading(stalling(0, 1.0, seed=2)))
    found = cell(reading(stalling(40, 12.0)), then, "prefill")
    assert found.outcome == "INCONCLUSIVE", found.message
    assert "1 of 40 batches" in found.message
    assert found.measured is not None
    assert found.baseline is not None
    assert found.measured < 0.85 * found.baseline


def test_a_stall_in_each_of_several_readings_is_a_regression() -> None:
    """At a place of its own in each: the median over readings knows nothing of it."""
    calm = [stalling(0, 1.0, seed=s) for s in range(1, 4)]
    stalls = [stalling(40, 14.0, offset=7 * i, seed=9 + i) for i in range(3)]
    found = cell(reading(*stalls), accepted_two(reading(*calm)), "prefill")
    assert found.outcome == "REGRESSED", found.message


def test_a_server_that_always_stalled_so_passes() -> None:
    then = accepted_two(reading(stalling(6, 2.0, seed=1)), reading(stalling(6, 2.0, seed=2)))
    assert cell(reading(stalling(6, 2.0)), then, "prefill").outcome == "PASS"


def test_one_slow_batch_of_many_still_passes() -> None:
    then = accepted_two(reading(stalling(0, 1.0, seed=1)), reading(stalling(0, 1.0, seed=2)))
    assert cell(reading(stalling(40, 1.5)), then, "prefill").outcome == "PASS"


def test_levels_are_found_in_memory_that_grows_with_the_length_only() -> None:
    y = np.random.default_rng(0).normal(0.0, 0.02, 3000)
    y[1000:2200] -= 0.2
    tracemalloc.start()
    found = fit_levels(y, noise=4e-4, shortest=6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(0, 1000), (1000, 2200), (2200, 3000)]
    assert peak < 8 * 2**20  # a matrix of all borders would be 69 MiB, and there were five


# -- repeats --------------------------------------------------------------------------------


@pytest.mark.parametrize(("slow", "of"), [(2, 6), (3, 12), (5, 18)])
def test_a_quarter_of_the_repeats_twice_as_slow_never_passes(slow: int, of: int) -> None:
    rates = [50.0 if i < slow else 100.0 + i % 3 for i in range(of)]
    decided, _, said = compare_samples(
        rates, [(100.0, 101.0, 99.0)] * 2, band=0.1, direction="higher"
    )
    assert decided in ("UNDECIDED", "REGRESSED")
    assert said is not None
    assert f"{slow} of {of} repeats took about 2.0 times as long" in said


def test_repeats_that_always_scattered_so_pass() -> None:
    rates = [50.0 if i % 4 == 3 else 100.0 for i in range(16)]
    decided, *_ = compare_samples(rates, [rates] * 4, band=0.1, direction="higher")
    assert decided == "PASS"


def test_a_slow_repeat_of_many_still_passes() -> None:
    rates = [70.0, *(100.0 + i % 3 for i in range(17))]
    decided, *_ = compare_samples(rates, [(100.0, 101.0, 99.0)] * 2, band=0.1, direction="higher")
    assert decided == "PASS"


@pytest.mark.parametrize(
    ("late", "every"), [((2, 5, 8), 3), ((1, 2, 9), None), ((4,), None), ((3, 7, 12), 4)]
)
def test_what_comes_again_evenly_is_named_so(late: Sequence[int], every: int | None) -> None:
    found = stragglers([2.0 if i in late else 1.0 for i in range(20)])
    assert found is not None
    assert (found.count, found.of, found.every) == (len(late), 20, every)


# -- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_gib", "then_gib", "outcome"),
    [
        (4.48, 4.0, "REGRESSED"),
        (4.0, 4.0, "PASS"),
        (4.2, 4.0, "PASS"),
        (0.075, 0.05, "REGRESSED"),
        (0.055, 0.05, "PASS"),
        (3.5, 4.0, "IMPROVED"),
    ],
)
def test_memory_without_noise_is_decided(now_gib: float, then_gib: float, outcome: str) -> None:
    found = cell(record(rung(memory_gib=now_gib)), accepted_two(record(rung(memory_gib=then_gib))),
                 "memory", 2048)  # fmt: skip
    assert found.outcome == outcome, found.message


# -- one number a cell ----------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["prefill", "generation", "ttft", "memory"])
def test_measured_and_baseline_are_what_the_change_is_made_of(metric: str) -> None:
    """A median of all samples beside a change of batches read: 88,622 | 129,557 | +14.8 %."""
    rates = (97.0, 140.0, 99.0, 101.0, 60.0, 103.0)
    now = record(rung(8192, generation_tok_s=rates, ttft_ms=(50.0, 90.0, 52.0), memory_gib=4.1))
    odd = now.rungs[0].model_copy(update={"prefills": (stalling(5, 2.0), stalling(0, 1.0))})
    now = now.model_copy(update={"rungs": (odd,)})
    found = cell(now, accepted_two(reading(stalling(0, 1.0, seed=1))), metric)
    assert found.measured is not None
    assert found.baseline is not None
    assert found.change == pytest.approx(found.measured / found.baseline - 1.0)


# -- what drift may take back ---------------------------------------------------------------


def visited(late_tok_s: float, *, mhz: tuple[float, float] | None = None) -> RunRecord:
    """Rungs 2048, 8192 and 32768; the first two visited again after the climb."""
    rungs: list[Rung] = []
    for n, depth in enumerate((2048, 8192, 32768)):
        rates = [(100.0 - 10 * n, 10.0 * n)] * 3
        if depth < 32768:
            rates += [(late_tok_s - 10 * n, 100.0 + n)] * 3
        made = [
            generation(rate).model_copy(
                update={
                    "start_s": at + i,
                    "end_s": at + i + 0.5,
                    "gpu": None
                    if mhz is None
                    else GpuAt(core_mhz=mhz[at >= 100.0], counter="NVML", held_by=("idle",)),
                }
            )
            for i, (rate, at) in enumerate(rates)
        ]
        climbed = rung(depth, start=0).prefills[0].model_copy(update={"start_s": 10.0 * n - 5.0})
        rungs.append(
            rung(depth).model_copy(update={"generations": tuple(made), "prefills": (climbed,)})
        )
    return record(
        *rungs, controls=[control("before", (100, 101, 99)), control("after", (70, 71, 69))]
    )


def test_cells_whose_own_visits_agree_are_judged_though_the_control_moved() -> None:
    """A GPU at depth 0 moved by −12 % where no cell moved by 5: 20 of 20 cells were the same."""
    now = visited(100.0)
    verdict = judge(now, accepted_two(now), BANDS)
    assert {c.outcome for c in verdict.cells if c.metric.kind != "score"} == {"PASS"}


def test_cells_whose_own_visits_differ_are_not_judged_nor_those_beneath() -> None:
    now = visited(70.0)
    verdict = judge(now, accepted_two(now), BANDS)
    for depth in (2048, 8192, 32768):
        found = verdict.cell(depth, "generation")
        assert found is not None
        assert found.outcome == "INCONCLUSIVE", found.message
    assert found.code == "drift"
    assert "generation at 8192, visited before and after the climb, changed by −" in found.message


def test_a_gpus_clock_that_explains_the_drift_is_named_with_what_helps() -> None:
    now = visited(40.0, mhz=(1980.0, 570.0))
    found = cell(now, accepted_two(now), "generation", 32768)
    assert "the GPU's clock fell from 1,980 to 570 MHz (NVML: idle)" in found.message
    assert "--lock-gpu-clocks" in found.message
    assert "when calm" not in found.message


# -- what the pace may take back ------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "before", "after", "outcome"),
    [
        (50.0, 0.93, 0.93, "REGRESSED"),
        (50.0, 1.07, 1.07, "REGRESSED"),
        (70.0, 1.07, 1.07, "REGRESSED"),
        (50.0, 1.0, 0.6, "REGRESSED"),
        (70.0, 1.0, 0.6, "INCONCLUSIVE"),
        (85.0, 0.85, 0.85, "INCONCLUSIVE"),
        (100.0, 0.85, 0.85, "INCONCLUSIVE"),
        (150.0, 1.1, 1.1, "IMPROVED"),
        (115.0, 1.15, 1.15, "INCONCLUSIVE"),
    ],
)
def test_a_pace_takes_back_no_more_than_it_explains(
    rate: float, before: float, after: float, outcome: str
) -> None:
    then = record(rung(8192), events=[STEADY])
    paces = [
        pace([10.0 * f, 10.1 * f, 9.9 * f, 10.0 * f], where)
        for f, where in ((before, "before"), (after, "after"))
    ]
    rates = (rate, rate * 1.01, rate * 0.99)
    now = record(rung(8192, generation_tok_s=rates), events=[*paces, server_log(on_gpu=False)])
    found = cell(now, accepted_two(then), "generation")
    assert found.outcome == outcome, found.message


def test_a_machine_of_two_states_is_judged_state_by_state() -> None:
    """Two accepted runs of each: the slow state is no loss against the slow runs."""
    states = (1.0, 0.85, 1.0, 0.85)
    runs = [
        record(
            rung(8192, generation_tok_s=[100 * f, 101 * f, 99 * f], prefill_tok_s=1000 * f,
                 ttft_ms=[500 / f, 505 / f, 495 / f]),
            events=[pace([10.0 * f, 10.1 * f, 9.9 * f]), server_log(on_gpu=False)],
        )
        for f in states
    ]  # fmt: skip
    taken = tuple(accepted(r, "2026-01-02", None) for r in runs)
    then = Baseline(key=key_of(runs[0].header), runs=taken)
    for now in runs[:2]:
        speeds = [c for c in judge(now, then, BANDS).cells if c.metric.kind != "score"]
        assert {c.outcome for c in speeds} == {"PASS"}, [c.message for c in speeds]
