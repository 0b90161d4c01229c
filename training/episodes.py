"""Random conversations in the product's grammar: what is hidden, what is asked, in which words.

An episode is text in parts, not tokens: training packs it into short samples with a few background
lines, evaluation spreads it over a document of any length.
"""

import random
from dataclasses import dataclass

from harness.questions.background import NATO_NAMES, OTHER_NAMES
from harness.questions.needles import (
    CODE_PREFIXES,
    DISTRACTOR_KINDS,
    LOCAL_CONTROL,
    MEMORY_TARGET,
    CodeSource,
    Language,
    Needle,
    Question,
    distractors,
    needle_names,
)
from training.wording import (
    AGAIN,
    HEADINGS,
    QUESTION_HEADINGS,
    SYSTEM_MESSAGES,
    instructions,
)

Part = str | Needle | Question
MAX_QUESTIONS = 9
"""Questions of one episode, the control's and those of a second turn counted in."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message's part after the document: records, questions and instruction in order."""

    parts: tuple[Part, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(part for part in self.parts if isinstance(part, Question))

    @property
    def text(self) -> str:
        """The message text; it never ends in a newline."""
        joined = "".join(part if isinstance(part, str) else part.text for part in self.parts)
        return joined.removesuffix("\n")

    @property
    def answer(self) -> str:
        return "\n".join(f"Q{q.number}={q.needle.code}" for q in self.questions)


@dataclass(frozen=True, slots=True)
class Episode:
    """A system message or none, a heading or none, records for the document, one or two turns."""

    system: str | None
    heading: str
    records: tuple[Needle, ...]
    turns: tuple[Turn, ...]


def make_episode(rng: random.Random, *, max_records: int, easy: bool = False) -> Episode:
    """One random episode with at most `max_records` records (distractors included)."""
    codes = CodeSource(rng)
    if easy:
        count = rng.randint(1, 3)
    elif rng.random() < 0.75:
        count = rng.randint(1, 8)
    else:
        count = rng.randint(6, max(6, max_records))
    count = min(count, max_records)
    needles = [Needle(label, _code(rng, codes)) for label in _labels(rng, count)]
    spare = max_records - count
    decoys = (
        distractors(rng, needles, codes, min(spare, rng.randint(1, 6)))
        if spare > 0 and rng.random() < 0.45 and not easy
        else []
    )
    records = [*needles, *decoys]
    rng.shuffle(records)
    language: Language = "ja" if rng.random() < 0.25 else "en"
    turns: list[Turn] = []
    left = MAX_QUESTIONS
    wanted = 2 if rng.random() < 0.12 and not easy else 1
    control: Needle | None = None
    while len(turns) < wanted and left > 1:
        fresh = rng.random() < (0.88 if not turns else 0.5)
        if fresh:
            control = Needle(LOCAL_CONTROL, _control_code(rng, codes))
        ceiling = 3 if easy else left if len(turns) + 1 == wanted else left - 3
        turn = _turn(rng, needles, control, fresh, max(1, ceiling), language, len(turns))
        turns.append(turn)
        left -= len(turn.questions)
    system = rng.choice(SYSTEM_MESSAGES) if rng.random() < 0.15 else None
    heading = rng.choice(HEADINGS) + "\n" if rng.random() < 0.25 else ""
    return Episode(system, heading, tuple(records), tuple(turns))


def _turn(
    rng: random.Random,
    needles: list[Needle],
    control: Needle | None,
    show_control: bool,
    ceiling: int,
    language: Language,
    turns_before: int,
) -> Turn:
    ask_control = control is not None and rng.random() < 0.85
    most = min(ceiling - ask_control, len(needles), 8)
    count = rng.randint(1, max(1, most)) if most > 0 else 0
    if rng.random() < 0.3:
        count = max(count, most)
    asked = rng.sample(needles, count)
    if rng.random() < 0.5:
        asked.sort(key=needles.index)
    if control is not None and (ask_control or not asked):
        asked.append(control)
        if rng.random() < 0.4:
            rng.shuffle(asked)
    questions = [
        Question(number, needle, needle is control, language)
        for number, needle in zip(_numbers(rng, len(asked)), asked, strict=True)
    ]
    instruction = rng.choice(instructions(language))
    if rng.random() < 0.5:
        instruction = instructions(language)[0]
    parts: list[Part] = []
    if turns_before and rng.random() < 0.4:
        parts.append(rng.choice(AGAIN) + "\n")
    if show_control and control is not None:
        parts.append(control)
    if rng.random() < 0.25:
        parts.append(rng.choice(QUESTION_HEADINGS) + "\n")
    first = rng.random() < 0.15
    if first:
        parts.append(instruction + "\n")
    parts.extend(questions)
    if not first:
        parts.append(instruction)
    return Turn(tuple(parts))


def _numbers(rng: random.Random, count: int) -> list[int]:
    draw = rng.random()
    if draw < 0.55:
        return list(range(1, count + 1))
    if draw < 0.70:
        start = rng.randint(1, 99 - count)
        return list(range(start, start + count))
    if draw < 0.85 and count <= 9:
        return rng.sample(range(1, 10), count)
    return rng.sample(range(1, 100), count)


def _labels(rng: random.Random, count: int) -> list[str]:
    draw = rng.random()
    if draw < 0.45:
        names = needle_names(rng, count)
    elif draw < 0.75:
        names = needle_names(rng, count, alike=True)
    else:
        names = _free_names(rng, count)
    labels = []
    for name in names:
        kind = MEMORY_TARGET if rng.random() < 0.93 else rng.choice(DISTRACTOR_KINDS)
        labels.append(f"{kind} {name}")
    return labels


def _free_names(rng: random.Random, count: int) -> list[str]:
    """Names outside NATO's, and two-part names close to one another."""
    found: dict[str, None] = {}
    family = rng.choice(NATO_NAMES) if rng.random() < 0.5 else None
    while len(found) < count:
        draw = rng.random()
        if family and draw < 0.5:
            name = f"{family}-{_digits(rng, 2)}"
        elif draw < 0.75:
            name = rng.choice(OTHER_NAMES)
        elif draw < 0.85:
            name = "".join(rng.choice(_LETTERS) for _ in range(rng.randint(3, 6)))
        else:
            name = rng.choice(NATO_NAMES)
        if "-" not in name and rng.random() < 0.5:
            name = f"{name}-{_digits(rng, rng.choice((1, 2, 2, 2, 3)))}"
        found.setdefault(name)
    return list(found)


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


def _code(rng: random.Random, codes: CodeSource) -> str:
    draw = rng.random()
    if draw < 0.55:
        prefix = "MEM"
    elif draw < 0.8:
        prefix = rng.choice(CODE_PREFIXES)
    elif draw < 0.85:
        prefix = "CTL"
    else:
        prefix = "".join(rng.choice(_LETTERS) for _ in range(rng.choice((2, 3, 3, 3, 4))))
    if rng.random() < 0.7:
        return codes.take(prefix)
    alphabet = rng.sample("0123456789", rng.choice((1, 2, 2, 2, 3)))
    return f"{prefix}-{''.join(rng.choice(alphabet) for _ in range(6))}"


def _control_code(rng: random.Random, codes: CodeSource) -> str:
    return codes.take("CTL") if rng.random() < 0.85 else _code(rng, codes)
