"""Outcomes: one per cell, and the one table of what each is worth and how it is shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal[
    "REGRESSED",
    "LEAK",
    "ERROR",
    "INVALID",
    "INCONCLUSIVE",
    "NO_BASELINE",
    "IMPROVED",
    "PASS",
]


@dataclass(frozen=True, slots=True)
class Worth:
    """`word` is what people read for it, `meaning` a few words more; `style` is rich's."""

    exit_code: int
    word: str
    meaning: str
    style: str
    sign: str

    @property
    def bad(self) -> bool:
        """Whether a test fails for it and somebody has to look."""
        return self.exit_code in (1, 3)

    @property
    def open(self) -> bool:
        """Whether it says nothing either way: a test is skipped, or fails where verdicts must."""
        return self.exit_code == 2


OUTCOMES: dict[Outcome, Worth] = {
    "REGRESSED": Worth(1, "worse", "worse than the baseline", "bold red", "🔴"),
    "LEAK": Worth(1, "worse", "memory grows with every generated token", "bold red", "🔴"),
    "ERROR": Worth(3, "broken", "not measured to the end", "bold red", "⛔"),
    "INVALID": Worth(3, "broken", "the measurement cannot be used", "bold red", "⛔"),
    "INCONCLUSIVE": Worth(2, "can't tell", "not decided", "yellow", "🟡"),
    "NO_BASELINE": Worth(2, "new", "measured, nothing to compare with yet", "yellow", "⚪"),
    "IMPROVED": Worth(0, "better", "better than the baseline", "bold green", "🟢"),
    "PASS": Worth(0, "same", "within the band of the baseline", "green", "✅"),
}
"""Worst first."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of some outcomes; `NO_BASELINE` of none."""
    present = set(outcomes)
    return next((o for o in OUTCOMES if o in present), "NO_BASELINE")
