"""What a cell measured, and how it changed, as text."""

from typing import TYPE_CHECKING

from harness.quantities import number, percent, share, span
from harness.records.metrics import Metric

if TYPE_CHECKING:
    from harness.verdicts.cell import CellVerdict

ABSENT = "–"


def amount(metric: Metric, value: float | None) -> str:
    """A value in its metric's unit; of answers, the share that was right."""
    if value is None:
        return ABSENT
    return f"{share(value)} right" if metric.kind == "score" else f"{number(value)} {metric.unit}"


def quantity(cell: "CellVerdict", value: float | None) -> str:
    """A location of a cell in its metric's unit; of answers, how many of those asked for."""
    if value is None or cell.metric.kind != "score":
        return amount(cell.metric, value)
    return f"{value:.4g} of {cell.n_current}" if cell.n_current else f"{value:.4g} right"


def change(cell: "CellVerdict") -> str:
    """A cell's change against its baseline, in percent, or in points for answers."""
    return ABSENT if cell.change is None else percent(cell.change, _unit(cell))


def interval(cell: "CellVerdict") -> str:
    """The interval of that change."""
    if cell.low is None or cell.high is None:
        return ABSENT
    return span(cell.low, cell.high, _unit(cell))


def samples(cell: "CellVerdict") -> str:
    """How many samples it rests on, here and in the baseline."""
    return f"{cell.n_current}/{cell.n_baseline}" if cell.n_baseline else ABSENT


def _unit(cell: "CellVerdict") -> str:
    return " pt" if cell.metric.kind == "score" else " %"
