"""A real server made wrong on purpose: every kind of wrong answer gets its class."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from harness.measuring.asking import Answered, Interview
from harness.questions.haystack import Placed, grow
from harness.questions.needles import CodeSource, Needle, make_ask
from tests.e2e import proxy as wrong
from tests.e2e.live import Live, live

NAMES = ("ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("wrong"), n_ctx=2048) as opened:
        yield opened


@dataclass
class Book:
    """A document that was read, and questions about it."""

    served: Live
    interview: Interview
    text: str
    tokens: int
    needles: list[Needle]
    codes: CodeSource

    def ask(self, change: wrong.Change | None = None, *, cold: bool = False) -> Answered:
        """Five questions in document order and the control's; the answer changed on its way."""
        ask = make_ask(self.needles, self.codes, "forward", random.Random(0))
        if change is not None:
            self.served.proxy.change = change
        return self.interview.ask(self.text, self.tokens, ask, cold=cold)


@pytest.fixture(scope="module")
def text(served: Live) -> tuple[str, int, list[Needle], CodeSource]:
    codes = CodeSource(random.Random("wrong answers"))
    needles = [Needle(f"MEMORY TARGET {name}", codes.take("MEM")) for name in NAMES]
    planned = [Placed(needle, 120 * i + 40, 0.0) for i, needle in enumerate(needles)]
    (segment,) = grow(
        [(1024, 800)], {1024: planned}, served.script.count, seed=1, background="plain"
    )
    return segment.text, segment.total_tokens, needles, codes


@pytest.fixture
def book(served: Live, text: tuple[str, int, list[Needle], CodeSource]) -> Book:
    interview = served.interview()
    interview.begin_document(text[2])
    interview.read(text[0], text[1], reuse=False)
    return Book(served, interview, *text)


CLASSES = {
    "swapped": wrong.swap_two,
    "digit_changed": wrong.cut_digits,
    "wrong_prefix": wrong.change_prefix,
    "repetition": wrong.repeat_one,
    "lost_mapping": wrong.drop_ids,
    "degenerate": wrong.slashes,
    "refusal_or_empty": wrong.nothing,
    "control_failed": wrong.drop_last,
}


def test_unchanged_answers_are_right(book: Book) -> None:
    answered = book.ask(wrong.unchanged)
    assert answered.right
    assert answered.record.needles_right == answered.record.needles_asked == len(NAMES)
    assert book.served.proxy.asked == 1


@pytest.mark.parametrize("kind", CLASSES)
def test_a_changed_answer_has_its_class(book: Book, kind: str) -> None:
    answered = book.ask(CLASSES[kind])
    assert answered.diagnosis.kind == kind
    assert answered.record.failure_class == kind
    assert answered.record.failure_reason
    assert not answered.right


def test_a_code_of_the_request_before_is_contamination(book: Book) -> None:
    change = wrong.of_an_earlier_request()
    assert book.ask(change).right
    answered = book.ask(change)
    assert answered.diagnosis.kind == "foreign_code"
    assert answered.record.invalid[0] == "contaminated"


def test_a_wrong_rope_base_fails_the_control_too(
    tmp_path_factory: pytest.TempPathFactory, text: tuple[str, int, list[Needle], CodeSource]
) -> None:
    with live(tmp_path_factory.mktemp("rope"), "--rope-freq-base", "10000", n_ctx=2048) as broken:
        answered = Book(broken, broken.interview(), *text).ask(cold=True)
    assert "control_failed" in answered.record.invalid


def test_an_answer_that_its_budget_cut_is_asked_again_with_four_times_as_much(
    book: Book, served: Live
) -> None:
    book.interview = served.interview(served.settings.model_copy(update={"answer_tokens": 24}))
    book.interview.begin_document(book.needles)
    answered = book.ask()
    first, second = [a.ask for a in served.asks]
    assert first.failure_class == "budget"
    assert first.superseded
    assert not second.superseded
    assert answered.right
    assert first.predicted_tokens == 24
    assert (second.predicted_tokens or 0) > 24


def test_an_answer_wrong_by_itself_is_not_asked_again(book: Book, served: Live) -> None:
    book.ask(wrong.swap_two)
    assert [a.ask.superseded for a in served.asks] == [False]
    assert served.proxy.asked == 1
