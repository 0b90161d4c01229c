"""Needles and questions: the grammar of what is hidden and of how it is asked.

A needle is two lines, `<<< MEMORY TARGET ALPHA >>>` and `CODE=MEM-422777`. The local control has
the same shape, stands right before the questions and can be answered without any distant look-up:
when it fails, the model or the engine is broken in general and the distant answers mean nothing.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.background import NATO_NAMES, digits

GRAMMAR_VERSION = 1
"""Raised whenever the same seed would give another prompt; part of a baseline's key."""

Order = Literal["forward", "reversed", "shuffled"]
ORDERS: tuple[Order, ...] = ("forward", "reversed", "shuffled")

MEMORY_TARGET = "MEMORY TARGET"
LOCAL_CONTROL = "LOCAL CONTROL"
INSTRUCTION = "Print exactly one line for each question: Qn=CODE. No other text."


@dataclass(frozen=True, slots=True)
class Needle:
    """A hidden record: its `label` is what a question names, its `code` the only right answer."""

    label: str
    code: str

    @property
    def text(self) -> str:
        """The two lines that are put into the document, newline-terminated."""
        return f"<<< {self.label} >>>\nCODE={self.code}\n"


@dataclass(frozen=True, slots=True)
class Question:
    """One numbered question; `number` counts from 1 in the order asked."""

    number: int
    needle: Needle
    is_control: bool = False

    @property
    def text(self) -> str:
        """The question's line, newline-terminated."""
        return f"Q{self.number}: {self.needle.label} CODE?\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """What follows the document in one request: the local control, questions, instruction."""

    order: Order
    control: Needle
    questions: tuple[Question, ...]

    @property
    def tail(self) -> str:
        """Text after the document. It does not end in white space (templates may strip it)."""
        return self.control.text + "".join(q.text for q in self.questions) + INSTRUCTION

    @property
    def expected(self) -> dict[int, str]:
        """Right code by question number."""
        return {q.number: q.needle.code for q in self.questions}


class CodeSource:
    """Codes that are unique within a run, so that a foreign code can be told from a wrong one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._used: set[str] = set()

    def take(self, prefix: str) -> str:
        """A code `PREFIX-dddddd` whose digits no earlier code of this source has."""
        while (number := digits(self._rng, 6)) in self._used:
            pass
        self._used.add(number)
        return f"{prefix}-{number}"


def needle_names(rng: random.Random, count: int) -> list[str]:
    """`count` distinct names: NATO names first (shuffled), then two-part ones (`ALPHA-07`)."""
    names = list(NATO_NAMES)
    rng.shuffle(names)
    seen = set(names)
    while len(names) < count:
        name = f"{rng.choice(NATO_NAMES)}-{digits(rng, 2)}"
        if name not in seen:
            seen.add(name)
            names.append(name)
    return names[:count]


def make_ask(
    needles: Sequence[Needle], codes: CodeSource, order: Order, rng: random.Random
) -> Ask:
    """Questions for `needles` in document order, reversed or shuffled, the control's last.

    Only `shuffled` moves the control's question too.
    """
    control = Needle(LOCAL_CONTROL, codes.take("CTL"))
    asked: list[tuple[Needle, bool]] = [(needle, False) for needle in needles]
    if order == "reversed":
        asked.reverse()
    asked.append((control, True))
    if order == "shuffled":
        rng.shuffle(asked)
    return Ask(order, control, _numbered(asked))


def _numbered(asked: Iterable[tuple[Needle, bool]]) -> tuple[Question, ...]:
    return tuple(
        Question(number, needle, is_control)
        for number, (needle, is_control) in enumerate(asked, start=1)
    )
