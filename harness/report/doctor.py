"""The machine's examination as text: what is in the way first, a next step with each line."""

import textwrap
from collections.abc import Iterable, Sequence

from harness.machine.doctor import GRADES, Grade, Line

_HEADINGS: dict[Grade, str] = {
    "in the way": "In the way",
    "look": "To look at",
    "unknown": "Not readable here",
    "fine": "As it should be, or only told",
}


def doctor_text(name: str, lines: Sequence[Line], width: int = 80) -> str:
    """The answer in the first line, then the lines under their grades."""
    counts = [sum(line.grade == grade for line in lines) for grade in GRADES]
    answer = f"{counts[0]} in the way of trustworthy numbers" if counts[0] else "nothing in the way"
    text = [*_folded(f"{name}: {answer}; {counts[1]} to look at", width, "")]
    for grade, count in zip(GRADES, counts, strict=True):
        if count:
            text += ["", _HEADINGS[grade]]
            for line in lines:
                if line.grade == grade:
                    text += _line(line, width)
    return "\n".join(text) + "\n"


def _line(line: Line, width: int) -> Iterable[str]:
    yield from _folded(f"{line.topic}: {line.seen}", width, "  ")
    if line.next_step is not None:
        yield from _folded(f"next: {line.next_step}", width, "    ")
    if line.source is not None:
        yield from _folded(f"source: {line.source}", width, "    ")


def _folded(text: str, width: int, indent: str) -> Iterable[str]:
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
