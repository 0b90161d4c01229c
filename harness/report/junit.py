"""A cell as JUnit properties: what a test judged, in numbers that a CI server can plot."""

from harness.verdicts.cell import CellVerdict


def properties(cell: CellVerdict) -> list[tuple[str, str]]:
    """Name and value of each; what is not known is left out."""
    numbers = {
        "measured": cell.measured,
        "baseline": cell.baseline,
        "change": cell.change,
        "low": cell.low,
        "high": cell.high,
    }
    facts = {
        "metric": cell.metric.name,
        "unit": cell.metric.unit,
        "depth": str(cell.depth),
        "outcome": cell.outcome,
        "reason": cell.message,
        **{name: f"{value:.6g}" for name, value in numbers.items() if value is not None},
    }
    return [(f"longctx.{name}", value) for name, value in facts.items() if value]
