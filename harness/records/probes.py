"""Scores of the probes beside the ladder (heatmap, fuzz), as a record and a baseline keep them."""

from typing import Literal

from harness.records.lines import RunRecord
from harness.records.strict import Strict

SCORE_EVENT = "probe_score"
"""Code of the event that holds a `ProbeScore` in a record."""


class ProbeScore(Strict):
    """How many answers of a probe were right; `name` says which probe, its shape included."""

    name: str
    right: int
    asked: int


def scores_of(record: RunRecord) -> tuple[ProbeScore, ...]:
    """The scores of a record's probes, the latest of each."""
    found = [ProbeScore.model_validate(e.data) for e in record.events if e.code == SCORE_EVENT]
    return tuple({score.name: score for score in found}.values())


HEATMAP_EVENT = "heatmap"
"""Code of the event that holds a `Matrix` in a record."""


CellState = Literal["right", "wrong", "wrong_warm_only", "unconfirmed", "invalid", "not_asked"]
"""What a cell came to.

`wrong`: also when read cold. `wrong_warm_only`: right when read cold, so the reused prefix is at
fault. `unconfirmed`: wrong, and not read cold yet. `invalid`: the ask said nothing (its control
failed, a budget cut it).
"""


class CellResult(Strict):
    """What one cell said: warm (prefix reused) and, where that was wrong, cold.

    `warm_class` and `cold_class` are classes of `failures` (as text), for the question alone;
    `None` when not asked. `valid` is false when the ask said nothing.
    """

    length: int
    band: int
    share: float
    warm_class: str | None = None
    warm_valid: bool = True
    cold_class: str | None = None
    cold_valid: bool = True

    @property
    def state(self) -> CellState:
        """What the cell came to; a failure counts only when it is confirmed cold."""
        if self.warm_class is None:
            return "not_asked"
        if not self.warm_valid:
            return "invalid"
        if self.warm_class == "right":
            return "right"
        if self.cold_class is None or not self.cold_valid:
            return "unconfirmed"
        return "wrong_warm_only" if self.cold_class == "right" else "wrong"


class Matrix(Strict):
    """A heatmap's result: every cell, with the counts that are reported apart.

    `document_tokens` pairs with `lengths`; `prefilled_tokens` as the server counted them, `None`
    when it does not; `planned_prefilled_tokens` as planned. `question_tokens` is the questions'
    share of them; `confirm_tokens`, read cold to confirm failures, are not among them.
    """

    lengths: tuple[int, ...]
    document_tokens: tuple[int, ...]
    bands: int
    cells: tuple[CellResult, ...]
    prefilled_tokens: int | None = None
    planned_prefilled_tokens: int | None = None
    question_tokens: int | None = None
    confirm_tokens: int | None = None
    elapsed_s: float | None = None

    def at(self, length: int, band: int) -> CellResult | None:
        """The cell's result, the latest when there are several; `None` when it is missing."""
        return next((c for c in reversed(self.cells) if (c.length, c.band) == (length, band)), None)

    def rows(self) -> tuple[tuple[CellState, ...], ...]:
        """States, one row a band from the document's beginning, one column a length."""
        return tuple(
            tuple(self._state(length, band) for length in self.lengths)
            for band in range(self.bands)
        )

    def count(self, state: CellState) -> int:
        """How many cells came to `state`."""
        return sum(row.count(state) for row in self.rows())

    def _state(self, length: int, band: int) -> CellState:
        cell = self.at(length, band)
        return "not_asked" if cell is None else cell.state


def matrix_of(record: RunRecord) -> Matrix | None:
    """The heatmap of a run, the latest; `None` when it has none."""
    found = next((e for e in reversed(record.events) if e.code == HEATMAP_EVENT), None)
    return None if found is None else Matrix.model_validate(found.data)


SIGNS: dict[CellState, str] = {
    "right": ".",
    "wrong": "X",
    "wrong_warm_only": "w",
    "unconfirmed": "?",
    "invalid": "!",
    "not_asked": "-",
}


_MEANINGS: dict[CellState, str] = {
    "right": "right",
    "wrong": "wrong, also when read cold",
    "wrong_warm_only": "wrong with the document reused, right when read cold",
    "unconfirmed": "wrong, not read cold",
    "invalid": "says nothing (control failed, contaminated, or cut by its budget)",
    "not_asked": "not asked",
}


def heatmap_sentence(matrix: Matrix) -> str:
    """The result in one sentence: cells by state, and the tokens it took."""
    cells = len(matrix.lengths) * matrix.bands
    states = [s for s in SIGNS if s != "right" and matrix.count(s)]
    apart = "".join(f"; {matrix.count(s)} {_MEANINGS[s]}" for s in states)
    return (
        f"heatmap {len(matrix.lengths)}x{matrix.bands} up to {matrix.lengths[-1]} tokens: "
        f"{matrix.count('right')} of {cells} cells right{apart}"
    )
