"""Shares of right answers compared: Newcombe's interval of the difference, and the rule on it."""

import math
from dataclasses import dataclass

from scipy import stats

from harness.verdicts.stats import MIN_SAMPLES, Decision, Unjudgeable

CONFIDENCE = 0.95
"""Shares of right answers have no band around them, so their interval alone keeps noise away."""


@dataclass(frozen=True, slots=True)
class ProportionEstimate:
    """Current minus baseline share of right answers, with its two-sided interval.

    `p_no_change` is Fisher's exact two-sided probability.
    """

    difference: float
    low: float
    high: float
    confidence: float
    successes: int
    trials: int
    base_successes: int
    base_trials: int
    p_no_change: float

    @property
    def share(self) -> float:
        """Share of right answers in this run."""
        return self.successes / self.trials

    @property
    def base_share(self) -> float:
        """Share of right answers in the baseline's runs together."""
        return self.base_successes / self.base_trials


def proportion_estimate(
    successes: int,
    trials: int,
    base_successes: int,
    base_trials: int,
    *,
    confidence: float = CONFIDENCE,
) -> ProportionEstimate | Unjudgeable:
    """Newcombe's hybrid score interval (1998, method 10) of the difference of two shares.

    Built on Wilson's interval of each share. Raises `ValueError` for counts that cannot be.
    """
    if not (0 <= successes <= trials and 0 <= base_successes <= base_trials):
        raise ValueError(
            f"{successes} of {trials} against {base_successes} of {base_trials} right answers: "
            "a count is negative or larger than its total"
        )
    if min(trials, base_trials) < MIN_SAMPLES:
        return Unjudgeable(
            f"{trials} answer(s) against {base_trials} in the baseline",
            f"at least {MIN_SAMPLES} answers on each side",
        )
    now, base = successes / trials, base_successes / base_trials
    now_low, now_high = _wilson(successes, trials, confidence)
    base_low, base_high = _wilson(base_successes, base_trials, confidence)
    table = [
        [successes, trials - successes],
        [base_successes, base_trials - base_successes],
    ]
    return ProportionEstimate(
        difference=now - base,
        low=now - base - math.hypot(now - now_low, base_high - base),
        high=now - base + math.hypot(now_high - now, base - base_low),
        confidence=confidence,
        successes=successes,
        trials=trials,
        base_successes=base_successes,
        base_trials=base_trials,
        p_no_change=float(stats.fisher_exact(table).pvalue),
    )


def decide_proportion(estimate: ProportionEstimate) -> Decision:
    """REGRESSED or IMPROVED when the interval excludes zero; PASS when no smaller a share is right.

    A smaller share that the interval does not tell from the baseline's is UNDECIDED: ask again.
    """
    if estimate.high < 0.0:
        return "REGRESSED"
    if estimate.low > 0.0:
        return "IMPROVED"
    return "PASS" if estimate.difference >= 0.0 else "UNDECIDED"


def _wilson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    interval = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)
