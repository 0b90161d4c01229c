"""The window's edge: which names the last tokens before the answer hold, to the token.

Of names in its window, the model answers the loud one (A to M) rather than the quiet one (N to Z).
A loud name ends the document; the question follows, with a quiet name and as much other text as
puts the loud one on the last place inside the window, or on the first outside.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.questions.background import NATO_NAMES
from harness.questions.family import Diagnosis, FamilyAsk, Finding
from harness.questions.haystack import Placed, Segment
from harness.questions.needles import Needle

LOUD: tuple[str, ...] = NATO_NAMES[:13]
QUIET: tuple[str, ...] = NATO_NAMES[13:]
WINDOW_TOKENS = 128
"""The model's window; a token counts itself, so one 127 tokens back is the last it sees."""

QUESTION = "Which name is the loudest in sight?"
NEAR_TOKENS = 48
"""How far back the near loud name is, which any window sees."""

BACK_TOKENS = (NEAR_TOKENS, 100, 126, 127, 128, 129, 130, 160)
_TOKENS_PER_DECOY = 512
_PAD = " the"
_MARK_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Mark(Needle):
    """A line with a name."""

    @property
    def text(self) -> str:
        """The line, newline-terminated."""
        return f"Mark {self.code}\n"


def mark(name: str) -> Mark:
    """The line of a name."""
    return Mark(f"mark {name}", name)


class Window:
    """A loud name that ends each rung, loud ones everywhere before, and the asks about them."""

    def __init__(self, budgets: Sequence[tuple[int, int]], rng: random.Random) -> None:
        self._rng = rng
        self.planned: dict[int, list[Placed]] = {}
        self.decoys: list[Placed] = []
        start = 0
        for depth, budget in budgets:
            last, *others = rng.sample(LOUD, len(LOUD))
            self.planned[depth] = [Placed(mark(last), budget - _MARK_TOKENS, 1.0)]
            begin = start + _TOKENS_PER_DECOY // 2
            for at in range(begin, budget - 2 * WINDOW_TOKENS, _TOKENS_PER_DECOY):
                self.decoys.append(Placed(mark(rng.choice(others)), at, at / budget))
            start = budget

    def asks(
        self, segments: Sequence[Segment], tokens_after: Callable[[str], int]
    ) -> list[FamilyAsk]:
        """The rung's loud name at each of `BACK_TOKENS`.

        Raises:
            ValueError: a filling word is not one token.
        """
        last = segments[-1]
        loud = last.needles[0].needle.code
        after = last.text.rpartition(loud)[2]
        found = []
        for back in BACK_TOKENS:
            quiet = self._rng.choice(QUIET)
            bare = tokens_after(after + _tail(quiet, 0))
            tail = _tail(quiet, max(0, back - bare))
            if (made := tokens_after(after + tail)) != back:
                raise ValueError(
                    f"a name cannot be put {back} tokens before the answer: it is {made}, with "
                    f"{bare} of them without filling words"
                )
            read = partial(diagnose, loud, quiet, back)
            found.append(FamilyAsk(tail, _right(loud, quiet, back), read))
        return found


def _tail(quiet: str, pad_tokens: int) -> str:
    return f"So{_PAD * pad_tokens}\n{mark(quiet).text}{QUESTION}"


def _right(loud: str, quiet: str, back_tokens: int) -> str:
    return loud if back_tokens < WINDOW_TOKENS else quiet


def diagnose(loud: str, quiet: str, back_tokens: int, answer: str) -> Diagnosis:
    """What one answer says of the window."""
    words = answer.split()
    finding = _finding(loud, quiet, back_tokens, words[0] if len(words) == 1 else answer[:80])
    if back_tokens == NEAR_TOKENS:
        return Diagnosis(finding.kind, (), finding.kind == "right", finding.note)
    return Diagnosis.of([finding], near_right=None)


def _finding(loud: str, quiet: str, back_tokens: int, given: str) -> Finding:
    asked, expected = f"{back_tokens} back", _right(loud, quiet, back_tokens)
    if given == expected:
        return Finding(asked, "right", expected, given, "")
    if given in LOUD:
        where = f"{back_tokens} tokens back" if given == loud else "further back"
        note = f"{given}, {where}, is seen by a window of {WINDOW_TOKENS}"
        return Finding(asked, "outside_window", expected, given, note)
    if given == quiet:
        note = f"{loud}, {back_tokens} tokens back, is not seen by a window of {WINDOW_TOKENS}"
        return Finding(asked, "narrow_window", expected, given, note)
    note = f"{given!r} is none of the names in sight"
    return Finding(asked, "unreadable", expected, given, note)
