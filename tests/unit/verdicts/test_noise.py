"""Robust location and spread against what they estimate, and baseline outliers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.verdicts.noise import (
    PRIOR,
    between_runs,
    location,
    moderate,
    spread,
    summarise,
    without_outliers,
)

samples = st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=12)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 12, 24])
def test_spread_is_unbiased_on_normal_samples(n: int) -> None:
    rng = np.random.default_rng(n)
    draws = [spread(row)[0] for row in rng.normal(0.0, 2.0, (4000, n))]
    assert float(np.mean(draws)) == pytest.approx(4.0, rel=0.10)


@given(samples, st.floats(-5.0, 5.0))
def test_location_moves_with_its_samples_and_spread_does_not(
    values: list[float], shift: float
) -> None:
    here, there = np.array(values), np.array(values) + shift
    assert location(there) == pytest.approx(location(here) + shift, abs=1e-9)
    assert spread(there)[0] == pytest.approx(spread(here)[0], abs=1e-9)
    assert min(values) <= location(here) <= max(values)


@pytest.mark.parametrize("n", [6, 9, 12])
@pytest.mark.parametrize("stray", [-0.7, 5.0, 1e6])
def test_a_quarter_of_strays_moves_neither_far(n: int, stray: float) -> None:
    clean = np.random.default_rng(1).normal(0.0, 0.02, n)
    hit = clean.copy()
    hit[: n // 5] = stray
    assert abs(location(hit) - location(clean)) < 0.03
    assert spread(hit)[0] < 9.0 * 0.02**2


def test_moderation_weighs_by_degrees_of_freedom() -> None:
    assert moderate(4.0, 1.0, 1.0, 3.0) == (pytest.approx(1.75), 4.0)
    assert moderate(4.0, 0.0, 1.0, 3.0) == (1.0, 3.0)


def test_the_spread_between_runs_grows_with_theirs_and_never_vanishes() -> None:
    apart, _ = between_runs([0.0, 0.2], 1e-4, PRIOR.run_variance(4e-4), PRIOR)
    close, _ = between_runs([0.0, 0.0], 1e-4, PRIOR.run_variance(4e-4), PRIOR)
    unclear, _ = between_runs([0.0, 0.0], 1e-2, PRIOR.run_variance(4e-4), PRIOR)
    assert apart > 10.0 * close
    assert close > unclear == PRIOR.run_sd**2 / 4.0


def test_more_runs_outweigh_the_prior() -> None:
    locations = list(np.random.default_rng(2).normal(0.0, 0.06, 60))
    between, df = between_runs(locations, 0.0, PRIOR.run_sd**2, PRIOR)
    assert between == pytest.approx(0.06**2, rel=0.3)
    assert df == 59 + PRIOR.run_df


def test_restless_repeats_make_the_prior_between_runs_larger() -> None:
    assert PRIOR.run_variance(0.01**2) == PRIOR.run_sd**2
    assert PRIOR.run_variance(0.08**2) == pytest.approx(0.04**2)


def test_one_stray_in_three_is_set_aside_and_two_are_not() -> None:
    calm = np.array([0.0, 0.01, -0.01])
    one = np.array([0.0, 0.01, -0.5])
    two = np.array([0.0, 0.5, -0.5])
    assert [r.size for r in without_outliers([calm, one], PRIOR)] == [3, 2]
    assert [r.size for r in without_outliers([calm, two], PRIOR)] == [3, 3]


@given(st.lists(samples.map(np.array), min_size=1, max_size=5))
def test_at_most_a_third_of_a_run_is_set_aside(runs: list[np.ndarray]) -> None:
    for before, after in zip(runs, without_outliers(runs, PRIOR), strict=True):
        assert after.size >= before.size - before.size // 3


def test_runs_of_one_sample_have_no_spread_of_their_own() -> None:
    single = np.array([0.3])
    assert summarise(single).spread is None
    assert without_outliers([single, single], PRIOR)[0].size == 1
