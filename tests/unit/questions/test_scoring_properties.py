"""Scoring, by properties: decoration never costs a point, and nothing but the answer earns one."""

import re
import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as st

from harness.questions.cases import cases
from harness.questions.needles import Ask, Question
from harness.questions.scoring import score

ASKS = cases().map(lambda case: case.ask)
_WIDE = {c: chr(ord(c) + 0xFEE0) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-=:"}


def _wide(text: str) -> str:
    return "".join(_WIDE.get(c, c) for c in text)


_IDS = st.sampled_from(["Q{}", "Q {}", "q{}", "**Q{}**", "`Q{}`", "Question {}", "(Q{})", "設問{}"])
_CODES = st.sampled_from(["{}", "**{}**", "`{}`", "_{}_", '"{}"', "「{}」", "{}."])
_JOINS = st.sampled_from(
    ["{i}={c}", "{i} = {c}", "{i}: {c}", "{i}：{c}", "{i} -> {c}", "{i} is {c}", "{i}は{c}です",
     "| {i} | {c} |", "The code for {i} is {c}", "{c} is the code for {i}", '"{i}": {c},']
)  # fmt: skip
_LEADS = st.sampled_from(["", "- ", "* ", "1. ", "1) ", "> ", "  ", "・"])
_FRAMES = st.sampled_from(
    ["{}", "Here you are:\n\n{}\n", "```\n{}\n```", "{}\n\nDone.", "答え：\n{}"]
)


@st.composite
def lines(draw: st.DrawFn, number: int, code: str) -> str:
    ident = draw(_IDS).format(number)
    dressed = draw(_CODES).format(code)
    line = draw(_LEADS) + draw(_JOINS).format(i=ident, c=dressed)
    return _wide(line) if draw(st.booleans()) else line


@st.composite
def renderings(draw: st.DrawFn, answers: dict[int, str]) -> str:
    rendered = [draw(lines(number, code)) for number, code in answers.items()]
    body = draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(draw(st.permutations(rendered)))
    return draw(_FRAMES).format(body.replace("{", "(").replace("}", ")"))


def _right(ask: Ask, answer: str) -> set[int]:
    got = score(ask, answer)
    control = next(q.number for q in ask.questions if q.is_control)
    return set(got.right_numbers) | ({control} if got.control_right else set())


@given(st.data())
def test_any_decorated_right_answer_is_all_right(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    answer = data.draw(renderings(ask.expected))
    got = score(ask, answer)

    assert got.all_right
    assert got.given == ask.expected
    assert got.codes_present == got.asked


@st.composite
def other_codes(draw: st.DrawFn, code: str) -> str:
    """`code` with one fault: a digit changed, lost or added, or another prefix."""
    prefix, number = code.split("-")
    at = draw(st.integers(0, len(number) - 1))
    digit = draw(st.sampled_from("0123456789"))
    fault = draw(st.sampled_from(["changed", "lost", "added", "prefix", "cut prefix"]))
    if fault == "prefix":
        prefix = draw(st.sampled_from(["MEM", "CTL", "KEY", "REM", "XMEM", "MEMX"]))
    elif fault == "cut prefix":
        prefix = prefix[1:]
    elif fault == "changed":
        number = number[:at] + digit + number[at + 1 :]
    elif fault == "lost":
        number = number[:at] + number[at + 1 :]
    else:
        number = number[:at] + digit + number[at:]
    changed = f"{prefix}-{number}"
    assume(changed != code)
    return changed


@given(st.data())
def test_one_fault_in_a_code_makes_exactly_that_question_wrong(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    number = data.draw(st.sampled_from(sorted(ask.expected)))
    answers = ask.expected | {number: data.draw(other_codes(ask.expected[number]))}

    answer = data.draw(renderings(answers))

    assert _right(ask, answer) == set(ask.expected) - {number}


@given(st.data())
def test_a_wrong_id_makes_exactly_that_question_wrong(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    number = data.draw(st.sampled_from(sorted(ask.expected)))
    unasked = data.draw(st.integers(0, 999).filter(lambda n: n not in ask.expected))
    answers = {unasked if n == number else n: code for n, code in ask.expected.items()}

    answer = data.draw(renderings(answers))

    assert _right(ask, answer) == set(ask.expected) - {number}


@given(st.data())
def test_two_ids_exchanged_make_exactly_those_two_wrong(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    one, other = data.draw(st.permutations(sorted(ask.expected)))[:2]
    answers = ask.expected | {one: ask.expected[other], other: ask.expected[one]}

    answer = data.draw(renderings(answers))

    assert _right(ask, answer) == set(ask.expected) - {one, other}


@given(st.data())
def test_a_missing_line_makes_exactly_that_question_wrong(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    number = data.draw(st.sampled_from(sorted(ask.expected)))
    answers = {n: code for n, code in ask.expected.items() if n != number}

    answer = data.draw(renderings(answers))

    assert _right(ask, answer) == set(answers)


def _stands_in(question: Question, answer: str) -> bool:
    """An independent, lenient reading: the complete code and the id are both somewhere."""
    text = unicodedata.normalize("NFKC", answer).upper()
    plain = re.sub(r"[\s*_`\\\u200b\u200c\u200d\u2060\ufeff\u00ad]", "", text)
    code = question.needle.code.replace("-", "[-\u2010-\u2015\u2212\u30fc]")
    whole = re.search(rf"(?<!\d){code}", plain) is not None
    return (
        whole and re.search(rf"(?:Q|QUESTION|問|設問)[.#NO]*0*{question.number}", plain) is not None
    )


@given(st.data())
def test_fragments_never_score_without_id_and_complete_code(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    question = data.draw(st.sampled_from(ask.questions))
    code = question.needle.code
    fragments = st.sampled_from(
        ["Q", str(question.number), f"Q{question.number}", f"Q{question.number + 1}", "=", ": ",
         "-", " ", "\n", "**", "_", "`", ".", ",", "~~", code[:-1], code[:3], code[4:], code[3:],
         code[-1], code, question.needle.label, "<think>", "</think>", "0", "です", "not", "<b>"]
    )  # fmt: skip
    answer = "".join(data.draw(st.lists(fragments, max_size=12)))

    if question.number in _right(ask, answer):
        assert _stands_in(question, answer)


@given(ASKS, st.text())
def test_arbitrary_text_never_raises_and_never_scores(ask: Ask, answer: str) -> None:
    assert all(_stands_in(q, answer) for q in ask.questions if q.number in _right(ask, answer))


@given(st.data())
def test_reasoning_is_never_scored(data: st.DataObject) -> None:
    ask = data.draw(ASKS)
    answer = data.draw(renderings(ask.expected))
    hidden = data.draw(st.sampled_from(["<think>{}</think>", "<think>{}", "{}</think>"]))

    assert _right(ask, hidden.replace("{}", answer)) == set()
