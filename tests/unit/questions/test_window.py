"""What an answer about the loudest name says of the window that gave it."""

import random
from collections.abc import Sequence

import pytest

from harness.questions.haystack import Segment, grow
from harness.questions.window import BACK_TOKENS, LOUD, QUIET, WINDOW_TOKENS, Window, diagnose

BUDGETS = [(2048, 1700), (8192, 7200)]
END_TOKENS = 8


def count(texts: Sequence[str]) -> list[int]:
    """A word or a newline is one token; a mark has four as with our tokenizer."""
    return [4 if t.startswith("Mark") else len(t.split()) + 1 for t in texts]


def tokens_after(text: str) -> int:
    return len(text.split()) + text.count("\n") + END_TOKENS


@pytest.fixture(scope="module")
def made() -> tuple[Window, list[Segment]]:
    plan = Window(BUDGETS, random.Random(1))
    segments = grow(
        BUDGETS, plan.planned, count, seed=1, background="plain", distractors=plan.decoys
    )
    return plan, segments


def seen(text: str, window: int) -> str:
    """The loudest name a window sees, as the member answers it."""
    words = [w for w in text.replace("\n", " \n ").split(" ") if w][-(window - END_TOKENS) :]
    names = [w for w in words if w in LOUD] or [w for w in words if w in QUIET]
    return names[-1]


def answers(made: tuple[Window, list[Segment]], window: int) -> list[str]:
    plan, segments = made
    document = "".join(s.text for s in segments)
    asks = plan.asks(segments, tokens_after)
    return [ask.diagnose(seen(document + ask.tail, window)).kind for ask in asks]


def test_a_right_window_answers_every_ask(made: tuple[Window, list[Segment]]) -> None:
    assert answers(made, WINDOW_TOKENS) == ["right"] * len(BACK_TOKENS)


@pytest.mark.parametrize(
    ("window", "wrong"),
    [
        (127, {127: "narrow_window"}),
        (120, {126: "narrow_window", 127: "narrow_window"}),
        (129, {128: "outside_window"}),
        (140, {128: "outside_window", 129: "outside_window", 130: "outside_window"}),
    ],
)
def test_every_token_too_many_or_too_few_is_seen(
    made: tuple[Window, list[Segment]], window: int, wrong: dict[int, str]
) -> None:
    assert answers(made, window) == [wrong.get(back, "right") for back in BACK_TOKENS]


def test_a_window_without_end_answers_names_from_anywhere() -> None:
    for given in ("ALPHA", "BRAVO"):
        found = diagnose("ALPHA", "ZULU", 130, given)
        assert found.kind == "outside_window"
    assert "130 tokens back" in diagnose("ALPHA", "ZULU", 130, "ALPHA").reason
    assert "further back" in diagnose("ALPHA", "ZULU", 130, "BRAVO").reason


def test_the_near_name_is_counted_apart() -> None:
    near = diagnose("ALPHA", "ZULU", BACK_TOKENS[0], "ZULU")
    assert (near.kind, near.near_right, near.findings) == ("narrow_window", False, ())


@pytest.mark.parametrize("given", ["", "the the", "ALPHA ZULU", "YANKEE"])
def test_anything_else_is_unreadable(given: str) -> None:
    assert diagnose("ALPHA", "ZULU", 100, given).kind == "unreadable"


def test_words_that_are_not_one_token_are_refused(made: tuple[Window, list[Segment]]) -> None:
    with pytest.raises(ValueError, match="a name cannot be put 48 tokens before the answer"):
        made[0].asks(made[1], lambda text: 2 * tokens_after(text))
