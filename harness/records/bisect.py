"""The books of a bisection: what was asked, which builds, and every pair that was measured.

They are written anew after each pair, so that one that was killed goes on where it was.
"""

from typing import Literal

from harness.records.lines import Strict
from harness.records.outcomes import Outcome


class Cell(Strict):
    """One metric at one depth, `b` against `a`; changes are shares (of a score, differences)."""

    metric: str
    depth: int
    outcome: Outcome
    before: float | None = None
    after: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    message: str = ""


class Pair(Strict):
    """A comparison of the builds at two places of the series; `folder` has its visits' records."""

    a: int
    b: int
    answer: Literal["BAD", "GOOD", "UNCLEAR", "DEAD"]
    cells: tuple[Cell, ...] = ()
    said: str = ""
    folder: str = ""
    took_s: float


class Focus(Strict):
    """The cell that decides, once it is chosen: what the first comparison found worst."""

    metric: str
    depth: int


class Books(Strict):
    """One bisection. `question` is what it was started with; one of the same goes on with it."""

    question: tuple[str, ...]
    started_at: str
    builds: tuple[str, ...]
    focus: Focus | None = None
    pairs: tuple[Pair, ...] = ()

    def with_pair(self, pair: Pair, focus: Focus | None) -> "Books":
        """With one more comparison."""
        return self.model_copy(update={"pairs": (*self.pairs, pair), "focus": focus})

    def newest(self, a: int, b: int) -> Pair | None:
        """The last comparison of two builds that told something."""
        told = (p for p in reversed(self.pairs) if (p.a, p.b) == (a, b) and p.answer != "UNCLEAR")
        return next(told, None)
