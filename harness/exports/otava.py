"""A CSV and its configuration for Apache Otava: one row a run, one column a metric and depth."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from harness.core.metrics import METRICS
from harness.core.trend import Point, by_cell

TIME = "time"
ATTRIBUTES = ("run_id", "build")


def as_csv(points: Iterable[Point]) -> str:
    """All runs, oldest first; a cell that was not measured is left empty."""
    points = list(points)
    columns = [column for column, _ in _columns(points)]
    rows: dict[str, dict[str, str]] = {}
    for point in sorted(points, key=lambda p: (_utc(p.started_at), p.run_id)):
        row = rows.setdefault(
            point.run_id,
            {
                TIME: _utc(point.started_at),
                "run_id": point.run_id,
                "build": point.build,
            },
        )
        row[_column(point.metric, point.depth)] = f"{point.value:.6g}"
    text = io.StringIO()
    writer = csv.DictWriter(text, [TIME, *ATTRIBUTES, *columns], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    return text.getvalue()


def as_config(points: Iterable[Point], csv_name: str, test: str = "long-context") -> str:
    """`otava.yaml` for that CSV: every metric with its direction."""
    lines = [
        "tests:",
        f"  {test}:",
        "    type: csv",
        f"    file: {csv_name}",
        f"    time_column: {TIME}",
        f"    attributes: [{', '.join(ATTRIBUTES)}]",
        "    metrics:",
    ]
    for column, metric in _columns(list(points)):
        direction = 1 if METRICS[metric].direction == "higher" else -1
        lines += [f"      {column}:", f"        direction: {direction}", "        scale: 1"]
    lines += ["    csv_options:", "      delimiter: ','", "      quotechar: '\"'"]
    return "\n".join(lines) + "\n"


def _columns(points: Sequence[Point]) -> list[tuple[str, str]]:
    cells = by_cell(points)
    return [(_column(metric, depth), metric) for metric, depth in cells]


def _column(metric: str, depth: int) -> str:
    return f"{metric}_{depth}"


def _utc(started_at: str) -> str:
    """Otava sorts by time and wants one zone; a time without a zone is taken for UTC."""
    when = datetime.fromisoformat(started_at)
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S +0000")
