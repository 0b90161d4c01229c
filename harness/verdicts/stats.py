"""The statistics of a verdict: an interval to the baseline's runs, and the rule on it.

The interval of a ratio counts the spread of both sides' repeats and of whole runs (`core.noise`);
degrees of freedom after Welch and Satterthwaite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from harness.records.metrics import Direction
from harness.verdicts.noise import (
    PRIOR,
    Floats,
    NoisePrior,
    between_runs,
    location_share,
    moderate,
    pooled_spread,
    summarise,
    without_outliers,
)

Decision = Literal["PASS", "IMPROVED", "REGRESSED", "UNDECIDED"]

CONFIDENCE = 0.90
"""Two one-sided tests at 5 %, one for each edge of the band (Schuirmann 1987,
doi:10.1007/BF01068419)."""
CONFIRMED_SAMPLES = 6
"""Of three samples two may have gone astray together, of six hardly four."""
RUN_LEVEL = 0.01
MIN_SAMPLES = 2
MIN_BASELINE_RUNS = 2


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
    now = summarise(_logs(current))
    base = [summarise(run) for run in without_outliers([_logs(run) for run in runs], prior)]
    base_spread, base_df = pooled_spread(base, prior)
    now_spread, now_df = moderate(
        now.spread or 0.0, now.df, base_spread, min(base_df, prior.sample_df)
    )
    base_within = base_spread * float(np.mean([location_share(r.samples) for r in base]))
    return combine(
        now.location,
        [r.location for r in base],
        sample_variance=now_spread * location_share(now.samples) * now.samples,
        sample_df=now_df,
        base_within=base_within,
        base_df=base_df,
        run_variance=prior.run_variance((base_spread + now_spread) / 2.0),
        counts=(now.samples, sum(r.samples for r in base)),
        confidence=confidence,
        prior=prior,
    )


def same_run_ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    prior: NoisePrior = PRIOR,
) -> Estimate | Unjudgeable:
    """Interval of a ratio of two groups of samples of *one* run: no spread between runs counts."""
    groups = (numerator, denominator)
    if any(not (math.isfinite(v) and v > 0.0) for side in groups for v in side):
        return Unjudgeable("a sample is zero, negative or not a number", "samples above zero")
    if min(len(g) for g in groups) < MIN_SAMPLES:
        return Unjudgeable(
            f"groups of {len(numerator)} and {len(denominator)} sample(s)",
            f"at least {MIN_SAMPLES} samples in each",
        )
    upper, lower = summarise(_logs(numerator)), summarise(_logs(denominator))
    variance, df = pooled_spread([upper, lower], prior)
    fixed = variance * location_share(lower.samples)
    log_ratio = upper.location - lower.location
    return log_estimate(
        log_ratio,
        variance * location_share(upper.samples) + fixed,
        df,
        counts=(upper.samples, lower.samples),
        baseline_runs=1,
        sample_variance=variance * location_share(upper.samples) * upper.samples,
        fixed_variance=fixed,
        confidence=confidence,
    )


def log_estimate(
    log_ratio: float,
    variance: float,
    df: float,
    *,
    counts: tuple[int, int],
    baseline_runs: int,
    sample_variance: float,
    fixed_variance: float,
    confidence: float,
    note: str | None = None,
) -> Estimate:
    """The ratio with its interval, from its logarithm, that one's variance and Student's `df`.

    `counts` are the samples of this run and of the baseline; the rest is as in `Estimate`.
    """
    se = math.sqrt(variance)
    reach = float(special.stdtrit(df, 0.5 + confidence / 2.0)) * se
    return Estimate(
        ratio=math.exp(log_ratio),
        low=math.exp(log_ratio - reach),
        high=math.exp(log_ratio + reach),
        confidence=confidence,
        n_current=counts[0],
        n_baseline=counts[1],
        note=note,
        baseline_runs=baseline_runs,
        se_log=se,
        df=df,
        sample_variance=sample_variance,
        fixed_variance=fixed_variance,
    )


def combine(
    current: float,
    baseline: Sequence[float],
    *,
    sample_variance: float,
    sample_df: float,
    base_within: float,
    base_df: float,
    run_variance: float,
    counts: tuple[int, int],
    confidence: float,
    prior: NoisePrior = PRIOR,
) -> Estimate:
    """Interval of exp(current - mean of baseline) from log locations of runs.

    `sample_variance` belongs to one current sample, `base_within` to one baseline run's location
    (both log², from within runs); the variance between runs is moderated from the baseline's
    towards `run_variance`.
    """
    runs = len(baseline)
    between, between_df = between_runs(baseline, base_within, run_variance, prior)
    terms = (
        (sample_variance / counts[0], sample_df),
        (base_within / runs, base_df),
        (between * (1.0 + 1.0 / runs), between_df),
    )
    variance = sum(v for v, _ in terms)
    df = variance**2 / sum(v**2 / d for v, d in terms)
    return log_estimate(
        current - float(np.mean(baseline)),
        variance,
        df,
        counts=counts,
        baseline_runs=runs,
        sample_variance=sample_variance,
        fixed_variance=variance - sample_variance / counts[0],
        confidence=confidence,
        note=_thin_baseline(runs, prior),
    )


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


def open_question(decision: Decision, estimate: Estimate) -> bool:
    """Whether more samples are worth taking: undecided, or a change that rests on a few."""
    changed = decision in ("REGRESSED", "IMPROVED")
    return decision == "UNDECIDED" or (changed and estimate.n_current < CONFIRMED_SAMPLES)


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


def _logs(samples: Sequence[float]) -> Floats:
    return np.log(np.asarray(samples, dtype=np.float64))


def _thin_baseline(runs: int, prior: NoisePrior) -> str | None:
    if runs - 1 >= prior.run_df:
        return None
    return (
        f"with {runs} baseline runs the spread between runs is mostly assumed "
        f"({prior.run_sd:.1%}), not measured; accept more runs for a surer verdict"
    )


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
