"""A run with its verdict and the baseline it was judged against: what every report is made of."""

from harness.report.text import plain_number
from harness.verdicts.cell import CellVerdict


def depth_label(tokens: int) -> str:
    """A depth as people write it: 32768 is 32K (K = 1024); others in full."""
    for size, letter in ((2**20, "M"), (1024, "K")):
        if tokens >= size and tokens % size == 0:
            return f"{tokens // size}{letter}"
    return f"{tokens:,}"


def percent(share: float, digits: int = 1, unit: str = "%") -> str:
    """A share as a signed percentage; what rounds to zero has no sign."""
    text = f"{share * 100.0:+.{digits}f}"
    if float(text) == 0.0:
        text = text[1:]
    return f"{text.replace('-', '−')} {unit}"


def quantity(cell: CellVerdict, value: float | None) -> str:
    """A location in its metric's unit; for answers, how many were right."""
    if value is None:
        return "–"
    if cell.metric.kind == "score":
        return f"{value:,.4g} right"
    return f"{plain_number(value)} {cell.metric.unit}"


def change(cell: CellVerdict) -> str:
    """A cell's change against its baseline, in percent, or in points for answers."""
    return "–" if cell.change is None else percent(cell.change, unit=_unit(cell))


def interval(cell: CellVerdict) -> str:
    """The interval of that change."""
    if cell.low is None or cell.high is None:
        return "–"
    return f"{percent(cell.low, unit='')}to {percent(cell.high, unit=_unit(cell))}"


def _unit(cell: CellVerdict) -> str:
    return "pt" if cell.metric.kind == "score" else "%"
