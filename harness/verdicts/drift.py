"""Drift: did the machine itself move while the run was measured?

The control is the same small request at depth 0 before and after the climb (A-B-A). It has no
reason to change; if it does, what was measured between is a mixture of two machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.records.metrics import Direction
from harness.verdicts.noise import PRIOR, NoisePrior
from harness.verdicts.stats import Unjudgeable, same_run_ratio

State = Literal["steady", "drifted", "unclear"]

DRIFT_CONFIDENCE = 0.99
"""Stricter than a cell's: naming drift costs every cell of the run its verdict."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The control's change as a share (+0.07: 7 % more at the end), with interval.

    `over` names what the controls enclose. `limit` is half the band. `steady`: the interval lies
    within ±limit. `drifted`: the change is beyond the limit and told from zero. `unclear`: neither;
    nothing is claimed from it.
    """

    share: float
    low: float
    high: float
    confidence: float
    limit: float
    samples: int
    state: State
    over: str = "the run"

    @property
    def sentence(self) -> str:
        """What the controls showed, in one sentence."""
        seen = (
            f"the control at depth 0 changed by {self.share:+.1%} over {self.over} "
            f"({self.low:+.1%} to {self.high:+.1%}, {self.samples} samples)"
        )
        if self.state == "drifted":
            return f"{seen}: more than half the band (±{self.limit:.1%}); measure again when calm"
        if self.state == "steady":
            return f"{seen}: within half the band (±{self.limit:.1%})"
        return f"{seen}: too wide to call steady or drifted against ±{self.limit:.1%}"


def drift_between(
    before: Sequence[float],
    after: Sequence[float],
    *,
    band: float,
    confidence: float = DRIFT_CONFIDENCE,
    prior: NoisePrior = PRIOR,
) -> Drift | Unjudgeable:
    """Drift from a control measured several times before and after the climb (one unit, > 0)."""
    ratio = same_run_ratio(after, before, confidence=confidence, prior=prior)
    if isinstance(ratio, Unjudgeable):
        return Unjudgeable(f"controls: {ratio.reason}", ratio.needed)
    return _drift(ratio.ratio, ratio.low, ratio.high, confidence, band, len(before) + len(after))


def could_explain(
    drift: Drift, low: float, high: float, *, band: float, direction: Direction
) -> bool:
    """Whether a ratio from `low` to `high` lies beyond the band only by what the controls moved.

    A cell is measured somewhere between the controls, so half of their change is taken off it,
    even where their scatter leaves open whether they changed. A change of theirs within `limit`
    explains nothing.
    """
    if abs(drift.share) <= drift.limit:
        return False
    faster = 1.0 + drift.share / 2.0
    expected = faster if direction == "higher" else 1.0 / faster
    below, above = high < 1.0 - band, low > 1.0 + band
    return (below and high / expected >= 1.0 - band) or (above and low / expected <= 1.0 + band)


def _drift(
    ratio: float, low: float, high: float, confidence: float, band: float, samples: int
) -> Drift:
    limit = band / 2.0
    state: State = "unclear"
    if abs(ratio - 1.0) > limit and not low <= 1.0 <= high:
        state = "drifted"
    elif low >= 1.0 - limit and high <= 1.0 + limit:
        state = "steady"
    return Drift(ratio - 1.0, low - 1.0, high - 1.0, confidence, limit, samples, state)
