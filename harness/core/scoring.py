"""Scoring answers: by question id and by complete code, never by wording."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.needles import Ask

_ANSWER = re.compile(r"(?<![A-Z0-9])Q\s*(\d{1,2})\s*[=:]\s*([A-Z]{2,8}-\d+)(?!\d)")


@dataclass(frozen=True, slots=True)
class Score:
    """How one answer did.

    `given` maps question number to the code given for it (first one wins); `right_numbers` are the
    questions whose complete code is right, the control's apart in `control_right`;
    `codes_present` counts right codes of the asked needles that occur anywhere in the text.
    """

    given: Mapping[int, str]
    right_numbers: tuple[int, ...]
    asked: int
    codes_present: int
    control_right: bool

    @property
    def needles_right(self) -> int:
        """How many needle questions are right (the control's not counted)."""
        return len(self.right_numbers)


def normalise(text: str) -> str:
    """Full-width forms to ASCII, dashes to `-`, marks of emphasis dropped, upper case."""
    folded = unicodedata.normalize("NFKC", text).upper()
    folded = re.sub(r"[\u2010-\u2015\u2212\u30fc]", "-", folded)
    return re.sub(r"[*_`]", "", folded)


def score(ask: Ask, answer: str) -> Score:
    """Score `answer` (its visible content; reasoning is never passed here)."""
    text = normalise(answer)
    given: dict[int, str] = {}
    for number, code in _ANSWER.findall(text):
        given.setdefault(int(number), code)
    needles = [q for q in ask.questions if not q.is_control]
    right = tuple(q.number for q in needles if given.get(q.number) == q.needle.code)
    present = sum(_holds(text, q.needle.code) for q in needles)
    control = next((q for q in ask.questions if q.is_control), None)
    control_right = control is None or given.get(control.number) == control.needle.code
    return Score(given, right, len(needles), present, control_right)


def _holds(text: str, code: str) -> bool:
    return re.search(rf"(?<![A-Z0-9]){re.escape(code)}(?!\d)", text) is not None
