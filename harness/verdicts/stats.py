"""The statistics of a verdict: an interval to the baseline's runs, and the rule on it.

The interval of a ratio counts the spread of both sides' repeats and of whole runs (`noise`);
degrees of freedom after Welch and Satterthwaite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
from harness.verdicts.student import quantile, upper_tail

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

    `baseline` is the baseline's location in the samples' unit; `measured` is the ratio times it.
    `n_current` and `n_baseline` count samples (chunks for a curve), `baseline_runs` the runs.
    `se_log` and `df` are the standard error of the log ratio and its degrees of freedom. `note` is
    a caveat to show.
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
    baseline: float

    @property
    def measured(self) -> float:
        """The current location, in the samples' unit."""
        return self.ratio * self.baseline

    @property
    def change(self) -> float:
        """The change as a share: -0.2 for 20 % less than the baseline."""
        return self.ratio - 1.0

    @property
    def p_no_change(self) -> float:
        """Two-sided probability of a ratio this far from 1 when nothing changed."""
        return 2.0 * upper_tail(abs(math.log(self.ratio)) / self.se_log, self.df)


@dataclass(frozen=True, slots=True)
class Unjudgeable:
    """No interval can be had: why, and what would be needed."""

    reason: str
    needed: str


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
        within=(now_spread * location_share(now.samples), now_df),
        base_within=(base_within, base_df),
        run_variance=prior.run_variance((base_spread + now_spread) / 2.0),
        counts=(now.samples, sum(r.samples for r in base)),
        confidence=confidence,
        prior=prior,
    )


def mean_estimate(
    current: Sequence[float],
    baseline_runs: Sequence[Sequence[float]],
    *,
    direction: Direction,
    confidence: float = CONFIDENCE,
    prior: NoisePrior = PRIOR,
) -> Estimate | Unjudgeable:
    """The same of the mean *time*, from which no sample is set aside: all that was spent counts.

    A rate's time is its inverse (`direction` "higher"), so its mean is the harmonic one. The spread
    is the plain one, never below what is held of calm machines.
    """
    runs = [run for run in baseline_runs if len(run) > 0]
    refusal = _refusal(current, runs)
    if refusal is not None:
        return refusal
    sign = -1.0 if direction == "higher" else 1.0
    means, spreads = [], []
    for run in (current, *runs):
        times = np.asarray(run, dtype=np.float64) ** sign
        mean = float(times.mean())
        means.append(sign * math.log(mean))
        spreads.append(float(np.var(times / mean, ddof=1)) if times.size > 1 else 0.0)
    counts = [len(run) for run in (current, *runs)]
    df = float(sum(n - 1 for n in counts[1:]))
    pooled = sum((n - 1) * v for n, v in zip(counts[1:], spreads[1:], strict=True)) / max(df, 1.0)
    base, base_df = moderate(pooled, df, prior.sample_sd**2, prior.sample_df)
    base = max(base, pooled)
    own, own_df = moderate(spreads[0], counts[0] - 1.0, base, min(base_df, prior.sample_df))
    if spreads[0] > own:  # a few that take very long are not to be drawn towards calm ones
        own, own_df = spreads[0], counts[0] - 1.0
    return combine(
        means[0],
        means[1:],
        within=(own / counts[0], own_df),
        base_within=(base * float(np.mean([1.0 / n for n in counts[1:]])), base_df),
        run_variance=prior.run_variance(min(base, own)),
        counts=(counts[0], sum(counts[1:])),
        confidence=confidence,
        prior=prior,
    )


