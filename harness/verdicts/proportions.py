"""Shares of right answers compared: Newcombe's interval of the difference, and the rules on them.

Answers of their own (a heatmap's, a fuzz's) are counted one by one. On the ladder the same needles
are asked for in several orders, and at temperature 0 the answers are mostly alike: there the unit
is the needle, and the tests are exact for answers that are alike and for such as are not.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.verdicts.stats import MIN_SAMPLES, RUN_LEVEL, Decision, Unjudgeable, significant_in_run
from harness.verdicts.student import normal_quantile

CONFIDENCE = 0.95
"""Shares of right answers have no band around them, so their interval alone keeps noise away."""


ONE_RUNG_SHARE = 0.7
"""How much of the level goes to needles lost at one rung; the rest to those lost at any."""
_ERROR_RATES = np.linspace(0.001, 0.6, 600)

Needles = Sequence[tuple[int, int]]
"""(right, asked) of each needle."""


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
    now_low, now_high = wilson(successes, trials, confidence)
    base_low, base_high = wilson(base_successes, base_trials, confidence)
    return ProportionEstimate(
        difference=now - base,
        low=now - base - math.hypot(now - now_low, base_high - base),
        high=now - base + math.hypot(now_high - now, base - base_low),
        confidence=confidence,
        successes=successes,
        trials=trials,
        base_successes=base_successes,
        base_trials=base_trials,
        p_no_change=_fisher(successes, trials, base_successes, base_trials),
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


@dataclass(frozen=True, slots=True)
class NeedlesDecision:
    """What a rung's needles show, and how likely as much is when nothing changed."""

    decision: Decision
    p_no_change: float


def decide_needles(rungs: Sequence[tuple[Needles, Needles]]) -> tuple[NeedlesDecision, ...]:
    """Judge all rungs of a run at once, each by its needles and those of the accepted runs.

    REGRESSED or IMPROVED are named so that of unchanged runs at most one in a hundred has a rung
    called worse, whatever share of needles the model finds. A share that is no smaller passes; a
    smaller one that chance may have made is UNDECIDED.

    Where every needle of every accepted run was right in every order, what counts is how many are
    lost now: as likely as the error rate makes it under which such a baseline and such a loss
    come together most easily. Else each rung is tested, and each with all deeper ones, by Fisher's
    exact test carried over to needles that are right in some orders (all ways to deal the needles
    out to the two sides), under Holm's correction.
    """
    sides = [(_shares(now, base), _shares(base, now)) for now, base in rungs]
    if all(right == asked for _, base in rungs for right, asked in base):
        return _against_exact(sides)
    rises = [sum(now) * len(base) - sum(base) * len(now) for now, base in sides]
    chances = _chances(sides)
    fell = _named([few for few, _ in chances], [rise < 0 for rise in rises])
    rose = _named([many for _, many in chances], [rise > 0 for rise in rises])
    found = []
    for rung, rise in enumerate(rises):
        decision: Decision = "PASS" if rise >= 0 else "UNDECIDED"
        decision = "REGRESSED" if rung in fell else "IMPROVED" if rung in rose else decision
        found.append(NeedlesDecision(decision, min(1.0, 2.0 * min(chances[rung]))))
    return tuple(found)


def _named(chances: Sequence[float], moved: Sequence[bool]) -> set[int]:
    """Which rungs are beyond chance: alone, else those that moved in the shortest deep stretch."""
    rungs, beyond = len(moved), significant_in_run(chances)
    if any(beyond[:rungs]):
        return {rung for rung in range(rungs) if beyond[rung]}
    begins = max((n for n, named in enumerate(beyond[rungs:]) if named), default=rungs)
    return {rung for rung in range(begins, rungs) if moved[rung]}


