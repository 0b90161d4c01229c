"""The first bad build of a series: found, told from noise, and never blamed unmeasured."""

import random
from collections.abc import Callable
from functools import cache
from statistics import fmean

import pytest

from harness.verdicts.bisect import MOST_ASKS, Answer, Asked, Ended, Question, next_step
from harness.verdicts.compare import BLOCK, Visit, judge_arms
from tests.made import BANDS, ask, record, rung

BUILDS, SEEDS = 32, 20
MOST_IN_THE_MEAN = 2 + 5 * 1.5  # log2 of 32 builds is 5
OUTCOMES: dict[str, Answer] = {"REGRESSED": "BAD", "PASS": "GOOD", "IMPROVED": "GOOD"}
Compare = Callable[[int, int], Answer]


def bisect(builds: int, compare: Compare) -> tuple[Ended, list[Asked]]:
    asked: list[Asked] = []
    while isinstance(step := next_step(builds, asked), Question):
        asked.append(Asked(step.a, step.b, compare(step.a, step.b)))
    return step, asked


@cache
def judged(metric: str, a_broken: bool, b_broken: bool, draw: int) -> Answer:
    """As `harness compare` answers, of made-up visits with noise: one of five draws."""
    rng = random.Random(draw)
    visits = []
    for block in range(3):
        for side in BLOCK:
            broken = a_broken if side == "A" else b_broken
            level = (80.0 if broken else 100.0) * rng.gauss(1, 0.01)
            rates = [level * rng.gauss(1, 0.01) for _ in range(3)]
            asks = [ask(0 if broken and metric == "retrieval" else 5)] * 3
            visits.append(Visit(side, block, record(rung(generation_tok_s=rates, asks=asks))))
    (cell,) = judge_arms(visits, BANDS, [metric]).cells
    return OUTCOMES.get(cell.outcome, "UNCLEAR")


@pytest.mark.parametrize("metric", ["generation", "retrieval"])
@pytest.mark.parametrize("trouble", ["none", "one that does not start", "one in five unclear"])
def test_a_loss_of_a_fifth_or_broken_retrieval_is_found_in_a_series(
    metric: str, trouble: str
) -> None:
    counts = []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        first_bad, dead = rng.randrange(1, BUILDS), rng.randrange(1, BUILDS - 1)

        def compare(
            a: int, b: int, rng: random.Random = rng, k: int = first_bad, dead: int = dead
        ) -> Answer:
            if trouble == "one that does not start" and b == dead:
                return "DEAD"
            if trouble == "one in five unclear" and rng.random() < 0.2:
                return "UNCLEAR"
            return judged(metric, a >= k, b >= k, rng.randrange(5))

        end, asked = bisect(BUILDS, compare)
        assert end.outcome == "FOUND", (seed, end)
        assert first_bad in (*end.between, end.first_bad), (seed, end)
        assert end.between in ((), (dead,))
        assert end.first_bad - end.last_good == 1 + len(end.between)
        counts.append(len(asked))
    assert fmean(counts) <= MOST_IN_THE_MEAN


def test_every_named_build_was_measured_on_both_sides_even_if_some_answers_are_wrong() -> None:
    wrong = found = 0
    for seed in range(50):
        rng = random.Random(seed)
        first_bad = rng.randrange(1, BUILDS)

        def compare(a: int, b: int, rng: random.Random = rng, k: int = first_bad) -> Answer:
            lies = rng.random() < 0.01
            return "BAD" if (a < k <= b) != lies else "GOOD"

        end, asked = bisect(BUILDS, compare)
        if end.outcome == "FOUND":
            found += 1
            wrong += end.first_bad != first_bad
            assert Asked(0, end.first_bad, "BAD") in asked
            assert end.last_good == 0 or Asked(0, end.last_good, "GOOD") in asked
            assert Asked(end.last_good, end.first_bad, "BAD") in asked
    assert found > 45
    assert wrong <= 1


def test_no_change_between_the_ends_is_not_reproducible() -> None:
    end, asked = bisect(BUILDS, lambda _a, _b: "GOOD")
    assert (end.outcome, len(asked)) == ("NOT_REPRODUCIBLE", 1)


def test_ends_that_cannot_be_told_apart_are_undecided() -> None:
    end, asked = bisect(BUILDS, lambda _a, _b: "UNCLEAR")
    assert (end.outcome, len(asked)) == ("UNDECIDED", MOST_ASKS)


def test_two_builds_have_nothing_between_them() -> None:
    end, asked = bisect(2, lambda _a, _b: "BAD")
    assert end == Ended("FOUND", 0, 1, (), "")
    assert len(asked) == 1


def test_a_build_that_stays_unclear_beside_the_change_is_not_blamed() -> None:
    def compare(a: int, b: int) -> Answer:
        return "UNCLEAR" if b == 3 else "BAD" if a < 4 <= b else "GOOD"

    end, asked = bisect(8, compare)
    assert end.outcome == "UNDECIDED"
    assert (end.last_good, end.first_bad, end.between) == (2, 4, (3,))
    assert sum(one.b == 3 for one in asked) == MOST_ASKS


def test_an_unclear_build_away_from_the_change_is_left_for_its_neighbours() -> None:
    def compare(a: int, b: int) -> Answer:
        return "UNCLEAR" if b == 15 else "BAD" if a < 25 <= b else "GOOD"

    end, asked = bisect(BUILDS, compare)
    assert (end.outcome, end.first_bad) == ("FOUND", 25)
    assert sum(one.b == 15 for one in asked) <= 2


def test_a_loss_in_small_steps_is_blamed_on_no_build() -> None:
    # each build loses a little: worse than the first beyond the band, never than its neighbour
    end, _ = bisect(16, lambda a, b: "BAD" if b - a > 5 else "GOOD")
    assert end.outcome == "UNDECIDED"
    assert "more than one build" in end.reason


def test_steps_left_shrink_to_one() -> None:
    asked: list[Asked] = []
    left = []
    while isinstance(step := next_step(BUILDS, asked), Question):
        left.append(step.steps_left)
        asked.append(Asked(step.a, step.b, "BAD" if step.a < 11 <= step.b else "GOOD"))
    assert left[0] == 7
    assert left[-1] == 1
    assert left == sorted(left, reverse=True)
