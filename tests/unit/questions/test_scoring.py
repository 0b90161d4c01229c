"""Scoring, example by example: what is decoration, and what is another answer."""

from dataclasses import replace

import pytest

from harness.questions.needles import Ask, Needle, Question
from harness.questions.scoring import normalise, score

A, B, CONTROL = "MEM-422777", "MEM-509065", "CTL-445570"
ASK = Ask(
    "forward",
    Needle("LOCAL CONTROL", CONTROL),
    (
        Question(1, Needle("MEMORY TARGET ALPHA", A)),
        Question(2, Needle("MEMORY TARGET ALPHA-07", B)),
        Question(3, Needle("LOCAL CONTROL", CONTROL), is_control=True),
    ),
)

DECORATED = {
    "as asked": "Q1={0}\nQ2={1}\nQ3={2}",
    "other order": "Q3={2}\nQ1={0}\nQ2={1}",
    "spaces": "  Q1 =  {0} \n\n\tQ2 : {1}\r\nQ 3={2}",
    "one line": "Q1={0}, Q2={1}, Q3={2}.",
    "bold": "**Q1**=**{0}**\n**Q2={1}**\n__Q3__: _{2}_",
    "code spans": "`Q1`: `{0}`\n`Q2={1}`\n```\nQ3={2}\n```",
    "bullets": "- Q1={0}\n* Q2={1}\n• Q3={2}",
    "bullets without space": "-Q1={0}\n*Q2={1}\n・Q3={2}",
    "numbered 1.": "1. Q1={0}\n2. Q2={1}\n3. Q3={2}",
    "numbered 1)": "1) Q1={0}\n2) Q2={1}\n3) Q3={2}",
    "numbered unlike the ids": "1) Q3={2}\n2) Q2={1}\n3) Q1={0}",
    "sentences": "The code for Q1 is {0}. The code for Q2 is {1}.\nFor Q3, it's {2}",
    "code first": "{0} is the code for Q1.\n{1} (Q2)\nCODE={2} answers Q3",
    "Question": "Question 1: {0}\nQUESTION 2 = {1}\nquestion #3 -> {2}",
    "full-width colon": "Q1：{0}\nQ2：{1}\nQ3：{2}",
    "Japanese": "Q1の答えは{0}です。\n設問2：{1}\n問3は「{2}」である。",
    "Japanese after": "回答Q1={0}、Q2={1}、Q3={2}",
    "table": "| Q | CODE |\n|---|---|\n| Q1 | {0} |\n| Q2 | {1} |\n| Q3 | `{2}` |",
    "table with labels": (
        "| Q1 | MEMORY TARGET ALPHA | {0} |\n| Q2 | MEMORY TARGET ALPHA-07 | {1} |\n"
        "| Q3 | LOCAL CONTROL | {2} |"
    ),
    "JSON": '{{"Q1": "{0}", "Q2": "{1}", "Q3": "{2}"}}',
    "pretty JSON": '```json\n{{\n  "Q1": "{0}",\n  "Q2": "{1}",\n  "Q3": "{2}"\n}}\n```',
    "escaped newlines": r"Q1={0}\nQ2={1}\nQ3={2}",
    "arrows": "Q1 → {0}\nQ2 => {1}\nQ3 - {2}",
    "hyphen as separator": "Q1-{0}\nQ2 – {1}\nQ3—{2}",
    "question repeated": (
        "Q1: MEMORY TARGET ALPHA CODE? {0}\nQ2: MEMORY TARGET ALPHA-07 CODE?\n{1}\n\n"
        "Q3: <<< LOCAL CONTROL >>> CODE={2}"
    ),
    "id on its own line": "**Q1**\n\n{0}\n\n**Q2**\nMEMORY TARGET ALPHA-07 has {1}\nQ3:\n- {2}",
    "said twice": "Q1={0}\nQ2={1}\nQ3={2}\n\nSo: Q1={0}, Q2={1}, Q3={2}",
    "lower case": "q1=mem-422777\nq2=mem-509065\nq3=ctl-445570",
    "HTML": "<p><b>Q1</b>: <code>{0}</code><br>Q2: {1}</p>\n<li>Q3: {2}</li>",
    "boxed": r"Q1 = \boxed{{{0}}}, Q2 = \text{{{1}}}, Q3 = $\mathrm{{{2}}}$",
    "escaped punctuation": r"Q1\=MEM\-422777" + "\nQ2={1}\nQ3={2}",
    "spaces around the hyphen": "Q1=MEM - 422777\nQ2=MEM -509065\nQ3=CTL- 445570",
    "other hyphens": "Q1=MEM\u2011422777\nQ2=MEM\u2013509065\nQ3=CTL\u2212445570",
    "invisible": "\ufeffQ1=MEM-\u200b422777\nQ2={1}\u200b\nQ3=\u2060{2}",
    "zero-padded": "Q01={0}\nQ02={1}\nQ03={2}",
    "reasoning left in": "<think>Q1={1}? Q2={0}.</think>Q1={0}\nQ2={1}\nQ3={2}",
    "reasoning without its opening": "so Q1={1}\n</think>\n\nQ1={0}\nQ2={1}\nQ3={2}",
    "text around": "Here are the codes for Q1-Q3:\nQ1={0}\nQ2={1}\nQ3={2}\nThat is all 3 codes.",
}


