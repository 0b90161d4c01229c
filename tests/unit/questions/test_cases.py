"""Strategies: any case can be asked and scored; a failing one shrinks to the least that fails."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase, InMemoryExampleDatabase

from harness.questions.cases import (
    MAX_QUESTIONS,
    PROFILE,
    AskPlan,
    Case,
    ask_plans,
    cases,
    code_numbers,
    names,
    numberings,
    placements,
    register_profiles,
)
from harness.questions.failures import classify
from harness.questions.needles import Needle
from harness.questions.scoring import score

FIND = settings(
    max_examples=2000,
    database=None,
    derandomize=True,
    phases=[Phase.generate, Phase.shrink],
)


@given(cases())
def test_every_case_is_whole(case: Case) -> None:
    ask = case.ask
    assert 2 <= len(ask.questions) <= MAX_QUESTIONS
    assert sum(q.is_control for q in ask.questions) == 1
    assert len(case.shares) == len(case.needles)
    assert list(case.shares) == sorted(set(case.shares))
    assert all(0 < share < 1 for share in [*case.shares, *case.distractor_shares])
    assert len(case.distractor_shares) == len(case.distractors)
    labels = [n.label for n in case.needles]
    assert len(set(labels)) == len(labels)
    assert not set(labels) & {n.label for n in case.distractors}
    codes = [n.code.split("-")[1] for n in [*case.needles, *case.distractors, ask.control]]
    assert len(set(codes)) == len(codes)
    assert ask.language == case.plan.language
    assert score(ask, ask.answer).all_right


@given(ask_plans(6))
def test_a_plans_order_is_what_its_questions_do(plan: AskPlan) -> None:
    hidden = [Needle(f"MEMORY TARGET N{n}", f"MEM-{n:06d}") for n in range(6)]
    ask = plan.ask(hidden, "CTL-999999")

    asked = [hidden.index(q.needle) for q in ask.questions if not q.is_control]
    assert tuple(asked) == plan.asked
    last = ask.questions[-1].is_control
    expected = "shuffled"
    if last and asked == sorted(asked):
        expected = "forward"
    elif last and asked == sorted(asked, reverse=True):
        expected = "reversed"
    assert plan.order == ask.order == expected


def test_forward_reversed_and_shuffled_are_all_drawn_often() -> None:
    drawn: list[str] = []

    @settings(max_examples=200, derandomize=True, database=None)
    @given(ask_plans(12))
    def collect(plan: AskPlan) -> None:
        asked = list(plan.asked)
        if len(asked) >= 3:
            ends = {"forward": sorted(asked), "reversed": sorted(asked, reverse=True)}
            drawn.append(next((name for name, end in ends.items() if asked == end), "shuffled"))

    collect()
    assert {name for name in drawn if 6 * drawn.count(name) > len(drawn)} == {
        "forward",
        "reversed",
        "shuffled",
    }


@given(st.integers(1, 17).flatmap(code_numbers))
def test_code_numbers_differ(numbers: tuple[str, ...]) -> None:
    assert len(set(numbers)) == len(numbers)
    assert all(len(n) == 6 and n.isdigit() for n in numbers)


def test_codes_of_close_kin_are_drawn() -> None:
    def turned(pair: tuple[str, ...]) -> bool:
        return len(set(pair[0])) > 2 and pair[1] in pair[0] + pair[0]

    def one_changed(pair: tuple[str, ...]) -> bool:
        same = [a == b for a, b in zip(*pair, strict=True)]
        return len(set(pair[0])) > 2 and sum(same) == 5

    assert find(code_numbers(2), turned, settings=FIND)
    assert find(code_numbers(2), one_changed, settings=FIND)


# Shrinking: the proxy that breaks in one way only ends as that way and nothing more.


def shrunk(breaks: Callable[[Case], bool]) -> Case:
    return find(cases(), breaks, settings=FIND)


def test_the_least_case_is_one_plain_needle() -> None:
    case = shrunk(lambda _: True)

    assert case.plan == AskPlan(asked=(0,), control_at=1, numbers=(1, 2), language="en")
    assert case.plan.order == "forward"
    assert [n.label for n in case.needles] == ["MEMORY TARGET ALPHA"]
    assert case.distractors == ()


def test_an_order_that_breaks_shrinks_to_exactly_that_order() -> None:
    # five needles ALPHA ... ECHO on one prefilled document; broken when ECHO comes before ALPHA
    def breaks(plan: AskPlan) -> bool:
        return {0, 4} <= set(plan.asked) and plan.asked.index(4) < plan.asked.index(0)

    plan = find(ask_plans(5), breaks, settings=FIND)

    assert plan == AskPlan(asked=(4, 0), control_at=2, numbers=(1, 2, 3), language="en")
    assert plan.order == "reversed"


@pytest.mark.parametrize(
    ("breaks", "shows"),
    [
        (lambda c: c.plan.language == "ja", {"language": "ja"}),
        (lambda c: c.plan.control_at == 0, {"control_at": 0}),
        (lambda c: len(c.plan.asked) >= 3, {"asked": (0, 1, 2)}),
        (lambda c: min(c.plan.numbers) > 9, {"numbers": (10, 11)}),
    ],
    ids=["Japanese", "control first", "three asked", "two-digit numbers"],
)
def test_only_what_breaks_is_left(breaks: Callable[[Case], bool], shows: dict[str, Any]) -> None:
    case = shrunk(breaks)

    asked = len(case.plan.asked)
    plain = {
        "asked": tuple(range(asked)),
        "control_at": asked,
        "numbers": tuple(range(1, asked + 2)),
        "language": "en",
    }
    wanted = plain | shows
    seen = {name: getattr(case.plan, name) for name in wanted}
    assert seen == wanted
    assert len(case.needles) == asked
    assert case.distractors == ()


def test_a_distractor_that_breaks_is_one_beside_one_needle() -> None:
    case = shrunk(lambda c: bool(c.distractors))
    assert (len(case.needles), len(case.distractors)) == (1, 1)


@given(st.integers(1, MAX_QUESTIONS), st.data())
def test_numberings_are_distinct_numbers(count: int, data: st.DataObject) -> None:
    numbers = data.draw(numberings(count))
    assert len(numbers) == len(set(numbers)) == count
    assert all(1 <= number <= 99 for number in numbers)


def test_like_names_and_late_places_are_drawn() -> None:
    like = find(names(2), lambda pair: pair[1].startswith(pair[0] + "-"), settings=FIND)
    assert like[1].split("-")[0] == like[0]
    assert find(placements(1), lambda places: places[0] > 0.9, settings=FIND)
    assert all("-" not in name for name in find(names(3, alike=False), lambda _: True))


@given(cases(), st.data())
def test_a_proxy_that_exchanges_two_answers_is_told_as_swapped(
    case: Case, data: st.DataObject
) -> None:
    needles = [q for q in case.ask.questions if not q.is_control]
    if len(needles) < 2:
        return
    one, other = data.draw(st.permutations(needles))[:2]
    said = case.ask.expected | {one.number: other.needle.code, other.number: one.needle.code}
    answer = "\n".join(f"Q{number}={code}" for number, code in said.items())

    got = classify(case.ask, score(case.ask, answer), answer, "", "stop", {})

    assert got.kind == "swapped"
    assert got.valid


def test_the_profile_is_the_same_where_ci_is_set(tmp_path: Path) -> None:
    script = (
        "from hypothesis import settings; from harness.questions.cases import *; "
        "register_profiles();"
        "s = settings.get_profile(PROFILE);"
        "print(s.deadline, s.derandomize, s.print_blob, type(s.database).__name__)"
    )
    root = Path(__file__).parents[3]
    environment = os.environ | {"CI": "true", "PYTHONPATH": str(root)}
    told = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.split() == ["None", "False", "True", "DirectoryBasedExampleDatabase"]


def test_a_failing_case_is_kept_where_asked_and_replayed_first(tmp_path: Path) -> None:
    before = settings.get_profile(PROFILE)
    register_profiles(str(tmp_path / "examples"))
    profile = settings.get_profile(PROFILE)
    settings.register_profile(PROFILE, before)
    assert isinstance(profile.database, DirectoryBasedExampleDatabase)

    seen: list[AskPlan] = []

    @settings(profile)
    @given(ask_plans(5))
    def breaks(plan: AskPlan) -> None:
        seen.append(plan)
        assert len(plan.asked) < 3

    with pytest.raises(AssertionError):
        breaks()
    assert list((tmp_path / "examples").rglob("*"))
    seen.clear()
    with pytest.raises(AssertionError):
        breaks()
    assert seen[0].asked == (0, 1, 2)
    assert not isinstance(profile.database, InMemoryExampleDatabase)
