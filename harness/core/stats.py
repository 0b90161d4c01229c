"""The statistics of a verdict: the interval of a ratio to baseline runs, and the rule on it.

Model, on the logarithm of a metric: sample = side + run + repeat. A *run* effect (the state of the
machine) is common to all repeats of one run, so repeating within a run cannot average it away; it
is estimated from how far the baseline's runs lie apart. Two or three runs say little about that, so
both spreads are moderated: combined with a prior spread that weighs as much as `df` further
observations (Smyth 2004, doi:10.2202/1544-6115.1027). Degrees of freedom: Welch-Satterthwaite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from harness.core.metrics import Direction

Decision = Literal["PASS", "IMPROVED", "REGRESSED", "UNDECIDED"]
Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RUN_LEVEL = 0.01
MIN_SAMPLES = 2
MIN_BASELINE_RUNS = 2

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
class Estimate:
    """Ratio of current to baseline location with its two-sided interval.

    `n_current` and `n_baseline` count samples (chunks for a curve), `baseline_runs` the runs.
    `se_log` and `df` are the standard error of the log ratio and its degrees of freedom;
    `sample_variance` is what one current sample contributes (log², divided by their number) and
    `fixed_variance` what no further repeat of this run can shrink. `note` is a caveat to show.
    """

    ratio: float
    low: float
    high: float
    confidence: float
    n_current: int
    n_baseline: int
    note: str | None
    baseline_runs: int
    se_log: float
    df: float
    sample_variance: float
    fixed_variance: float

    @property
    def change(self) -> float:
        """The change as a share: -0.2 for 20 % less than the baseline."""
        return self.ratio - 1.0

    @property
    def p_no_change(self) -> float:
        """Two-sided probability of a ratio this far from 1 when nothing changed."""
        return float(2.0 * special.stdtr(self.df, -abs(math.log(self.ratio)) / self.se_log))


@dataclass(frozen=True, slots=True)
class Unjudgeable:
    """No interval can be had: why, and what would be needed."""

    reason: str
    needed: str


@dataclass(frozen=True, slots=True)
class Needed:
    """How many repeats in all would likely decide; `None` when repeats of this run cannot."""

    repeats: int | None
    sentence: str


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


def ratio_estimate(
    current: Sequence[float],
    baseline_runs: Sequence[Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    prior: NoisePrior = PRIOR,
) -> Estimate | Unjudgeable:
    """Interval of current / baseline from one run's samples and those of two or more runs.

    All values are in one unit, all positive. Both sides' spread and the spread between runs are
    counted. Returns `Unjudgeable` from a single current sample or fewer than two baseline runs.
    """
    runs = [run for run in baseline_runs if len(run) > 0]
    refusal = _refusal(current, runs)
    if refusal is not None:
        return refusal
    now = summarise(current)
    base = [summarise(run) for run in runs]
    base_spread, base_df = _pooled_spread(base, prior)
    now_spread, now_df = moderate(
        now.spread or 0.0, now.df, base_spread, min(base_df, prior.sample_df)
    )
    base_within = base_spread * float(np.mean([_location_share(r.samples) for r in base]))
    return combine(
        now.location,
        [r.location for r in base],
        sample_variance=now_spread * _location_share(now.samples) * now.samples,
        sample_df=now_df,
        base_within=base_within,
        base_df=base_df,
        counts=(now.samples, sum(r.samples for r in base)),
        confidence=confidence,
        prior=prior,
    )


def combine(
    current: float,
    baseline: Sequence[float],
    *,
    sample_variance: float,
    sample_df: float,
    base_within: float,
    base_df: float,
    counts: tuple[int, int],
    confidence: float,
    prior: NoisePrior = PRIOR,
    note: str | None = None,
) -> Estimate:
    """Interval of exp(current - mean of baseline) from log locations of runs.

    `sample_variance` belongs to one current sample, `base_within` to one baseline run's location
    (both log², from within runs); the variance between runs is moderated from the baseline's.
    """
    runs = len(baseline)
    n_current, n_baseline = counts
    between, between_df = between_runs(baseline, base_within, prior)
    terms = (
        (sample_variance / n_current, sample_df),
        (base_within / runs, base_df),
        (between * (1.0 + 1.0 / runs), between_df),
    )
    variance = sum(v for v, _ in terms)
    df = variance**2 / sum(v**2 / d for v, d in terms)
    se = math.sqrt(variance)
    log_ratio = current - float(np.mean(baseline))
    reach = float(special.stdtrit(df, 0.5 + confidence / 2.0)) * se
    return Estimate(
        ratio=math.exp(log_ratio),
        low=math.exp(log_ratio - reach),
        high=math.exp(log_ratio + reach),
        confidence=confidence,
        n_current=n_current,
        n_baseline=n_baseline,
        note=note,
        baseline_runs=runs,
        se_log=se,
        df=df,
        sample_variance=sample_variance,
        fixed_variance=variance - sample_variance / n_current,
    )


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


def decide(estimate: Estimate, *, band: float, direction: Direction) -> Decision:
    """The three-way rule: interval wholly beyond the band, wholly within it, or undecided.

    `band` is a share (0.10 reaches from 0.9 to 1.1 of the baseline); `direction` says which way
    is better.
    """
    below, above = estimate.high < 1.0 - band, estimate.low > 1.0 + band
    worse, better = (below, above) if direction == "higher" else (above, below)
    if worse:
        return "REGRESSED"
    if better:
        return "IMPROVED"
    if estimate.low >= 1.0 - band and estimate.high <= 1.0 + band:
        return "PASS"
    return "UNDECIDED"


def significant_in_run(p_values: Sequence[float], *, level: float = RUN_LEVEL) -> tuple[bool, ...]:
    """Which of a run's cells differ from "no change" when all are judged at once (Holm 1979).

    Holds the chance that *any* unchanged cell of the run is named below `level`, however the
    cells depend on each other. A cell that is not named stays undecided.
    """
    named = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        if p_values[index] > level / (len(p_values) - rank):
            break
        named[index] = True
    return tuple(named)


def needed_repeats(estimate: Estimate, *, band: float, limit: int = 12) -> Needed:
    """How many repeats of this run in all would likely decide, the ratio staying where it is."""
    log_ratio, lower, upper = math.log(estimate.ratio), math.log1p(-band), math.log1p(band)
    gap = min(abs(log_ratio - lower), abs(log_ratio - upper))
    reach = float(special.stdtrit(estimate.df, 0.5 + estimate.confidence / 2.0))
    room = (gap / reach) ** 2 - estimate.fixed_variance
    if room <= 0.0:
        return Needed(
            None,
            f"the change ({estimate.change:+.1%}) lies too near the edge of the ±{band:.0%} band "
            f"for {estimate.baseline_runs} baseline runs: more repeats cannot decide it at "
            f"{estimate.confidence:.0%}, more accepted baseline runs can",
        )
    repeats = max(math.ceil(estimate.sample_variance / room), estimate.n_current + 1)
    if repeats > limit:
        return Needed(None, f"about {repeats} repeats would be needed, more than {limit}")
    return Needed(repeats, f"about {repeats} repeats in all would decide at this noise")


def _refusal(current: Sequence[float], runs: Sequence[Sequence[float]]) -> Unjudgeable | None:
    if any(not (math.isfinite(v) and v > 0.0) for side in (current, *runs) for v in side):
        return Unjudgeable("a sample is zero, negative or not a number", "samples above zero")
    if len(current) < MIN_SAMPLES:
        return Unjudgeable(
            f"{len(current)} sample(s) in this run: one sample has no spread",
            f"at least {MIN_SAMPLES} samples, better 3 or more",
        )
    if len(runs) < MIN_BASELINE_RUNS:
        return Unjudgeable(
            f"{len(runs)} baseline run(s): the spread between runs is unknown",
            f"at least {MIN_BASELINE_RUNS} accepted runs (`harness baseline update`)",
        )
    return None


def _location_share(n: int) -> float:
    """Variance of the location of `n` samples, as a share of the variance of one."""
    return 1.0 / n if n <= 2 else _LOCATION_EXCESS / n


def _pooled_spread(runs: Sequence[RunLocation], prior: NoisePrior) -> tuple[float, float]:
    df = sum(r.df for r in runs)
    own = sum(r.df * r.spread for r in runs if r.spread is not None) / df if df else 0.0
    return moderate(own, df, prior.sample_sd**2, prior.sample_df)
