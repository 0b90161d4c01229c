"""What verdicts compute without scipy, which takes longer to import than a run takes to judge.

Each is held against scipy's own.
"""

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import ndimage, special, stats

from harness.records.fidelity import Step
from harness.verdicts.fidelity import Apart, divergence
from harness.verdicts.levels import fit_any_levels
from harness.verdicts.noise import Floats, moving_median, theil_sen
from harness.verdicts.proportions import _lost_by_chance, proportion_estimate, wilson
from harness.verdicts.stats import Unjudgeable
from harness.verdicts.student import normal_quantile, quantile, upper_tail

DEGREES = (0.8, 1.0, 2.5, 4.0, 7.3, 20.0, 150.5, 2500.0)


@pytest.mark.parametrize("df", DEGREES)
def test_students_tail_is_scipys(df: float) -> None:
    for t in (0.0, 1e-4, 0.03, 0.5, 1.0, 2.2, 5.0, 12.0, 80.0):
        assert upper_tail(t, df) == pytest.approx(float(special.stdtr(df, -t)), rel=1e-9)


@pytest.mark.parametrize("df", DEGREES)
def test_students_quantile_is_scipys(df: float) -> None:
    for p in (0.55, 0.9, 0.95, 0.975, 0.995, 0.9999):
        assert quantile(p, df) == pytest.approx(float(special.stdtrit(df, p)), rel=1e-9)


def test_the_normal_quantile_is_scipys() -> None:
    for p in (1e-9, 0.003, 0.05, 0.5, 0.95, 0.9999):
        assert normal_quantile(p) == pytest.approx(float(special.ndtri(p)), rel=1e-12)


def test_the_moving_median_is_scipys() -> None:
    values = np.random.default_rng(1).normal(size=(3, 17))
    for size in (3, 5):
        theirs = ndimage.median_filter(values, size=(1, size), mode="mirror")
        assert np.array_equal(moving_median(values, size), theirs)
        assert np.array_equal(moving_median(values[0], size), theirs[0])


@pytest.mark.parametrize("digits", [0, 6], ids=["ties", "no ties"])
def test_the_median_slope_and_its_interval_are_scipys(digits: int) -> None:
    rng = np.random.default_rng(2)
    for count in range(4, 40):
        x = np.arange(count) + rng.integers(0, 2, count).astype(np.float64)
        y = np.round(0.3 * x + rng.normal(size=count), digits)
        theirs = stats.theilslopes(y, x, alpha=0.95)
        expected = (theirs.slope, theirs.low_slope, theirs.high_slope)
        assert theil_sen(y, x) == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_an_interval_that_ties_leave_none_is_not_a_number() -> None:
    flat = np.zeros(9)
    with np.errstate(invalid="ignore"):
        assert math.isnan(stats.theilslopes(flat, [0.0] * 8 + [1.0]).low_slope)
    assert math.isnan(theil_sen(flat, np.array([0.0] * 8 + [1.0]))[1])


def test_shares_are_judged_as_scipy_would() -> None:
    rng = random.Random(3)
    for _ in range(200):
        trials, base_trials = rng.randint(2, 40), rng.randint(2, 60)
        right, base_right = rng.randint(0, trials), rng.randint(0, base_trials)
        found = proportion_estimate(right, trials, base_right, base_trials)
        assert not isinstance(found, Unjudgeable)
        table = [[right, trials - right], [base_right, base_trials - base_right]]
        assert found.p_no_change == pytest.approx(stats.fisher_exact(table).pvalue, rel=1e-9)
        theirs = stats.binomtest(right, trials).proportion_ci(0.95, method="wilson")
        assert wilson(right, trials) == pytest.approx(tuple(theirs), abs=1e-12)


def test_the_chance_of_needles_lost_is_scipys() -> None:
    rates = np.linspace(0.0, 0.6, 601)
    for lost, asked, known in ((1, 5, 10), (2, 20, 60), (9, 20, 3), (1, 2000, 9000)):
        theirs = np.max((1.0 - rates) ** known * special.bdtrc(lost - 1, asked, rates))
        assert _lost_by_chance(lost, asked, known) == pytest.approx(float(theirs), rel=1e-9)


def test_the_divergence_and_its_interval_are_scipys() -> None:
    here: Step = ((1, math.log(0.7)), (2, math.log(0.2)))
    there: Step = ((1, math.log(0.5)), (2, math.log(0.4)))
    ps, qs = (np.array([a, b, 0.0, 0.1]) for a, b in ((0.7, 0.2), (0.5, 0.4)))
    expected = special.rel_entr(ps, qs + 1e-300).sum()
    assert divergence(here, there) == pytest.approx(float(expected), rel=1e-9)
    nats = tuple(random.Random(4).expovariate(50.0) for _ in range(24))
    theirs = stats.bootstrap((nats,), np.mean, method="percentile", rng=np.random.default_rng(0))
    mine = Apart(nats, 20, 0.1, None, 24).interval()
    assert mine == pytest.approx(tuple(theirs.confidence_interval), rel=1e-12)


def test_levels_are_the_best_fit_of_any_number() -> None:
    """Against all ways to set the borders."""
    rng = np.random.default_rng(5)
    shortest, penalty, count = 3, 2.0, 15
    inner = range(shortest, count - shortest + 1)
    ways = [(0, *c, count) for n in range(5) for c in itertools.combinations(inner, n)]
    ways = [w for w in ways if all(b - a >= shortest for a, b in itertools.pairwise(w))]
    for _ in range(20):
        y = rng.normal(size=count) + np.repeat(rng.normal(scale=3.0, size=3), 5)
        costs = {way: penalty * len(way) + _squared_error(y, way) for way in ways}
        best = min(costs, key=lambda way: costs[way])
        assert tuple(fit_any_levels(y, penalty=penalty, shortest=shortest)) == best


def _squared_error(y: Floats, borders: Sequence[int]) -> float:
    return sum(float(y[a:b].var() * (b - a)) for a, b in itertools.pairwise(borders))