def _against_exact(sides: Sequence[tuple[list[int], list[int]]]) -> tuple[NeedlesDecision, ...]:
    """The rule where the accepted runs have no wrong answer: see `decide_needles`."""
    lost = [sum(score < base[0] for score in now) for now, base in sides]
    asked, known = (sum(len(side[k]) for side in sides) for k in (0, 1))
    p = _lost_by_chance(sum(lost), asked, known) / (1.0 - ONE_RUNG_SHARE)
    if sum(map(bool, lost)) == 1:  # then the other rungs of this run are further right needles
        count, of = next((n, len(now)) for n, (now, _) in zip(lost, sides, strict=True) if n)
        alone = _lost_by_chance(count, of, known + asked - of) * len(sides)
        p = min(p, alone / ONE_RUNG_SHARE)
    p = min(p, 1.0)
    worse: Decision = "REGRESSED" if p <= RUN_LEVEL else "UNDECIDED"
    return tuple(NeedlesDecision(worse if n else "PASS", p if n else 1.0) for n in lost)


def _lost_by_chance(lost: int, asked: int, known: int) -> float:
    """Chance of `known` right needles and then `lost` or more of `asked`, at the worst error rate.

    The same bound on a p-value that Barnard's and Boschloo's tests use: the largest over what is
    not known, here the error rate.
    """
    wrong, right = np.log(_ERROR_RATES), np.log1p(-_ERROR_RATES)
    logs = [
        math.log(math.comb(asked, n)) + n * wrong + (asked - n + known) * right
        for n in range(lost, asked + 1)
    ]
    return float(np.exp(logs).sum(axis=0).max())


def _shares(needles: Needles, others: Needles) -> list[int]:
    """Right answers of each needle, all over one denominator."""
    whole = math.lcm(*(asked for _, asked in (*needles, *others)))
    return [right * whole // asked for right, asked in needles]


def _chances(sides: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, float]]:
    """Chance of so few right in this run, and of so many, if the needles were dealt out at random.

    Of each rung; then of those from each rung to the deepest, beginning with all of them. Exact, by
    counting all ways to deal out each rung's needles.
    """
    dealt = [_dealt(now, base) for now, base in sides]
    groups = [[n] for n in range(len(sides))]
    groups += [list(range(n, len(sides))) for n in range(len(sides) - 1)]
    found = []
    for group in groups:
        ways = Counter({0: 1})
        for rung in group:
            both: Counter[int] = Counter()
            for (a, m), (b, n) in itertools.product(ways.items(), dealt[rung].items()):
                both[a + b] += m * n
            ways = both
        seen, every = sum(sum(sides[rung][0]) for rung in group), ways.total()
        few = sum(number for total, number in ways.items() if total <= seen)
        many = sum(number for total, number in ways.items() if total >= seen)
        found.append((few / every, many / every))
    return found


def _dealt(now: Sequence[int], base: Sequence[int]) -> Counter[int]:
    """How many ways there are to draw as many needles as `now` has, by the sum of their scores."""
    drawn = [Counter({0: 1}), *(Counter[int]() for _ in now)]
    for score in (*now, *base):
        for count in range(len(now), 0, -1):
            for total, number in drawn[count - 1].items():
                drawn[count][total + score] += number
    return drawn[-1]


def _fisher(successes: int, trials: int, base_successes: int, base_trials: int) -> float:
    """Fisher's exact two-sided probability: of all tables no likelier than this one, counted."""
    right = successes + base_successes
    least, most = max(0, right - base_trials), min(right, trials)
    ways = [
        math.comb(trials, k) * math.comb(base_trials, right - k) for k in range(least, most + 1)
    ]
    seen = ways[successes - least]
    return sum(way for way in ways if way <= seen) / sum(ways)


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a share (1927, doi:10.1080/01621459.1927.10502953)."""
    z2, found = normal_quantile(0.5 + confidence / 2.0) ** 2, successes / trials
    middle = (found + z2 / (2.0 * trials)) / (1.0 + z2 / trials)
    reach = math.sqrt(z2 * (found * (1.0 - found) + z2 / (4.0 * trials)) / trials)
    reach /= 1.0 + z2 / trials
    return (
        middle - reach if successes else 0.0,
        middle + reach if successes < trials else 1.0,
    )
