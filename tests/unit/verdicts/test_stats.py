"""Intervals of ratios and the rule on them: cases of the field, and what holds for any samples."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.metrics import Direction
from harness.verdicts.noise import PRIOR, between_runs
from harness.verdicts.stats import (
    Decision,
    Estimate,
    Unjudgeable,
    combine,
    decide,
    ratio_estimate,
    same_run_ratio,
    significant_in_run,
)

CALM = (100.4, 99.1, 100.9)
BASELINE = (CALM, (101.2, 99.8, 100.1))

rates = st.floats(1.0, 2000.0)
shares = st.floats(0.8, 1.25)
runs_of_shares = st.lists(st.lists(shares, min_size=2, max_size=7), min_size=2, max_size=5)


def estimated(current: Sequence[float], baseline: Sequence[Sequence[float]]) -> Estimate:
    found = ratio_estimate(current, baseline)
    assert isinstance(found, Estimate), found
    return found


def scaled(factor: float, samples: Sequence[float] = CALM) -> list[float]:
    return [factor * v for v in samples]


def verdict(
    current: Sequence[float],
    baseline: Sequence[Sequence[float]] = BASELINE,
    *,
    direction: Direction = "higher",
    band: float = 0.10,
) -> Decision:
    return decide(estimated(current, baseline), band=band, direction=direction)


# -- cases from the field -------------------------------------------------------------------


def noisy(centre: float) -> list[float]:
    return [centre * s for s in (1.006, 0.991, 1.002)]


def runs_at(centre: float) -> list[list[float]]:
    return [noisy(centre * 1.004), noisy(centre * 0.995)]


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        pytest.param(1080.0, 657.0, "REGRESSED", id="gfx1151 pp512"),
        pytest.param(64.9, 64.6, "PASS", id="gfx1151 tg128"),
        pytest.param(100.0, 102.3, "PASS", id="flash attention at 0"),
        pytest.param(100.0, 97.1, "PASS", id="flash attention at 16K"),
        pytest.param(100.0, 77.8, "REGRESSED", id="flash attention at 48K"),
    ],
)
def test_published_pairs_get_the_verdict_they_deserve(
    then: float, now: float, expected: Decision
) -> None:
    assert verdict(noisy(now), runs_at(then)) == expected


@pytest.mark.parametrize("baseline", [runs_at(66.0), runs_at(53.0), [[66.0, 40.0], [65.0, 41.0]]])
def test_66_and_40_tokens_a_second_of_the_same_binary_decide_nothing(
    baseline: list[list[float]],
) -> None:
    assert verdict([66.0, 40.0], baseline) == "UNDECIDED"


def test_one_stray_repeat_in_three_decides_nothing_but_one_in_six_does_no_harm() -> None:
    assert verdict([100.0, 101.0, 66.0]) == "UNDECIDED"
    assert verdict([100.0, 101.0, 66.0, 99.0, 100.5, 101.2]) == "PASS"


def test_one_stray_repeat_in_the_baseline_does_not_spoil_it() -> None:
    stray = ((100.4, 62.0, 100.9), BASELINE[1])
    assert verdict(CALM, stray) == "PASS"
    assert estimated(CALM, stray).ratio == pytest.approx(1.0, abs=0.01)


# -- never from too little ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "baseline", "said"),
    [
        pytest.param([50.0], BASELINE, "1 sample", id="one sample"),
        pytest.param([], BASELINE, "0 sample", id="no sample"),
        pytest.param(CALM, [CALM], "1 baseline run", id="one baseline run"),
        pytest.param(CALM, [CALM, []], "1 baseline run", id="an empty baseline run"),
        pytest.param([99.0, 0.0, 98.0], BASELINE, "zero", id="a zero"),
        pytest.param(CALM, [CALM, [1.0, -2.0]], "zero, negative", id="a negative baseline"),
        pytest.param([99.0, math.nan], BASELINE, "not a number", id="not a number"),
        pytest.param([99.0, math.inf], BASELINE, "not a number", id="infinite"),
    ],
)
def test_too_little_or_impossible_evidence_is_refused_with_what_is_needed(
    current: Sequence[float], baseline: Sequence[Sequence[float]], said: str
) -> None:
    found = ratio_estimate(current, baseline)
    assert isinstance(found, Unjudgeable)
    assert said in found.reason
    assert found.needed


@given(rates, st.lists(st.lists(rates, min_size=1, max_size=5), min_size=2, max_size=6))
def test_a_single_sample_is_never_judged(value: float, baseline: list[list[float]]) -> None:
    assert isinstance(ratio_estimate([value], baseline), Unjudgeable)


def test_runs_of_one_sample_each_make_a_baseline() -> None:
    assert verdict(CALM, [[99.0], [101.0], [100.0], [100.5]]) == "PASS"
    assert verdict(scaled(0.7), [[99.0], [101.0], [100.0], [100.5]]) == "REGRESSED"


def test_a_thin_baseline_is_noted_and_a_full_one_not() -> None:
    note = estimated(CALM, BASELINE).note
    assert note is not None
    assert "2 baseline runs" in note
    assert estimated(CALM, [*BASELINE, *BASELINE, CALM, CALM]).note is None


# -- what must hold for any samples ---------------------------------------------------------


@given(st.lists(shares, min_size=2, max_size=8), runs_of_shares, rates, rates)
def test_units_cancel(
    current: list[float], baseline: list[list[float]], unit: float, level: float
) -> None:
    plain = estimated(scaled(level, current), [scaled(level, run) for run in baseline])
    other = estimated(scaled(unit, current), [scaled(unit, run) for run in baseline])
    assert plain.ratio == pytest.approx(other.ratio)
    assert plain.low == pytest.approx(other.low)
    assert plain.high == pytest.approx(other.high)


@given(st.lists(shares, min_size=2, max_size=8), runs_of_shares, st.floats(0.3, 3.0))
def test_a_change_moves_the_ratio_by_itself_and_leaves_the_width(
    current: list[float], baseline: list[list[float]], factor: float
) -> None:
    before, after = estimated(current, baseline), estimated(scaled(factor, current), baseline)
    assert after.ratio == pytest.approx(factor * before.ratio)
    assert after.se_log == pytest.approx(before.se_log)
    assert before.low < before.ratio < before.high


@given(st.lists(shares, min_size=2, max_size=8), runs_of_shares)
def test_order_of_samples_and_runs_does_not_matter(
    current: list[float], baseline: list[list[float]]
) -> None:
    before = estimated(current, baseline)
    after = estimated(current[::-1], [run[::-1] for run in baseline[::-1]])
    assert after.ratio == pytest.approx(before.ratio)
    assert after.se_log == pytest.approx(before.se_log)


@given(st.lists(shares, min_size=2, max_size=8), runs_of_shares, st.floats(0.02, 0.4))
def test_a_latency_regresses_where_a_rate_improves(
    current: list[float], baseline: list[list[float]], band: float
) -> None:
    estimate = estimated(current, baseline)
    swapped = {"REGRESSED": "IMPROVED", "IMPROVED": "REGRESSED"}
    rate = decide(estimate, band=band, direction="higher")
    latency = decide(estimate, band=band, direction="lower")
    assert latency == swapped.get(rate, rate)


@given(st.lists(shares, min_size=2, max_size=8), runs_of_shares, st.floats(0.02, 0.4))
def test_the_rule_is_the_interval_against_the_band(
    current: list[float], baseline: list[list[float]], band: float
) -> None:
    estimate = estimated(current, baseline)
    decision = decide(estimate, band=band, direction="higher")
    within = 1 - band <= estimate.low and estimate.high <= 1 + band
    assert (decision == "PASS") == within
    assert (decision == "REGRESSED") == (estimate.high < 1 - band)
    assert (decision == "IMPROVED") == (estimate.low > 1 + band)


@given(st.lists(shares, min_size=2, max_size=8), runs_of_shares)
def test_more_confidence_is_never_narrower(
    current: list[float], baseline: list[list[float]]
) -> None:
    usual = estimated(current, baseline)
    sure = ratio_estimate(current, baseline, confidence=0.99)
    assert isinstance(sure, Estimate)
    assert sure.low < usual.low
    assert usual.high < sure.high


def test_baseline_runs_that_lie_apart_widen_the_interval_though_each_is_calm() -> None:
    apart = [scaled(0.95), scaled(1.05)]
    assert estimated(CALM, apart).se_log > 1.5 * estimated(CALM, BASELINE).se_log


def test_repeats_cannot_average_the_state_of_the_machine_away() -> None:
    few, many = estimated(CALM, BASELINE), estimated(CALM * 40, BASELINE)
    assert 0.8 * few.se_log < estimated(CALM * 80, BASELINE).se_log <= many.se_log < few.se_log


def test_every_spread_enters_the_standard_error() -> None:
    estimate = combine(
        0.0,
        [0.01, -0.01],
        within=(2e-4, 10.0),
        base_within=(2e-4, 10.0),
        run_variance=3e-4,
        counts=(3, 6),
        confidence=0.95,
    )
    between, _ = between_runs([0.01, -0.01], 2e-4, 3e-4, PRIOR)
    assert estimate.se_log**2 == pytest.approx(2e-4 + 2e-4 / 2 + between * 1.5)


def test_the_probability_of_no_change_agrees_with_the_interval() -> None:
    estimate = estimated(scaled(0.93), BASELINE)
    edge = ratio_estimate(scaled(0.93), BASELINE, confidence=1.0 - estimate.p_no_change)
    assert isinstance(edge, Estimate)
    assert edge.high == pytest.approx(1.0, abs=1e-6)


# -- many cells at once ---------------------------------------------------------------------


def test_holm_steps_down_and_stops_at_the_first_that_is_not_beyond_chance() -> None:
    assert significant_in_run([0.001, 0.04, 0.012, 0.013], level=0.05) == (True, True, True, True)
    assert significant_in_run([0.001, 0.03, 0.03, 0.02], level=0.05) == (True, False, False, False)
    assert significant_in_run([], level=0.05) == ()


@given(st.lists(st.floats(0.0, 1.0), max_size=40), st.floats(0.001, 0.2))
def test_holm_lies_between_bonferroni_and_no_correction(
    p_values: list[float], level: float
) -> None:
    named = significant_in_run(p_values, level=level)
    for p_value, one in zip(p_values, named, strict=True):
        assert not one or p_value <= level
        assert one or p_value > level / len(p_values)


@given(st.lists(st.floats(0.0, 0.01), min_size=2, max_size=20), st.floats(0.001, 0.05))
def test_holm_names_nothing_that_a_smaller_probability_does_not(
    p_values: list[float], level: float
) -> None:
    named = significant_in_run(p_values, level=level)
    refused = [p for p, one in zip(p_values, named, strict=True) if not one]
    accepted = [p for p, one in zip(p_values, named, strict=True) if one]
    assert not refused or not accepted or max(accepted) <= min(refused)


# -- within one run -------------------------------------------------------------------------


def test_two_groups_of_one_run_need_no_spread_between_runs() -> None:
    within = same_run_ratio(scaled(0.97), CALM)
    across = estimated(scaled(0.97), BASELINE)
    assert isinstance(within, Estimate)
    assert within.ratio == pytest.approx(0.97)
    assert within.se_log < across.se_log


@pytest.mark.parametrize(("a", "b"), [([1.0], CALM), (CALM, [1.0]), (CALM, [1.0, 0.0])])
def test_two_groups_of_one_run_need_two_positive_samples_each(
    a: Sequence[float], b: Sequence[float]
) -> None:
    assert isinstance(same_run_ratio(a, b), Unjudgeable)