def same_run_ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    apart: bool = False,
) -> Estimate | Unjudgeable:
    """Interval of a ratio of two groups of samples of *one* run.

    Groups that lie `apart` in time are two looks at a machine that has states: what looks differ
    by counts like the spread between runs. Otherwise no spread beside the samples' own counts.
    """
    groups = (numerator, denominator)
    if any(not (math.isfinite(v) and v > 0.0) for side in groups for v in side):
        return Unjudgeable("a sample is zero, negative or not a number", "samples above zero")
    if min(len(g) for g in groups) < MIN_SAMPLES:
        return Unjudgeable(
            f"groups of {len(numerator)} and {len(denominator)} sample(s)",
            f"at least {MIN_SAMPLES} samples in each",
        )
    upper, lower = summarise(_logs(numerator)), summarise(_logs(denominator))
    spread, df = pooled_spread([upper, lower], PRIOR)
    variance = spread * (location_share(upper.samples) + location_share(lower.samples))
    if apart:
        looks = 2.0 * PRIOR.run_variance(spread)
        df = (variance + looks) ** 2 / (variance**2 / df + looks**2 / PRIOR.run_df)
        variance += looks
    return log_estimate(
        upper.location - lower.location,
        variance,
        df,
        base_log=lower.location,
        counts=(upper.samples, lower.samples),
        baseline_runs=1,
        confidence=confidence,
    )


def log_estimate(
    log_ratio: float,
    variance: float,
    df: float,
    *,
    base_log: float,
    counts: tuple[int, int],
    baseline_runs: int,
    confidence: float,
    note: str | None = None,
) -> Estimate:
    """The ratio with its interval, from its logarithm, that one's variance and Student's `df`.

    `counts` are the samples of this run and of the baseline; the rest is as in `Estimate`.
    """
    se = math.sqrt(variance)
    reach = quantile(0.5 + confidence / 2.0, df) * se
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
        baseline=math.exp(base_log),
    )


def combine(
    current: float,
    baseline: Sequence[float],
    *,
    within: tuple[float, float],
    base_within: tuple[float, float],
    run_variance: float,
    counts: tuple[int, int],
    confidence: float,
    prior: NoisePrior = PRIOR,
) -> Estimate:
    """Interval of exp(current - mean of baseline) from log locations of runs.

    `within` is the variance of the current location and `base_within` that of one baseline run's
    (both log², from within runs), each with its df; the variance between runs is moderated from the
    baseline's towards `run_variance`.
    """
    runs = len(baseline)
    between, between_df = between_runs(baseline, base_within[0], run_variance, prior)
    terms = (
        within,
        (base_within[0] / runs, base_within[1]),
        (between * (1.0 + 1.0 / runs), between_df),
    )
    variance = sum(v for v, _ in terms)
    df = variance**2 / sum(v**2 / d for v, d in terms)
    base = float(np.mean(baseline))
    return log_estimate(
        current - base,
        variance,
        df,
        base_log=base,
        counts=counts,
        baseline_runs=runs,
        confidence=confidence,
        note=_thin_baseline(runs, prior),
    )


def decide(
    estimate: Estimate, *, band: float, direction: Direction, min_effect: float = 0.0
) -> Decision:
    """The three-way rule: interval wholly beyond the band, wholly within it, or undecided.

    `band` is a share (0.10 reaches from 0.9 to 1.1 of the baseline), at least `min_effect` in the
    samples' unit; `direction` says which way is better.
    """
    band = _width(estimate, band, min_effect)
    below, above = estimate.high < 1.0 - band, estimate.low > 1.0 + band
    worse, better = (below, above) if direction == "higher" else (above, below)
    if worse:
        return "REGRESSED"
    if better:
        return "IMPROVED"
    if estimate.low >= 1.0 - band and estimate.high <= 1.0 + band:
        return "PASS"
    return "UNDECIDED"


def no_worse(
    estimate: Estimate, *, band: float, direction: Direction, min_effect: float = 0.0
) -> bool:
    """Whether the whole interval lies short of the band's worse edge: a test of non-inferiority."""
    band = _width(estimate, band, min_effect)
    return estimate.low >= 1.0 - band if direction == "higher" else estimate.high <= 1.0 + band


def _width(estimate: Estimate, band: float, min_effect: float) -> float:
    """The band as a share of the baseline, at least `min_effect` of the samples' unit."""
    return max(band, min_effect / estimate.baseline)


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
