"""Classes of failure: the field's own tables, each class by itself, and what may never happen."""

from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.questions.cases import Case, cases
from harness.questions.degenerate import degeneration
from harness.questions.failures import Diagnosis, FailureClass, ForeignOrigin, classify
from harness.questions.needles import Ask, Needle, Question
from harness.questions.scoring import score

CODES = ("MEM-422777", "MEM-130951", "MEM-778210", "MEM-246813", "MEM-509065")
CONTROL = "CTL-445570"
NAMES = ("ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO")
ASK = Ask(
    "forward",
    Needle("LOCAL CONTROL", CONTROL),
    (
        *(
            Question(n, Needle(f"MEMORY TARGET {name}", code))
            for n, (name, code) in enumerate(zip(NAMES, CODES, strict=True), start=1)
        ),
        Question(6, Needle("LOCAL CONTROL", CONTROL), is_control=True),
    ),
)
NEEDLES_RIGHT = "\n".join(f"Q{n}={code}" for n, code in enumerate(CODES, start=1))
RIGHT = f"{NEEDLES_RIGHT}\nQ6={CONTROL}"


def diagnose(
    answer: str,
    *,
    reasoning: str = "",
    finish: str | None = "stop",
    foreign: Mapping[str, ForeignOrigin] | None = None,
    ask: Ask = ASK,
) -> Diagnosis:
    return classify(ask, score(ask, answer), answer, reasoning, finish, foreign or {})


# The four stages in which a 2B model's answers broke between 32K and 4M tokens.


def test_field_table_up_to_1m_five_of_five_and_the_control() -> None:
    got = diagnose(RIGHT)

    assert score(ASK, RIGHT).needles_right == 5
    assert (got.kind, got.invalid) == ("right", ())


def test_field_table_1500k_only_the_controls_prefix_is_wrong() -> None:
    answer = f"{NEEDLES_RIGHT}\nQ6=MEM-445570"
    got = diagnose(answer)

    assert score(ASK, answer).needles_right == 5
    assert got.kind == "wrong_prefix"
    assert got.invalid == ("control_failed",)
    assert got.evidence == ("Q6=MEM-445570",)
    assert got.reason == (
        "Q6: MEM-445570 instead of CTL-445570: digits right, prefix wrong or missing"
    )


def test_field_table_2m_complete_codes_without_ids() -> None:
    answer = "ALPHA MEM-422777 MEM-509065\nMEM-130951, MEM-778210\n\nCODE=MEM-246813 CODE"
    got = diagnose(answer)

    scored = score(ASK, answer)
    assert (scored.needles_right, scored.codes_present) == (0, 5)
    assert got.kind == "lost_mapping"
    assert got.invalid == ("control_failed",)
    assert [f.kind for f in got.findings] == ["lost_mapping"] * 5 + ["incomplete"]
    assert got.evidence == (answer,)


def test_field_table_4m_one_cut_code_six_times() -> None:
    answer = "\n".join(f"Q{n}=MEM-42277" for n in range(1, 7))
    got = diagnose(answer)

    scored = score(ASK, answer)
    assert (scored.needles_right, scored.codes_present) == (0, 0)
    assert got.kind == "repetition"
    assert got.invalid == ("control_failed",)
    assert got.reason == "one code, MEM-42277, 6 times: Q1's MEM-422777, cut or changed"
    assert "Q1=MEM-42277" in got.evidence
    assert got.findings[0].kind == "digit_changed"
    assert "digits cut" in got.findings[0].note


# Each class by itself.