@pytest.mark.parametrize("answer", DECORATED.values(), ids=DECORATED.keys())
def test_decoration_changes_nothing(answer: str) -> None:
    got = score(ASK, answer.format(A, B, CONTROL))

    assert got.given == {1: A, 2: B, 3: CONTROL}
    assert got.right_numbers == (1, 2)
    assert got.control_right
    assert got.all_right
    assert got.codes_present == 2
    assert not got.conflicts


def test_full_width_letters_and_digits() -> None:
    answer = (
        "Ｑ１＝ＭＥＭ－４２２７７７\nＱ２：ＭＥＭー５０９０６５\nＱ３　＝　ＣＴＬ－４４５５７０"
    )
    assert score(ASK, answer).all_right


NOT_THE_CODE = {
    "one digit more": "Q1=MEM-4227771",
    "one digit less": "Q1=MEM-42277",
    "a digit changed": "Q1=MEM-422778",
    "another prefix": "Q1=CTL-422777",
    "a longer prefix": "Q1=MEMO-422777",
    "something before the prefix": "Q1=X-MEM-422777",
    "no prefix": "Q1=422777",
    "no hyphen": "Q1=MEM422777",
    "a second part": "Q1=MEM-422777-1",
    "a letter at the end": "Q1=MEM-422777A",
    "a decimal": "Q1=MEM-422777.5",
    "a bold digit at the end": "Q1=MEM-422777**1**",
    "an underscore inside": "Q1=MEM-422_777",
    "bold inside": "Q1=MEM-4227**8**77",
    "an inline tag inside": "Q1=MEM-422777<b>1</b>",
    "a superscript digit": "Q1=MEM-42277⁷",
    "a circled digit": "Q1=MEM-42277⑦",
    "an Arabic digit more": "Q1=MEM-422777٧",
    "split digits": "Q1=MEM-422 777",
    "a line break inside": "Q1=MEM-422\n777",
    "another id": "Q4=MEM-422777",
    "a longer id": "Q11=MEM-422777",
    "an id of two parts": "Q1-2=MEM-422777",
    "a fractional id": "Q1.5=MEM-422777",
    "an id inside a word": "FAQ1=MEM-422777",
    "a list number is no id": "1. MEM-422777",
    "no id": "MEM-422777",
    "two ids": "Q1, Q2: MEM-422777",
    "denied": "Q1 is not MEM-422777",
    "denied after": "Q1: MEM-422777 is wrong",
    "denied in Japanese": "Q1はMEM-422777ではありません",
    "unequal": "Q1 != MEM-422777",
    "struck out": "Q1=~~MEM-422777~~",
    "not this id's line": "Q1: unknown\nQ2: MEM-422777",
    "first of a bare list": "Q1:\nMEM-422777\nMEM-509065",
    "only in the reasoning": "<think>Q1=MEM-422777</think>I don't know.",
    "reasoning never closed": "<think>Q1=MEM-422777\n",
    "LaTeX unequal": r"Q1 \neq MEM-422777",
}


@pytest.mark.parametrize("answer", NOT_THE_CODE.values(), ids=NOT_THE_CODE.keys())
def test_strict_on_id_and_complete_code(answer: str) -> None:
    assert 1 not in score(ASK, answer).right_numbers


@pytest.mark.parametrize(
    ("answer", "codes"),
    [
        (f"Q1={A}\nQ1={B}", (A, B)),
        (f"Q1={B}\nQ2={B}\nQ1={A}", (B, A)),
        (f"Q1={A} or {B}", (A, B)),
        (f"Q1: {A}, {B}, {CONTROL}", (A, B, CONTROL)),
    ],
)
def test_two_codes_for_one_id_are_a_conflict_and_not_right(
    answer: str, codes: tuple[str, ...]
) -> None:
    got = score(ASK, answer)

    assert got.conflicts == {1: codes}
    assert got.given[1] == codes[0]
    assert 1 not in got.right_numbers


