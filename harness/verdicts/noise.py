"""Noise within runs and between runs: robust location and spread, moderated by a prior.

Everything is on the logarithm of a metric, where a spread is a share: sample = side + run + repeat.
A *run* effect (the state of the machine) is common to all repeats of one run, so repeating within
a run cannot average it away; it is estimated from how far the baseline's runs lie apart. Two or
three runs say little about that, so every spread is moderated: combined with a prior spread that
weighs as much as so many further observations (Smyth 2004, doi:10.2202/1544-6115.1027).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Shamos' spread squared overestimates the variance of few normal samples by these factors, and
# the Hodges-Lehmann location has this much more variance than the mean; both by simulation
# (`bench.verdicts --constants` prints them again).
_SPREAD_BIAS = {2: 2.20, 3: 2.19, 4: 1.60, 5: 1.43, 6: 1.385, 7: 1.27, 8: 1.23}
_SPREAD_BIAS_SLOPE = 1.75
_SPREAD_DF_SHARE = 0.78
_LOCATION_EXCESS = 1.07
_OUTLIER_SDS = 4.0
NORMAL_MEDIAN = NormalDist().inv_cdf(0.75)
NORMAL_PAIR_MEDIAN = math.sqrt(2.0) * NORMAL_MEDIAN


@dataclass(frozen=True, slots=True)
class NoisePrior:
    """What is held about noise before any sample: shares of the metric, and their weight.

    `run_sd` is the spread between runs of one build on one machine, `sample_sd` the spread of
    repeats within a run; each counts like `run_df` / `sample_df` degrees of freedom. A machine
    whose repeats are restless is taken to be so between runs too: at least `run_share` of the
    repeats' spread.
    """

    run_sd: float = 0.015
    run_share: float = 0.5
    run_df: float = 4.0
    sample_sd: float = 0.02
    sample_df: float = 4.0

    def run_variance(self, sample_variance: float) -> float:
        """Prior variance between runs (log²), given that of one repeat within a run."""
        return max(self.run_sd**2, self.run_share**2 * sample_variance)


PRIOR = NoisePrior()
LEVEL_PRIOR = NoisePrior(run_sd=0.003, run_share=0.0, sample_sd=0.003)
"""For memory, a level that is allocated and not timed: it hardly scatters, in a run or between."""


@dataclass(frozen=True, slots=True)
class RunLocation:
    """One run's location on the log scale, its variance from within the run, and how many samples.

    `spread` is the variance of one sample with `df` degrees of freedom (None from one sample).
    """

    location: float
    samples: int
    spread: float | None
    df: float


def location(values: Floats) -> float:
    """Hodges-Lehmann location: the median of all pairwise means; holds up to 29 % outliers."""
    i, j = _pairs(values.size, 0)
    return float(np.median((values[i] + values[j]) / 2.0))


def spread(values: Floats) -> tuple[float, float]:
    """Shamos' robust variance of one sample, corrected for few samples, and its df.

    The median of all pairwise distances; like `location` it holds up to 29 % outliers, so that
    one in three samples gone astray widens the interval instead of being ignored.
    """
    n = values.size
    scale = float(np.median(_distances(values))) / NORMAL_PAIR_MEDIAN
    bias = _SPREAD_BIAS.get(n, 1.0 + _SPREAD_BIAS_SLOPE / n)
    return scale * scale / bias, (1.0 if n == 2 else _SPREAD_DF_SHARE * (n - 1))


def without_outliers(runs: Sequence[Floats], prior: NoisePrior) -> list[Floats]:
    """The runs' samples (logs) less those far from their run's median by the runs' common spread.

    For baselines, whose runs were accepted because they agree and which cannot be measured again:
    at most one in three samples of a run is set aside. The current run keeps all of its samples.
    """
    distances = np.concatenate([_distances(run) for run in runs])
    if distances.size == 0:
        return list(runs)
    scale = float(np.median(distances)) / NORMAL_PAIR_MEDIAN
    own_df = sum(_SPREAD_DF_SHARE * (run.size - 1) for run in runs)
    variance, _ = moderate(scale * scale, own_df, prior.sample_sd**2, prior.sample_df)
    kept = []
    for run in runs:
        far = np.abs(run - np.median(run)) > _OUTLIER_SDS * math.sqrt(variance)
        kept.append(run[~far] if np.count_nonzero(far) <= run.size // 3 else run)
    return kept


def summarise(logs: Floats) -> RunLocation:
    """One run's samples (logarithms) as a location and a spread."""
    if logs.size == 1:
        return RunLocation(float(logs[0]), 1, None, 0.0)
    variance, df = spread(logs)
    return RunLocation(location(logs), int(logs.size), variance, df)