SWAPPED = RIGHT.replace("Q1=MEM-422777\nQ2=MEM-130951", "Q1=MEM-130951\nQ2=MEM-422777")
EACH: dict[str, tuple[str, FailureClass, tuple[str, ...], tuple[str, ...]]] = {
    "digit changed": (
        RIGHT.replace("422777", "422787"),
        "digit_changed",
        (),
        ("Q1=MEM-422787",),
    ),
    "digit cut": (RIGHT.replace("422777", "42277"), "digit_changed", (), ("Q1=MEM-42277",)),
    "another number altogether": (
        RIGHT.replace("422777", "999999"),
        "foreign_code",
        (),
        ("Q1=MEM-999999",),
    ),
    "prefix": (RIGHT.replace("Q1=MEM", "Q1=KEY"), "wrong_prefix", (), ("Q1=KEY-422777",)),
    "prefix missing": (RIGHT.replace("Q1=MEM-", "Q1="), "wrong_prefix", (), ("Q1=422777",)),
    "swapped": (SWAPPED, "swapped", (), ("Q1=MEM-130951", "Q2=MEM-422777")),
    "control swapped": (
        f"{NEEDLES_RIGHT}\nQ6={CODES[0]}",
        "swapped",
        ("control_failed",),
        ("Q6=MEM-422777",),
    ),
    "ids lost, numbered list": (
        "\n".join(f"{n}. {c}" for n, c in enumerate([*CODES, CONTROL], 11)),
        "lost_mapping",
        ("control_failed",),
        ("11. MEM-422777\n12. MEM-130951\n13. MEM-778210\n14. MEM-246813\n15. MEM-509065\n16. …",),
    ),
    "right code six times": (
        "\n".join(f"Q{n}={CODES[0]}" for n in range(1, 7)),
        "repetition",
        ("control_failed",),
        ("Q1=MEM-422777", "Q2=MEM-422777", "Q3=MEM-422777"),
    ),
    "a code three times without ids": (
        "MEM-42277\nMEM-42277\nMEM-42277",
        "repetition",
        ("control_failed",),
        ("MEM-42277",),
    ),
    "two codes for an id": (f"{RIGHT}\nQ1=MEM-422770", "conflict", (), ()),
    "a line missing": (RIGHT.replace("Q3=MEM-778210\n", ""), "incomplete", (), ()),
    "control missing": (NEEDLES_RIGHT, "control_failed", ("control_failed",), ()),
    "refusal": (
        "I'm sorry, but I can't find these records.",
        "refusal_or_empty",
        ("control_failed",),
        ("I'm sorry, but I can't find these records.",),
    ),
    "empty": (" \n", "refusal_or_empty", ("control_failed",), ()),
    "slashes": ("/" * 300, "degenerate", ("control_failed",), ("“/” × 300", "/" * 79 + "…")),
    "a phrase": ("the code is " * 40, "degenerate", ("control_failed",), ()),
    "junk after two answers": (
        f"Q1={CODES[0]}\nQ2={CODES[1]}\n" + "\ufffd" * 60,
        "degenerate",
        ("control_failed",),
        ("“\ufffd” × 60",),
    ),
}


@pytest.mark.parametrize(("answer", "kind", "invalid", "evidence"), EACH.values(), ids=EACH.keys())
def test_each_class(
    answer: str, kind: FailureClass, invalid: tuple[str, ...], evidence: tuple[str, ...]
) -> None:
    got = diagnose(answer)

    assert got.kind == kind
    assert got.invalid == invalid
    assert set(evidence) <= set(got.evidence)
    assert got.valid == (not invalid)


def test_one_question_wrong_leaves_the_others_right() -> None:
    got = diagnose(RIGHT.replace("Q3=MEM-778210", "Q3=MEM-509065"))

    assert [f.kind for f in got.findings] == [
        "right",
        "right",
        "swapped",
        "right",
        "right",
        "right",
    ]
    assert got.findings[2].resembles == 5


def test_most_of_the_wrong_questions_name_the_class() -> None:
    answer = (
        RIGHT.replace("Q1=MEM", "Q1=KEY").replace("Q2=MEM", "Q2=KEY").replace("778210", "778211")
    )
    assert diagnose(answer).kind == "wrong_prefix"
    # at a tie the graver one
    assert diagnose(answer.replace("Q2=KEY", "Q2=MEM")).kind == "digit_changed"


def test_a_cut_answer_is_invalid_by_its_budget_not_by_its_control() -> None:
    got = diagnose("Q1=MEM-422777\nQ2=MEM-13", finish="length")

    assert got.kind == "budget"
    assert got.invalid == ("budget",)
    assert got.evidence == ("Q1=MEM-422777\nQ2=MEM-13",)
    assert "before Q2, Q3, Q4, Q5, Q6;" in got.reason


@pytest.mark.parametrize("kept", range(1, len(CONTROL)))
def test_a_budget_that_ends_within_the_last_code_is_no_cut_digit(kept: int) -> None:
    answer = f"{NEEDLES_RIGHT}\nQ6={CONTROL[:kept]}"

    got = diagnose(answer, finish="length")
    assert (got.kind, got.invalid) == ("budget", ("budget",))
    assert "before Q6" in got.reason
    assert diagnose(answer, finish="stop").invalid == ("control_failed",)


def test_a_wrong_last_code_at_the_budgets_end_is_still_wrong() -> None:
    got = diagnose(f"{NEEDLES_RIGHT}\nQ6=CTL-445571", finish="length")
    assert (got.kind, got.invalid) == ("digit_changed", ("control_failed",))


def test_a_thinking_model_that_never_came_to_answer_is_cut_by_its_budget() -> None:
    got = diagnose("", reasoning=f"Let me see. {RIGHT}", finish="length")

    assert got.kind == "budget"
    assert all(f.kind == "incomplete" for f in got.findings)
    assert "characters of reasoning" in got.reason


def test_a_budget_that_ends_after_the_last_answer_costs_nothing() -> None:
    assert diagnose(RIGHT + "\nQ7=MEM-1", finish="length").kind == "right"


