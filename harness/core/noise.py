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

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

# Shamos' spread squared overestimates the variance of few normal samples by these factors, and
# the Hodges-Lehmann location has this much more variance than the mean; both by simulation
# (`bench.verdicts --constants` prints them again).
_SPREAD_BIAS = {2: 2.20, 3: 2.19, 4: 1.60, 5: 1.43, 6: 1.385, 7: 1.27, 8: 1.23}
_SPREAD_BIAS_SLOPE = 1.75
_SPREAD_DF_SHARE = 0.78
_LOCATION_EXCESS = 1.07
_NORMAL_PAIR_MEDIAN = math.sqrt(2.0) * float(stats.norm.ppf(0.75))


@dataclass(frozen=True, slots=True)
class NoisePrior:
    """What is held about noise before any sample: shares of the metric, and their weight.

    `run_sd` is the spread between runs of one build on one machine, `sample_sd` the spread of
    repeats within a run; each counts like `run_df` / `sample_df` degrees of freedom.
    """

    run_sd: float = 0.015
    run_df: float = 4.0
    sample_sd: float = 0.02
    sample_df: float = 4.0


PRIOR = NoisePrior()


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
    i, j = np.triu_indices(values.size)
    return float(np.median((values[i] + values[j]) / 2.0))


def spread(values: Floats) -> tuple[float, float]:
    """Shamos' robust variance of one sample, corrected for few samples, and its df.

    The median of all pairwise distances; like `location` it holds up to 29 % outliers, so that
    one in three samples gone astray widens the interval instead of being ignored.
    """
    n = values.size
    i, j = np.triu_indices(n, 1)
    scale = float(np.median(np.abs(values[i] - values[j]))) / _NORMAL_PAIR_MEDIAN
    bias = _SPREAD_BIAS.get(n, 1.0 + _SPREAD_BIAS_SLOPE / n)
    return scale * scale / bias, (1.0 if n == 2 else _SPREAD_DF_SHARE * (n - 1))


def summarise(samples: Sequence[float]) -> RunLocation:
    """One run's samples (any positive unit) as a location and spread of their logarithms."""
    logs = np.log(np.asarray(samples, dtype=np.float64))
    if logs.size == 1:
        return RunLocation(float(logs[0]), 1, None, 0.0)
    variance, df = spread(logs)
    return RunLocation(location(logs), int(logs.size), variance, df)


def moderate(own: float, own_df: float, prior: float, prior_df: float) -> tuple[float, float]:
    """A variance combined with a prior one, weighted by degrees of freedom; and the df of both."""
    df = own_df + prior_df
    return (own_df * own + prior_df * prior) / df, df


def between_runs(
    locations: Sequence[float], within: float, prior: NoisePrior
) -> tuple[float, float]:
    """Moderated variance between runs, net of `within` (a run location's own), and its df.

    Never below a quarter of the prior's: runs that happen to agree do not prove a calm machine.
    """
    df = len(locations) - 1
    observed = float(np.var(locations, ddof=1))
    total, total_df = moderate(observed, df, prior.run_sd**2 + within, prior.run_df)
    return max(total - within, prior.run_sd**2 / 4.0), total_df


def location_share(n: int) -> float:
    """Variance of the location of `n` samples, as a share of the variance of one."""
    return 1.0 / n if n <= 2 else _LOCATION_EXCESS / n


def pooled_spread(runs: Sequence[RunLocation], prior: NoisePrior) -> tuple[float, float]:
    """Moderated variance of one sample within a run, pooled over `runs`, and its df."""
    df = sum(r.df for r in runs)
    own = sum(r.df * r.spread for r in runs if r.spread is not None) / df if df else 0.0
    return moderate(own, df, prior.sample_sd**2, prior.sample_df)