def moderate(own: float, own_df: float, prior: float, prior_df: float) -> tuple[float, float]:
    """A variance combined with a prior one, weighted by degrees of freedom; and the df of both."""
    df = own_df + prior_df
    return (own_df * own + prior_df * prior) / df, df


def between_runs(
    locations: Sequence[float], within: float, run_variance: float, prior: NoisePrior
) -> tuple[float, float]:
    """Moderated variance between runs, net of `within` (a run location's own), and its df.

    `run_variance` is the prior's; never below a quarter of it: runs that happen to agree do not
    prove a calm machine.
    """
    df = len(locations) - 1
    observed = float(np.var(locations, ddof=1)) if df else 0.0
    total, total_df = moderate(observed, df, run_variance + within, prior.run_df)
    return max(total - within, run_variance / 4.0), total_df


def location_share(n: int) -> float:
    """Variance of the location of `n` samples, as a share of the variance of one."""
    return 1.0 / n if n <= 2 else _LOCATION_EXCESS / n


def pooled_spread(runs: Sequence[RunLocation], prior: NoisePrior) -> tuple[float, float]:
    """Moderated variance of one sample within a run, pooled over `runs`, and its df."""
    df = sum(r.df for r in runs)
    own = sum(r.df * r.spread for r in runs if r.spread is not None) / df if df else 0.0
    return moderate(own, df, prior.sample_sd**2, prior.sample_df)


def moving_median(values: Floats, size: int) -> Floats:
    """The median of each value's neighbourhood of `size`, an odd number, along the last axis.

    Behind an end the series goes on as its mirror image; an end is no neighbour of itself.
    """
    half = size // 2
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(half, half)], mode="reflect")
    return np.asarray(np.median(sliding_window_view(padded, size, axis=-1), axis=-1))


def theil_sen(y: Floats, x: Floats, confidence: float = 0.95) -> tuple[float, float, float]:
    """The median of the slopes of all pairs, and its interval; NaN where ties leave none.

    Sen 1968, doi:10.1080/01621459.1968.10480934, equations 2.6 and 2.7.
    """
    i, j = _pairs(y.size, 1)
    apart = x[j] != x[i]
    slopes = np.sort((y[j] - y[i])[apart] / (x[j] - x[i])[apart])
    slope, count, n = float(np.median(slopes)), slopes.size, y.size
    ties = sum(_ties(values) for values in (x, y))
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18.0
    if variance < 0.0:
        return slope, math.nan, math.nan
    reach = NormalDist().inv_cdf(0.5 + confidence / 2.0) * math.sqrt(variance)
    low = max(round((count - reach) / 2.0) - 1, 0)
    high = min(round((count + reach) / 2.0), count - 1)
    return slope, float(slopes[low]), float(slopes[high])


def _ties(values: Floats) -> int:
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1) * (2 * counts + 5)).sum())


@lru_cache(maxsize=64)
def _pairs(n: int, offset: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Every pair of `n` samples, once; kept, since a run asks for the same few again and again."""
    i, j = np.triu_indices(n, offset)
    return i, j


def _distances(values: Floats) -> Floats:
    i, j = _pairs(values.size, 1)
    return np.abs(values[i] - values[j])
