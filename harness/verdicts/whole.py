"""What a filter sets aside never hides a change of the whole: one rule for repeats and batches.

A robust location looks past single slow samples, which is right for what passed by and wrong for a
server that stalls time and again. So beside it stands the mean time, from which nothing is set
aside; where the two part, the whole decides, or nothing does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from harness.quantities import percent
from harness.records.metrics import Direction
from harness.verdicts.noise import PRIOR, NoisePrior
from harness.verdicts.stats import (
    Decision,
    Estimate,
    Unjudgeable,
    decide,
    mean_estimate,
    ratio_estimate,
)

LATE = 1.25
"""A sample that takes this many times the typical one's time is a straggler."""
ASIDE_SHARE = 0.05
"""More samples set aside than this are no accident, however little they change."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """`count` of `of` samples took about `times` as long as is typical; every `every`th, if so."""

    count: int
    of: int
    times: float
    every: int | None

    def sentence(self, noun: str) -> str:
        """Who they are, as "11 of 54 batches took about 3.0 times as long, every 5th"."""
        said = f"{self.count} of {self.of} {noun} took about {self.times:.1f} times as long"
        return f"{said}, every {_ordinal(self.every)}" if self.every else said


def stragglers(relative: Sequence[float]) -> Stragglers | None:
    """The late ones among times relative to the typical one's, in order; `None` without any."""
    late = [i for i, time in enumerate(relative) if time > LATE]
    if not late:
        return None
    gaps = [b - a for a, b in pairwise(late)]
    even = len(gaps) >= 2 and max(gaps) - min(gaps) <= 1
    times = median([relative[i] for i in late])
    return Stragglers(len(late), len(relative), times, round(median(gaps)) if even else None)


def stands(decided: Decision, cleaned: Estimate, whole: Estimate, *, band: float) -> bool:
    """Whether what was set aside changes nothing: by less than half a band, and no PASS by it."""
    close = abs(math.log(cleaned.ratio / whole.ratio)) < math.log1p(band / 2.0)
    return close and not (decided == "PASS" and abs(whole.change) > band)


def settle(
    decided: Decision, cleaned: Estimate, whole: Estimate, *, band: float, direction: Direction
) -> tuple[Decision, Estimate]:
    """The decision where cleaned and whole part, and the estimate it rests on.

    What the whole shows stands, and so does a change of the cleaned that the whole shares; a PASS
    of only one of them decides nothing.
    """
    by_whole = decide(whole, band=band, direction=direction)
    if by_whole in ("REGRESSED", "IMPROVED"):
        opposite = decided in ("REGRESSED", "IMPROVED") and decided != by_whole
        return ("UNDECIDED" if opposite else by_whole), whole
    if decided in ("REGRESSED", "IMPROVED"):
        beyond = abs(whole.change) > band and (whole.ratio < 1.0) == (cleaned.ratio < 1.0)
        return (decided, cleaned) if beyond else ("UNDECIDED", whole)
    return ("PASS" if decided == by_whole == "PASS" else "UNDECIDED"), whole


def compare_samples(
    current: Sequence[float],
    baseline_runs: Sequence[Sequence[float]],
    *,
    band: float,
    direction: Direction,
    min_effect: float = 0.0,
    prior: NoisePrior = PRIOR,
) -> tuple[Decision, Estimate | Unjudgeable, str | None]:
    """A metric's repeats against those of its accepted runs: decision, estimate, and a remark."""
    cleaned = ratio_estimate(current, baseline_runs, prior=prior)
    if isinstance(cleaned, Unjudgeable):
        return "UNDECIDED", cleaned, None
    band = max(band, min_effect / cleaned.baseline)
    decided = decide(cleaned, band=band, direction=direction)
    whole = mean_estimate(current, baseline_runs, direction=direction, prior=prior)
    assert not isinstance(whole, Unjudgeable)
    if stands(decided, cleaned, whole, band=band):
        return decided, cleaned, None
    decided, estimate = settle(decided, cleaned, whole, band=band, direction=direction)
    times = [1.0 / v for v in current] if direction == "higher" else list(current)
    late = stragglers([t / median(times) for t in times])
    said = f"{late.sentence('repeats')}; " if late is not None else ""
    return decided, estimate, f"{said}all repeats counted {percent(whole.change)}"


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{endings.get(number, 'th')}" if number < 10 else f"{number}th"
