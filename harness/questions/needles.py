"""Needles and questions: the grammar of what is hidden and of how it is asked.

A needle is two lines, `<<< MEMORY TARGET ALPHA >>>` and `CODE=MEM-422777`. The local control has
the same shape, stands right before the questions and can be answered without any distant look-up:
when it fails, the model or the engine is broken in general and the distant answers mean nothing.
Distractors have the needles' shape as well, with another name or another kind, and are never asked.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from harness.questions.background import NATO_NAMES, digits

GRAMMAR_VERSION = 1
"""Raised whenever the same seed would give another prompt; part of a baseline's key."""

Order = Literal["forward", "reversed", "shuffled"]
ORDERS: tuple[Order, ...] = ("forward", "reversed", "shuffled")

Language = Literal["en", "ja"]
LANGUAGES: tuple[Language, ...] = ("en", "ja")

MEMORY_TARGET = "MEMORY TARGET"
LOCAL_CONTROL = "LOCAL CONTROL"
DISTRACTOR_KINDS: tuple[str, ...] = (
    "MEMORY SOURCE",
    "MEMORY ENTRY",
    "ARCHIVE TARGET",
    "BACKUP TARGET",
    "LOCAL TARGET",
)
"""Kinds of record that no question asks for."""

COUNT_PREFIX = "COUNT"
"""Prefix of an answer that is a number of things; there alone, the number without it will do."""

CODE_PREFIXES: tuple[str, ...] = ("MEM", "KEY", "REF", "TAG", "SEQ", "LOT", "ARC", "BOX")
"""Code prefixes a needle may have; the control's is CTL."""

INSTRUCTIONS: Mapping[Language, str] = MappingProxyType(
    {
        "en": "Print exactly one line for each question: Qn=CODE. No other text.",
        "ja": "各設問に1行ずつ、Qn=CODEの形だけで答える。ほかの文は書かない。",
    }
)
INSTRUCTION = INSTRUCTIONS["en"]


@dataclass(frozen=True, slots=True)
class Needle:
    """A hidden record: its `label` is what a question names, its `code` the only right answer."""

    label: str
    code: str

    @property
    def text(self) -> str:
        """The two lines that are put into the document, newline-terminated."""
        return f"<<< {self.label} >>>\nCODE={self.code}\n"

    @property
    def wording(self) -> str:
        """What an English question says after its number."""
        return f"{self.label} CODE?"


@dataclass(frozen=True, slots=True)
class Question:
    """One numbered question; `number` is what the answer's line must name."""

    number: int
    needle: Needle
    is_control: bool = False
    language: Language = "en"

    @property
    def text(self) -> str:
        """The question's line, newline-terminated."""
        if self.language == "ja":
            return f"Q{self.number}：{self.needle.label} のCODEを答える\n"
        return f"Q{self.number}: {self.needle.wording}\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """What follows the document in one request: the local control, questions, instruction."""

    order: Order
    control: Needle
    questions: tuple[Question, ...]
    language: Language = "en"

    @property
    def tail(self) -> str:
        """Text after the document. It does not end in white space (templates may strip it)."""
        asked = "".join(question.text for question in self.questions)
        return self.control.text + asked + INSTRUCTIONS[self.language]

    @property
    def expected(self) -> dict[int, str]:
        """Right code by question number."""
        return {q.number: q.needle.code for q in self.questions}

    @property
    def answer(self) -> str:
        """The perfect answer: one line a question, in the order asked, no newline at the end."""
        return "\n".join(f"Q{q.number}={q.needle.code}" for q in self.questions)


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

    def go_on(self, rng: random.Random, used: Iterable[str]) -> None:
        """Draw from `rng` from now on, and none of the codes `used` elsewhere."""
        self._rng = rng
        self._used |= {code.rsplit("-", 1)[-1] for code in used}


def needle_names(rng: random.Random, count: int, *, alike: bool = False) -> list[str]:
    """`count` distinct names: NATO names first (shuffled), then two-part ones (`ALPHA-07`).

    With `alike`, families instead: a NATO name and two-part names that begin with it, up to four
    members each, so that a look-up by the first part alone gives the wrong record.
    """
    names = list(NATO_NAMES)
    rng.shuffle(names)
    if alike:
        names = [member for name in names for member in _family(rng, name)][:count]
    seen = set(names)
    while len(names) < count:
        name = f"{rng.choice(NATO_NAMES)}-{digits(rng, 2)}"
        if name not in seen:
            seen.add(name)
            names.append(name)
    return names[:count]


def _family(rng: random.Random, name: str) -> list[str]:
    number = digits(rng, 2)
    others = [number[::-1], number[0] + digits(rng, 1)]
    members = [name, *(f"{name}-{suffix}" for suffix in dict.fromkeys([number, *others]))]
    rng.shuffle(members)
    return members


def distractors(
    rng: random.Random, needles: Sequence[Needle], codes: CodeSource, count: int
) -> list[Needle]:
    """`count` records of the needles' shape that no question asks for.

    In turn: a needle's own name under another kind, and a needle's kind under a name that begins
    like a needle's. No label equals a needle's.
    """
    taken = {needle.label for needle in needles}
    found: list[Needle] = []
    while len(found) < count:
        name = rng.choice(needles).label.rsplit(" ", 1)[-1]
        if len(found) % 2 == 0:
            label = f"{rng.choice(DISTRACTOR_KINDS)} {name}"
        else:
            label = f"{MEMORY_TARGET} {name.split('-')[0]}-{digits(rng, 2)}"
        if label in taken:
            label = f"{rng.choice(DISTRACTOR_KINDS)} {rng.choice(NATO_NAMES)}-{digits(rng, 2)}"
        if label not in taken:
            taken.add(label)
            found.append(Needle(label, codes.take(rng.choice(CODE_PREFIXES))))
    return found


def make_ask(
    needles: Sequence[Needle],
    codes: CodeSource,
    order: Order,
    rng: random.Random,
    *,
    language: Language = "en",
    numbers: Sequence[int] | None = None,
) -> Ask:
    """Questions for `needles` in document order, reversed or shuffled, the control's last.

    Only `shuffled` moves the control's question too. `numbers` are the questions' numbers in the
    order asked (1, 2, 3 … by default).

    Raises:
        ValueError: `numbers` are not as many distinct numbers as there are questions.
    """
    control = Needle(LOCAL_CONTROL, codes.take("CTL"))
    asked: list[tuple[Needle, bool]] = [(needle, False) for needle in needles]
    if order == "reversed":
        asked.reverse()
    asked.append((control, True))
    if order == "shuffled":
        rng.shuffle(asked)
    chosen = range(1, len(asked) + 1) if numbers is None else numbers
    if len(set(chosen)) != len(asked):
        raise ValueError(
            f"{len(asked)} questions need as many distinct numbers, got {list(chosen)}"
        )
    return Ask(order, control, _numbered(asked, chosen, language), language)


def _numbered(
    asked: Iterable[tuple[Needle, bool]], numbers: Iterable[int], language: Language
) -> tuple[Question, ...]:
    return tuple(
        Question(number, needle, is_control, language)
        for number, (needle, is_control) in zip(numbers, asked, strict=True)
    )
