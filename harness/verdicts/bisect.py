"""Which of a series of builds is the first bad one, asked by comparisons that may err.

The method is that of git-bayesect (hauntsaninja, github.com/hauntsaninja/git_bayesect): a belief
over the first bad build, every answer right or wrong at rates that are not known but have a Beta
prior (so that the likelihood has a closed form), and the question asked next is the one that
leaves the least expected entropy. Ours asks of pairs: "b is worse than a" holds if the first bad
build lies behind a and not behind b. `harness compare` answers; what it cannot tell is no answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Answer = Literal["BAD", "GOOD", "UNCLEAR", "DEAD"]
"""Of b against a: worse beyond the band, no worse, not to be told, b cannot be measured."""
Outcome = Literal["FOUND", "NOT_REPRODUCIBLE", "UNDECIDED"]

CONFIDENCE = 0.95
"""Belief in a first bad build at which it is named."""
RIGHT, WRONG = 0.99, 0.01
"""Prior pseudo-counts of answers: a comparison names a change that is none once in a hundred."""
LEAN_AFTER = 2
"""A build that was unclear so often is left for its neighbours."""
MOST_ASKS = 4
"""So often one question is asked, if nothing else is left to ask."""

EXIT_CODES: dict[Outcome, int] = {"FOUND": 0, "NOT_REPRODUCIBLE": 1, "UNDECIDED": 125}


@dataclass(frozen=True, slots=True)
class Asked:
    """A comparison that was made: build `b` against build `a`, by their places in the series."""

    a: int
    b: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Question:
    """The comparison to make next; about `steps_left` are, this one among them."""

    a: int
    b: int
    steps_left: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What the bisection came to; `between` could not be measured and may be the first bad one.

    Without `FOUND`, `last_good` and `first_bad` are how far it was narrowed down.
    """

    outcome: Outcome
    last_good: int
    first_bad: int
    between: tuple[int, ...]
    reason: str


def next_step(builds: int, asked: Sequence[Asked]) -> Question | Ended:
    """What to ask next of a series whose first is called good and whose last bad, or the end.

    A build is named only if it was measured to be bad and the one measured before it to be good,
    each against the first build, and the one against the other.
    """
    last = builds - 1
    ends = _count(asked, 0, last)
    if ends["BAD"] <= ends["GOOD"]:
        return _ends(ends, last)
    dead = {one.b for one in asked if one.answer == "DEAD"}
    belief = _belief(builds, asked)
    good, bad = _gap(builds, asked, belief)
    inside = [i for i in range(good + 1, bad) if i not in dead]
    unclear = {i: _count(asked, 0, i)["UNCLEAR"] for i in range(1, last)}
    fresh = [i for i in unclear if i not in dead and unclear[i] < LEAN_AFTER]
    left = _steps(belief)
    if len(asked) > 3 * math.log2(builds) + 3 * MOST_ASKS:
        why = "the answers contradict each other"
    elif inside and set(inside) <= {i for i in unclear if unclear[i] >= LEAN_AFTER}:
        again = min(inside, key=lambda i: (unclear[i], i))
        if unclear[again] < MOST_ASKS:
            return Question(0, again, left)
        why = "what lies between cannot be told from either"
    elif (inside or belief[good + 1 : bad + 1].sum() < CONFIDENCE) and fresh:
        return Question(0, _most_telling(belief, asked, fresh), left)
    else:
        return _confirm(good, bad, tuple(sorted(dead & set(range(good, bad)))), asked)
    return Ended("UNDECIDED", good, bad, tuple(range(good + 1, bad)), why)


def _ends(counted: dict[Answer, int], last: int) -> Question | Ended:
    if counted["GOOD"]:
        why = "the last build is no worse than the first"
        return Ended("NOT_REPRODUCIBLE", 0, last, (), why)
    if counted["DEAD"]:
        return Ended("UNDECIDED", 0, last, (), "the last build cannot be measured")
    if counted["UNCLEAR"] >= MOST_ASKS:
        why = "whether the last build is worse than the first cannot be told"
        return Ended("UNDECIDED", 0, last, (), why)
    return Question(0, last, math.ceil(math.log2(max(last, 1))) + 2)


