"""Prefill curves paired by depth: constructed departures, disturbances and borders."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.verdicts.batches import MIN_CHUNKS
from harness.verdicts.curve import CurveEstimate, curve_estimate, decide_curve
from harness.verdicts.stats import Unjudgeable

BATCH = 2048


@dataclass(frozen=True)
class Batch:
    start_tokens: int
    end_tokens: int
    ms: float


def curve(
    batches: int,
    *,
    seed: int,
    noise: float = 0.02,
    change: float = 0.0,
    first: int = 0,
    last: int | None = None,
    batch: int = BATCH,
) -> list[Batch]:
    """A curve that slows with depth, its speed changed by `change` over batches first..last."""
    rng = np.random.default_rng(seed)
    speed = np.exp(rng.normal(0.0, noise, batches))
    speed[first:last] *= 1.0 + change
    return [
        Batch(i * batch, (i + 1) * batch, batch * (0.1 + 0.01 * i * batch / BATCH) / speed[i])
        for i in range(batches)
    ]


def baseline(batches: int, runs: int = 2, noise: float = 0.02) -> list[list[Batch]]:
    return [curve(batches, seed=1000 + r, noise=noise) for r in range(runs)]


def estimated(current: Sequence[Batch], runs: Sequence[Sequence[Batch]]) -> CurveEstimate:
    found = curve_estimate(current, runs)
    assert isinstance(found, CurveEstimate), found
    return found


def slowed(batch: Batch, factor: float) -> Batch:
    return replace(batch, ms=batch.ms * factor)


# -- where it departs -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_departure_is_named_where_it_begins(seed: int) -> None:
    found = estimated(curve(64, seed=seed, change=-0.23, first=32), baseline(64))
    assert found.departure is not None
    assert abs(found.departure.from_tokens - 65_536) <= BATCH
    assert found.departure.to_tokens == 131_072
    assert found.departure.to_end
    assert found.departure.estimate.change == pytest.approx(-0.23, abs=0.02)
    assert found.judged == found.departure.estimate
    assert decide_curve(found, band=0.10)[0] == "REGRESSED"


def test_the_sentence_is_the_one_asked_for() -> None:
    exact = curve(64, seed=0, noise=0.0, change=-0.23, first=32)
    found = estimated(exact, [curve(64, seed=0, noise=0.0)] * 2)
    assert found.departure is not None
    assert found.departure.sentence == "from 64K on, −23 %"


def test_a_slow_down_that_deepens_is_found_though_its_start_is_soft() -> None:
    ramp = np.concatenate([np.zeros(24), np.linspace(0.0, 0.4, 40)])
    current = [slowed(b, float(np.exp(r))) for b, r in zip(curve(64, seed=1), ramp, strict=True)]
    found = estimated(current, baseline(64))
    assert found.departure is not None
    assert 24 * BATCH <= found.departure.from_tokens <= 50 * BATCH
    assert found.departure.to_end


def test_the_same_curve_departs_nowhere() -> None:
    for seed in range(20):
        found = estimated(curve(64, seed=seed), baseline(64))
        assert found.departure is None
        assert decide_curve(found, band=0.10)[0] == "PASS"


def test_a_faster_curve_is_an_improvement_from_its_first_batch_on() -> None:
    found = estimated(curve(32, seed=3, change=0.3), baseline(32))
    assert decide_curve(found, band=0.10)[0] == "IMPROVED"
    assert found.departure is not None
    assert found.departure.from_tokens == 0
    assert found.overall.change == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_an_even_slow_down_is_one_stretch_judged_as_the_whole(seed: int) -> None:
    found = estimated(curve(32, seed=seed, change=-0.2), baseline(32))
    assert found.departure is not None
    assert found.departure.from_tokens == 0
    assert found.departure.estimate == found.overall


def test_a_stretch_that_was_searched_for_counts_its_batches_noise_larger() -> None:
    half = estimated(curve(64, seed=1, change=-0.23, first=32), baseline(64))
    alone = estimated(curve(64, seed=1, change=-0.23, first=32)[32:], baseline(64))
    assert half.departure is not None
    assert half.departure.from_tokens == alone.judged.n_current * BATCH
    assert half.departure.estimate.se_log > 1.05 * alone.judged.se_log


# -- what passes by -------------------------------------------------------------------------


def test_isolated_slow_batches_are_set_aside() -> None:
    current = curve(64, seed=4)
    for i in (5, 23, 41, 63):
        current[i] = slowed(current[i], 1.5)
    found = estimated(current, baseline(64))
    assert found.set_aside == 4
    assert found.overall.ratio == pytest.approx(1.0, abs=0.02)
    assert decide_curve(found, band=0.10)[0] == "PASS"


def test_a_disturbance_that_ends_is_named_but_does_not_convict() -> None:
    found = estimated(curve(64, seed=5, change=-0.35, first=20, last=32), baseline(64))
    assert found.departure is not None
    assert not found.departure.to_end
    assert found.judged == found.overall
    assert found.departure.sentence.startswith("between 40K and 64K, −3")
    assert decide_curve(found, band=0.10)[0] == "UNDECIDED"


def test_a_disturbance_that_drags_the_whole_below_the_band_does_not_convict_either() -> None:
    found = estimated(curve(64, seed=5, change=-0.5, first=20, last=52), baseline(64))
    assert found.overall.high < 0.9
    assert found.departure is not None
    assert not found.departure.to_end
    assert decide_curve(found, band=0.10)[0] == "UNDECIDED"


def test_a_faster_tail_and_a_slower_whole_decide_nothing() -> None:
    current = curve(64, seed=6, change=-0.7, first=0, last=54)
    current[54:] = [slowed(b, 0.6) for b in current[54:]]
    found = estimated(current, baseline(64))
    decisive = replace(found, departure=None, whole=found.overall)
    assert decide_curve(decisive, band=0.10)[0] == "REGRESSED"
    assert decide_curve(found, band=0.10)[0] == "UNDECIDED"


def test_three_slow_batches_at_the_end_are_no_departure() -> None:
    current = curve(64, seed=8)
    current[-3:] = [slowed(b, 2.0) for b in current[-3:]]
    found = estimated(current, baseline(64))
    assert found.departure is None
    assert decide_curve(found, band=0.10)[0] != "REGRESSED"


def test_a_hit_batch_of_a_baseline_run_changes_little() -> None:
    runs = baseline(32)
    runs[0][10] = slowed(runs[0][10], 1.5)
    found = estimated(curve(32, seed=6), runs)
    assert found.overall.ratio == pytest.approx(1.0, abs=0.02)
    assert found.set_aside == 0


def test_four_batches_that_disagree_decide_nothing() -> None:
    current = curve(4, seed=7)
    current[1] = slowed(current[1], 1.6)
    current[2] = slowed(current[2], 1.4)
    assert decide_curve(estimated(current, baseline(4)), band=0.10)[0] == "UNDECIDED"


# -- evidence and pairing -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "runs"),
    [
        pytest.param(1, 2, id="a single batch"),
        pytest.param(MIN_CHUNKS - 1, 6, id="too few batches"),
        pytest.param(16, 1, id="one baseline run"),
        pytest.param(16, 0, id="no baseline run"),
        pytest.param(0, 2, id="no batch"),
    ],
)
def test_too_little_evidence_is_refused(batches: int, runs: int) -> None:
    found = curve_estimate(curve(batches, seed=0), baseline(max(batches, 16), runs))
    assert isinstance(found, Unjudgeable)
    assert found.needed


def test_baseline_runs_of_other_depths_are_not_compared() -> None:
    deep = [
        replace(b, start_tokens=b.start_tokens + 10**6, end_tokens=b.end_tokens + 10**6)
        for b in curve(16, seed=0)
    ]
    assert isinstance(curve_estimate(curve(16, seed=1), [deep, deep]), Unjudgeable)


def test_only_depths_that_every_run_read_are_compared() -> None:
    runs = [curve(32, seed=1), curve(20, seed=2)]
    found = estimated(curve(32, seed=3, change=-0.5, first=20), runs)
    assert found.overall.n_current == 20
    assert decide_curve(found, band=0.10)[0] == "PASS"


def test_runs_that_share_too_few_depths_with_each_other_are_refused() -> None:
    whole = curve(16, seed=1)
    assert isinstance(curve_estimate(whole, [whole[:9], whole[6:]]), Unjudgeable)


def test_other_batch_borders_pair_by_depth() -> None:
    fine = [curve(64, seed=s, noise=0.0, batch=BATCH // 2) for s in (1, 2)]
    coarse = [
        Batch(a.start_tokens, b.end_tokens, (a.ms + b.ms) / 0.8)
        for a, b in zip(fine[0][::2], fine[0][1::2], strict=True)
    ]
    found = estimated(coarse, fine)
    assert found.overall.ratio == pytest.approx(0.8)
    assert found.overall.n_current == 32


@given(
    st.integers(4, 40),
    st.floats(0.2, 4.0),
    st.integers(0, 2**20),
    st.integers(2, 4),
)
def test_a_common_factor_is_the_ratio_whatever_the_curve(
    batches: int, factor: float, seed: int, runs: int
) -> None:
    base = baseline(batches, runs)
    current = curve(batches, seed=seed)
    plain = estimated(current, base).overall
    scaled = estimated([slowed(b, factor) for b in current], base).overall
    assert scaled.ratio * factor == pytest.approx(plain.ratio)
    assert scaled.se_log == pytest.approx(plain.se_log)


@given(st.permutations(range(12)))
def test_order_of_batches_does_not_matter(order: list[int]) -> None:
    current = curve(12, seed=9)
    shuffled = [current[i] for i in order]
    assert curve_estimate(shuffled, baseline(12)) == curve_estimate(current, baseline(12))


@given(
    st.lists(
        st.builds(
            Batch,
            st.integers(0, 40).map(lambda i: i * 512),
            st.integers(0, 40).map(lambda i: i * 512),
            st.floats(-10.0, 1e6),
        ),
        max_size=30,
    ),
    st.integers(2, 20),
)
def test_malformed_batches_never_raise(current: list[Batch], batches: int) -> None:
    found = curve_estimate(current, baseline(batches))
    if isinstance(found, CurveEstimate):
        assert math.isfinite(found.overall.ratio)
        assert found.overall.n_current >= MIN_CHUNKS


def test_few_batches_are_less_sure_than_many() -> None:
    few = estimated(curve(4, seed=1), baseline(4)).overall
    many = estimated(curve(64, seed=1), baseline(64)).overall
    assert few.se_log > many.se_log


def test_correlated_noise_widens_the_interval_of_as_many_batches() -> None:
    flat = curve(64, seed=0, noise=0.0)

    def run(rng: np.random.Generator, correlation: float) -> list[Batch]:
        noise = rng.normal(0.0, 0.03, 64)
        for i in range(1, 64):
            noise[i] = correlation * noise[i - 1] + math.sqrt(1 - correlation**2) * noise[i]
        return [slowed(b, float(np.exp(n))) for b, n in zip(flat, noise, strict=True)]

    def variance(correlation: float) -> float:
        rng = np.random.default_rng(11)
        runs = [[run(rng, correlation) for _ in range(3)] for _ in range(10)]
        return sum(estimated(one, base).overall.se_log for one, *base in runs)

    assert variance(0.7) > 1.04 * variance(0.0)


def test_of_overlapping_batches_the_first_counts() -> None:
    current = curve(16, seed=2)
    again = [slowed(b, 3.0) for b in current[4:8]]
    assert curve_estimate(current + again, baseline(16)) == curve_estimate(current, baseline(16))
