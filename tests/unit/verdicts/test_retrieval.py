"""Answers of the ladder: the needle is the unit, and all rungs share one chance of false alarm."""

import random
from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import factorial, prod

import pytest
from scipy import stats

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import AskRecord
from harness.records.metrics import METRICS
from harness.records.samples import samples_of
from harness.verdicts.proportions import decide_needles
from harness.verdicts.retrieval import judge_retrieval
from harness.verdicts.verdict import RunVerdict, judge
from tests.made import ask, record, rung

Side = list[tuple[int, int]]
BANDS = {name: metric.band or 0.1 for name, metric in METRICS.items()}
DEPTHS = (2048, 8192, 32768, 131072)


def needles(right: int, of: int = 5) -> Side:
    return [(3, 3)] * right + [(0, 3)] * (of - right)


def decided(now: Sequence[int], base: int, *, runs: int = 2) -> list[str]:
    sides = [(needles(n), needles(base) * runs) for n in now]
    return [found.decision for found in decide_needles(sides)]


@pytest.mark.parametrize("rungs", [1, 2, 4])
@pytest.mark.parametrize("runs", [2, 3])
def test_of_unchanged_runs_after_an_exact_baseline_one_in_a_hundred_is_called_worse(
    rungs: int, runs: int
) -> None:
    """By counting all that can come: no share of right needles gives more than 1 %."""
    worst = 0.0
    for error in (0.004 * k for k in range(1, 60)):
        chance, each = 0.0, stats.binom.pmf(range(6), 5, error)
        for lost in combinations_with_replacement(range(6), rungs):
            if "REGRESSED" in decided_once(tuple(5 - n for n in lost), runs):
                orders = factorial(rungs) // prod(factorial(lost.count(n)) for n in set(lost))
                chance += orders * prod(float(each[n]) for n in lost)
        worst = max(worst, chance * (1 - error) ** (5 * runs * rungs))
    assert worst <= 0.01


_DECIDED: dict[tuple[tuple[int, ...], int], list[str]] = {}


def decided_once(now: tuple[int, ...], runs: int) -> list[str]:
    return _DECIDED.setdefault((now, runs), decided(now, 5, runs=runs))


@pytest.mark.parametrize("clustered", [True, False])
@pytest.mark.parametrize("share", [0.9, 0.8, 0.6])
def test_unchanged_ordinary_models_are_not_called_worse(share: float, clustered: bool) -> None:
    rng = random.Random(7)

    def side() -> Side:
        if clustered:
            return needles(sum(rng.random() < share for _ in range(5)))
        return [(sum(rng.random() < share for _ in range(3)), 3) for _ in range(5)]

    wrong = 0
    for _ in range(200):
        found = decide_needles([(side(), side() + side()) for _ in range(4)])
        wrong += any(one.decision == "REGRESSED" for one in found)
    assert wrong <= 5


@pytest.mark.parametrize(
    ("now", "runs", "expected"),
    [
        ((5, 5, 5, 5), 2, ["PASS"] * 4),
        ((5, 5, 5, 4), 2, ["PASS"] * 3 + ["UNDECIDED"]),
        ((5, 5, 5, 3), 2, ["PASS"] * 3 + ["REGRESSED"]),
        ((5, 5, 0, 0), 2, ["PASS"] * 2 + ["REGRESSED"] * 2),
        ((4, 4, 4, 4), 2, ["REGRESSED"] * 4),
        ((5, 3), 2, ["PASS", "UNDECIDED"]),
        ((5, 2), 2, ["PASS", "REGRESSED"]),
        ((5, 3), 4, ["PASS", "REGRESSED"]),
        ((2,), 2, ["REGRESSED"]),
    ],
)
def test_a_model_known_exact_loses_its_needles(
    now: tuple[int, ...], runs: int, expected: list[str]
) -> None:
    assert decided(now, 5, runs=runs) == expected


def test_a_clear_break_of_a_weak_model_is_named() -> None:
    assert decided((4, 4, 0, 0), 4) == ["PASS", "PASS", "REGRESSED", "REGRESSED"]


def test_a_weak_model_that_becomes_exact_is_better() -> None:
    assert decided((5, 5, 5, 5), 1) == ["PASS"] * 2 + ["IMPROVED"] * 2


def test_needles_that_only_one_order_loses_are_seen() -> None:
    found = decide_needles([([(2, 3)] * 5, [(3, 3)] * 10)] * 2)
    assert [one.decision for one in found] == ["REGRESSED"] * 2


def asks(right: int) -> list[AskRecord]:
    """The same needles in three orders: numbered otherwise, with the same codes."""
    first = ask(right)
    turned = {n: 6 - n for n in range(1, 6)} | {6: 6}
    second = first.model_copy(
        update={
            "order": "reversed",
            "expected": {turned[n]: code for n, code in first.expected.items()},
            "given": {turned[n]: code for n, code in first.given.items()},
        }
    )
    return [first, second, first.model_copy(update={"order": "shuffled"})]


def test_the_same_needle_in_three_orders_is_one() -> None:
    assert samples_of(rung(asks=asks(4))).needles == ((3, 3),) * 4 + ((0, 3),)


def test_an_answer_with_two_codes_is_not_counted_right_by_needle() -> None:
    twice = ask(5).model_copy(update={"needles_right": 4})
    assert sum(right for right, _ in samples_of(rung(asks=[twice])).needles) == 4


def run_of(*right: int) -> RunVerdict:
    now, then = (
        record(*(rung(d, asks=asks(n)) for d, n in zip(DEPTHS, numbers, strict=False)))
        for numbers in (right, (5,) * len(right))
    )
    base = Baseline(key=key_of(then.header), runs=(accepted(then, "t", None),) * 2)
    return judge(now, base, BANDS)


def test_a_needle_lost_in_all_orders_is_one_needle_and_no_regression() -> None:
    cell = run_of(5, 4).cell(8192, "retrieval")
    assert cell is not None
    assert (cell.outcome, cell.code) == ("INCONCLUSIVE", "few_needles")
    assert "4 of 5 needles right in every order, 10 of 10 in the baseline" in cell.message


def test_answers_that_break_from_some_depth_on_are_regressed_there() -> None:
    verdict = run_of(5, 5, 0, 0)
    cells = [verdict.cell(depth, "retrieval") for depth in DEPTHS]
    assert [c.outcome for c in cells if c is not None] == ["PASS"] * 2 + ["REGRESSED"] * 2
    assert verdict.exit_code == 1


def test_a_baseline_accepted_before_needles_were_kept_is_read_as_alike_in_all_orders() -> None:
    then = record(rung(asks=asks(5)))
    one = accepted(then, "t", None)
    old = one.model_copy(
        update={"cells": {d: c.model_copy(update={"needles": ()}) for d, c in one.cells.items()}}
    )
    base = Baseline(key=key_of(then.header), runs=(old, old))
    found = judge_retrieval([rung(asks=asks(4))], base)[2048]
    assert "10 of 10 in the baseline" in found.message
    assert judge_retrieval([rung(asks=asks(1))], base)[2048].outcome == "REGRESSED"