def _ids(count: int) -> str:
    return "MENU:\n" + "".join(f"Q{number}:\n" for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("answer", "finish", "kind"),
    [
        (_ids(60), "length", "degenerate"),
        (_ids(13), "length", "degenerate"),
        (_ids(12), "length", "budget"),
        (_ids(60), "stop", "refusal_or_empty"),
        (f"{RIGHT}\n{_ids(60)}", "length", "right"),
    ],
)
def test_questions_listed_without_end_are_no_matter_of_the_budget(
    answer: str, finish: str, kind: str
) -> None:
    got = diagnose(answer, finish=finish)
    assert got.kind == kind
    assert ("budget" in got.invalid) == (kind == "budget")


def test_a_larger_budget_would_not_mend_degenerate_text() -> None:
    got = diagnose("/" * 500, finish="length")
    assert (got.kind, got.invalid) == ("degenerate", ("control_failed",))


def test_an_endless_list_of_one_code_is_repetition_not_budget() -> None:
    got = diagnose("\n".join(f"Q{n}=MEM-42277" for n in range(1, 90)), finish="length")
    assert got.kind == "repetition"


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_one_line_said_again_and_again_is_repetition_even_when_it_is_right(finish: str) -> None:
    got = diagnose(f"Q1={CODES[0]}\n" * 9, finish=finish)

    assert got.kind == "repetition"
    assert got.invalid == ("control_failed",)
    assert got.reason == f"one code, {CODES[0]}, 9 times: Q1's"
    # said once for each question is not too often
    assert diagnose(f"Q1={CODES[0]}\n" * 6, finish="stop").kind == "incomplete"


FOREIGN: dict[str, ForeignOrigin] = {
    "CTL-900001": "earlier_request",
    "MEM-900002": "unasked_needle",
}


def test_another_requests_answer_is_contamination() -> None:
    got = diagnose(RIGHT.replace(CONTROL, "CTL-900001"), foreign=FOREIGN)

    assert got.kind == "foreign_code"
    assert got.contaminated
    assert got.invalid == ("contaminated", "control_failed")
    assert "Q6=CTL-900001" in got.evidence


def test_a_foreign_code_beside_right_answers_is_contamination_too() -> None:
    got = diagnose(f"{RIGHT}\nCTL-900001", foreign=FOREIGN)

    assert got.kind == "foreign_code"
    assert got.invalid == ("contaminated",)
    assert got.evidence == ("CTL-900001",)


def test_a_needle_that_was_not_asked_is_a_mix_up_not_contamination() -> None:
    got = diagnose(RIGHT.replace(CODES[1], "MEM-900002"), foreign=FOREIGN)

    assert got.kind == "foreign_code"
    assert not got.contaminated
    assert got.evidence == ("Q2=MEM-900002",)
    assert "unasked needle" in got.reason


def test_a_code_that_is_asked_here_is_not_foreign() -> None:
    assert diagnose(RIGHT, foreign={CODES[0]: "earlier_request"}).kind == "right"


@given(cases(), st.text(), st.sampled_from(["stop", "length", None]))
def test_right_exactly_when_everything_is_right(case: Case, text: str, finish: str | None) -> None:
    for answer in (case.ask.answer, text, case.ask.answer + "\n" + text):
        got = diagnose(answer, finish=finish, ask=case.ask)
        assert (got.kind == "right") == score(case.ask, answer).all_right
        assert got.kind in get_args(FailureClass)
        assert [f.number for f in got.findings] == [q.number for q in case.ask.questions]


@given(cases(), st.data())
def test_evidence_is_in_the_answer(case: Case, data: st.DataObject) -> None:
    lines = case.ask.answer.split("\n")
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = lines[number][: data.draw(st.integers(0, len(lines[number]) - 1))]
    answer = "\n".join(lines)

    got = diagnose(answer, ask=case.ask)

    assert got.kind != "right"
    assert all(bit.strip("…") in answer for bit in got.evidence)
    assert case.ask.questions[number].number in [
        f.number for f in got.findings if f.kind != "right"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I could not find the records that you asked for in the document above. " * 2,
        RIGHT,
        "\n".join(f"Q{n}=MEM-42277" for n in range(1, 200)),
        "| Q | CODE |\n|" + "-" * 40 + "|" + "-" * 40 + "|\n| Q1 | MEM-422777 |",
        "-" * 8,
    ],
)
def test_ordinary_text_is_not_degenerate(text: str) -> None:
    assert degeneration(text) is None


@pytest.mark.parametrize(
    ("text", "bit"),
    [
        ("!" * 20, "“!” × 20"),
        ("Sure: " + "a" * 30, "“a” × 30"),
        ("the " * 60, "the"),
        ("\ufffd\u0001" * 10, "20 of 20 characters"),
        ("Q1: MEMORY TARGET ALPHA CODE?\n" * 20, "Q1: MEMORY TARGET ALPHA CODE?” × 19"),
    ],
)
def test_degenerate_text_is_told_with_its_measure(text: str, bit: str) -> None:
    assert bit in (degeneration(text) or "")
