"""Needles and questions: distinct names and codes, orders as named, the answer that scores."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.questions.needles import (
    INSTRUCTIONS,
    LANGUAGES,
    ORDERS,
    CodeSource,
    Language,
    Needle,
    Order,
    distractors,
    make_ask,
    needle_names,
)
from harness.questions.scoring import score

SEEDS = st.integers(0, 10_000)


def needles(count: int, seed: int) -> tuple[list[Needle], CodeSource]:
    codes = CodeSource(random.Random(seed))
    names = needle_names(random.Random(seed), count)
    return [Needle(f"MEMORY TARGET {name}", codes.take("MEM")) for name in names], codes


@given(st.integers(0, 200), SEEDS, st.booleans())
def test_names_are_distinct_and_as_many_as_asked(count: int, seed: int, alike: bool) -> None:
    names = needle_names(random.Random(seed), count, alike=alike)

    assert len(names) == len(set(names)) == count
    assert all(name and not name[0].isspace() and name.isascii() for name in names)
    assert names == needle_names(random.Random(seed), count, alike=alike)


def test_plain_names_come_first_and_like_names_in_families() -> None:
    assert all("-" not in name for name in needle_names(random.Random(1), 26))
    assert any("-" in name for name in needle_names(random.Random(1), 27))
    family = needle_names(random.Random(1), 4, alike=True)
    assert len({name.split("-")[0] for name in family}) < 4


@given(SEEDS, st.integers(1, 60))
def test_codes_of_one_source_never_share_their_digits(seed: int, count: int) -> None:
    codes = CodeSource(random.Random(seed))
    taken = [codes.take("MEM" if n % 2 else "CTL") for n in range(count)]

    numbers = [code.split("-")[1] for code in taken]
    assert len(set(numbers)) == count
    assert all(len(number) == 6 and number.isdigit() for number in numbers)


def test_code_source_draws_again_where_digits_were_used() -> None:
    class Twice(random.Random):
        drawn = iter("123456" * 2 + "654321")

        def choice(self, seq):  # type: ignore[no-untyped-def]
            return next(self.drawn)

    codes = CodeSource(Twice())
    assert [codes.take("MEM"), codes.take("CTL")] == ["MEM-123456", "CTL-654321"]


@given(st.integers(1, 7), SEEDS, st.sampled_from(ORDERS), st.sampled_from(LANGUAGES))
def test_every_needle_and_the_control_are_asked_once(
    count: int, seed: int, order: Order, language: Language
) -> None:
    hidden, codes = needles(count, seed)
    ask = make_ask(hidden, codes, order, random.Random(seed), language=language)

    assert ask.order == order
    assert [q.number for q in ask.questions] == list(range(1, count + 2))
    asked = [q.needle for q in ask.questions if not q.is_control]
    assert sorted(n.label for n in asked) == sorted(n.label for n in hidden)
    assert [q.needle for q in ask.questions if q.is_control] == [ask.control]
    if order == "forward":
        assert asked == hidden
    if order == "reversed":
        assert asked == hidden[::-1]
    if order != "shuffled":
        assert ask.questions[-1].is_control
    assert score(ask, ask.answer).all_right


@given(st.integers(1, 7), SEEDS, st.sampled_from(LANGUAGES))
def test_the_tail_holds_control_questions_and_instruction_and_ends_in_text(
    count: int, seed: int, language: Language
) -> None:
    hidden, codes = needles(count, seed)
    ask = make_ask(hidden, codes, "shuffled", random.Random(seed), language=language)

    lines = ask.tail.split("\n")
    assert lines[:2] == ["<<< LOCAL CONTROL >>>", f"CODE={ask.control.code}"]
    assert lines[-1] == INSTRUCTIONS[language]
    assert len(lines) == 2 + len(ask.questions) + 1
    for line, question in zip(lines[2:-1], ask.questions, strict=True):
        assert line.startswith(f"Q{question.number}")
        assert question.needle.label in line
    assert ask.tail == ask.tail.strip()
    # what is asked for is not given away, but for the control
    assert [code for code in ask.expected.values() if code in ask.tail] == [ask.control.code]


def test_shuffling_moves_the_controls_question_too() -> None:
    hidden, codes = needles(5, 0)
    places = {
        next(q.number for q in make_ask(hidden, codes, "shuffled", random.Random(n)).questions
             if q.is_control)
        for n in range(60)
    }  # fmt: skip
    assert places == {1, 2, 3, 4, 5, 6}


@given(st.integers(1, 7), st.lists(st.integers(1, 99), min_size=1, max_size=9))
def test_numbers_are_taken_as_given_or_refused(count: int, numbers: list[int]) -> None:
    hidden, codes = needles(count, 0)
    if len(numbers) == len(set(numbers)) == count + 1:
        ask = make_ask(hidden, codes, "forward", random.Random(0), numbers=numbers)
        assert [q.number for q in ask.questions] == numbers
        assert score(ask, ask.answer).all_right
    else:
        with pytest.raises(ValueError):
            make_ask(hidden, codes, "forward", random.Random(0), numbers=numbers)


@given(st.integers(1, 30), st.integers(0, 12), SEEDS)
def test_distractors_have_the_shape_but_no_needles_label_or_code(
    count: int, distracting: int, seed: int
) -> None:
    hidden, codes = needles(count, seed)
    decoys = distractors(random.Random(seed), hidden, codes, distracting)

    assert len(decoys) == distracting
    labels = [n.label for n in [*hidden, *decoys]]
    assert len(labels) == len(set(labels))
    numbers = [n.code.split("-")[1] for n in [*hidden, *decoys]]
    assert len(numbers) == len(set(numbers))


def test_a_needle_is_two_lines() -> None:
    needle = Needle("MEMORY TARGET ALPHA", "MEM-422777")
    assert needle.text == "<<< MEMORY TARGET ALPHA >>>\nCODE=MEM-422777\n"