def _confirm(
    good: int, bad: int, between: tuple[int, ...], asked: Sequence[Asked]
) -> Question | Ended:
    """The two that are left, one against the other."""
    direct = _count(asked, good, bad)
    if direct["BAD"] > direct["GOOD"]:
        return Ended("FOUND", good, bad, between, "")
    if direct["GOOD"] > 1 or sum(direct.values()) >= MOST_ASKS:
        why = (
            "the last two told apart from the first build are not told apart from each other: more "
            "than one build may have a part in it"
        )
        return Ended("UNDECIDED", good, bad, between, why)
    return Question(good, bad, 1)


def _count(asked: Sequence[Asked], a: int, b: int) -> dict[Answer, int]:
    counted: dict[Answer, int] = {"BAD": 0, "GOOD": 0, "UNCLEAR": 0, "DEAD": 0}
    for one in asked:
        if (one.a, one.b) == (a, b):
            counted[one.answer] += 1
    return counted


def _gap(builds: int, asked: Sequence[Asked], belief: np.ndarray) -> tuple[int, int]:
    """The measured builds on both sides of the likeliest first bad one."""
    said = dict.fromkeys(range(1, builds - 1), 0)
    for one in asked:
        if one.a == 0 and one.b in said and one.answer in ("BAD", "GOOD"):
            said[one.b] += 1 if one.answer == "BAD" else -1
    likeliest = int(np.argmax(belief))
    good = max((i for i in said if i < likeliest and said[i] < 0), default=0)
    bad = min((i for i in said if i >= likeliest and said[i] > 0), default=builds - 1)
    return good, bad


# -- belief ----------------------------------------------------------------------------------


def _tallies(builds: int, asked: Sequence[Asked]) -> np.ndarray:
    """By first bad build k: answers BAD and all, of pairs it lies between, and of other pairs."""
    tallies = np.zeros((4, builds))
    firsts = np.arange(builds)
    for one in asked:
        if one.answer in ("BAD", "GOOD"):
            across = (firsts > one.a) & (firsts <= one.b)
            yes = one.answer == "BAD"
            tallies += np.array([across * yes, across, ~across * yes, ~across])
    return tallies


def _belief(builds: int, asked: Sequence[Asked]) -> np.ndarray:
    """Probability that build k is the first bad one; k = 0 is none, by what was asked for."""
    yes, every, false_yes, others = _tallies(builds, asked)
    from scipy.special import betaln  # here, since it takes long to import

    log = betaln(RIGHT + yes, WRONG + every - yes)
    log += betaln(WRONG + false_yes, RIGHT + others - false_yes)
    log[0] = -np.inf
    belief: np.ndarray = np.exp(log - log.max())
    belief /= belief.sum()
    return belief


def _most_telling(belief: np.ndarray, asked: Sequence[Asked], candidates: Sequence[int]) -> int:
    """The build whose comparison with the first leaves the least expected entropy."""
    builds = len(belief)
    yes, every, false_yes, others = _tallies(builds, asked)
    says_bad = (RIGHT + yes) / (RIGHT + WRONG + every)
    says_bad_wrongly = (WRONG + false_yes) / (RIGHT + WRONG + others)
    at = np.asarray(candidates)[:, None]
    rate = np.where(np.arange(builds) <= at, says_bad, says_bad_wrongly)
    expected = _weighted_entropy(belief * rate) + _weighted_entropy(belief * (1 - rate))
    return candidates[int(np.argmin(expected))]


def _weighted_entropy(joint: np.ndarray) -> np.ndarray:
    """Of each row of unnormalised beliefs: its entropy in bits, times its weight."""
    weight = joint.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log2(joint), 0.0)
        of_weight = np.where(weight > 0, weight * np.log2(weight), 0.0)
    entropy: np.ndarray = of_weight - terms.sum(axis=-1)
    return entropy


def _steps(belief: np.ndarray) -> int:
    """Questions that halve the belief until one build is left, and the last one."""
    return max(1, math.ceil(float(_weighted_entropy(belief)) - 0.2)) + 1