def test_a_control_with_two_codes_is_not_right() -> None:
    assert not score(ASK, f"Q3={CONTROL}\nQ3={A}").control_right


def test_codes_present_counts_complete_codes_of_needles_only() -> None:
    got = score(ASK, f"{A} {A} {B}1 {CONTROL}")

    assert got.codes_present == 1
    assert got.codes == (A, A, f"{B}1", CONTROL)
    assert got.needles_right == 0


def test_a_name_that_looks_like_a_code_is_no_answer() -> None:
    got = score(ASK, "Q1: MEMORY TARGET ALPHA-07\nQ2: MEMORY TARGET ALPHA-07")
    assert got.given == {}
    assert got.codes == ()


def test_a_name_with_a_year_is_no_code_of_its_question() -> None:
    named = Question(1, Needle("MEMORY TARGET ALPHA-2024", A))
    ask = Ask("forward", ASK.control, (named,))

    assert score(ask, f"Q1: MEMORY TARGET ALPHA-2024 is {A}").all_right
    assert score(ask, "Q1: MEMORY TARGET ALPHA-2024").given == {}


def test_the_questions_read_back_are_no_answers() -> None:
    got = score(ASK, ASK.tail)
    assert got.given == {}
    assert got.codes == (CONTROL,)


def test_a_wrong_code_is_reported_as_given() -> None:
    got = score(ASK, "Q1=MEM-42277\nQ2=422777\nQ3=ctl445570")
    assert got.given == {1: "MEM-42277", 2: "422777", 3: "CTL445570"}


def test_quotes_are_the_answer_as_written() -> None:
    answer = f"Sure!\n**Ｑ１**： `{A}`\n{B} is for Q2"
    assert score(ASK, answer).quotes == {1: f"Ｑ１**： `{A}", 2: f"{B} is for Q2"}


def test_an_ask_without_control_needs_none() -> None:
    ask = Ask("forward", ASK.control, ASK.questions[:2])
    assert score(ask, f"Q1={A}\nQ2={B}").all_right


def test_normalise() -> None:
    assert normalise("**ｑ１**：`mem－１`") == "  Q1  : MEM-1 "
    assert normalise("MEM-4**2**") == "MEM-4**2  "


FORMS = ("{n}) {c}", "{n}. {c}", "| {n} | {c} |", "A{n}: {c}", "Answer {n}: {c}", "第{n}問 {c}")


@pytest.mark.parametrize(
    "form", [*FORMS, "**{n}.** {c}", "- {n}: `{c}`", "({n}) {c}", "第{n}問：{c}"]
)
@pytest.mark.parametrize("numbers", [(1, 2, 3), (7, 2, 5)])
def test_every_documented_form_of_an_answer_counts(form: str, numbers: tuple[int, ...]) -> None:
    ask = renumbered(numbers)
    answer = "\n".join(form.format(n=n, c=c) for n, c in ask.expected.items())
    assert score(ask, answer).all_right


@pytest.mark.parametrize("form", FORMS)
def test_a_lists_own_numbers_never_stand_for_other_questions(form: str) -> None:
    ask = renumbered((3, 1, 2))
    answer = "\n".join(form.format(n=n, c=c) for n, c in enumerate(ask.expected.values(), 1))
    assert score(ask, answer).right_numbers == ()


def test_a_line_without_a_code_is_a_question_without_an_answer() -> None:
    codes = list(ASK.expected.values())
    found = score(ASK, f"1. {codes[0]}\n2. not found\n3. {codes[2]}")
    assert found.right_numbers == (1,)
    assert found.control_right
    assert 2 not in found.given


@pytest.mark.parametrize(
    "thought",
    [
        "◁think▷{0}◁/think▷",
        "<seed:think>{0}</seed:think>",
        "{0}◁/think▷",
        "<|channel|>analysis<|message|>{0}<|end|><|start|>assistant<|channel|>final<|message|>",
    ],
)
def test_what_was_thought_is_not_the_answer(thought: str) -> None:
    wrong = "Q1=MEM-999999"
    assert score(ASK, thought.format(wrong) + ASK.answer).all_right
    assert not score(ASK, thought.format(ASK.answer)).right_numbers


def renumbered(numbers: tuple[int, ...]) -> Ask:
    pairs = zip(numbers, ASK.questions, strict=True)
    return replace(ASK, questions=tuple(replace(q, number=n) for n, q in pairs))
