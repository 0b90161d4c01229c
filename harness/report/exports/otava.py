"""CSVs and their configuration for Apache Otava: one row a run, one column a metric and depth."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell, groups

TIME = "time"
ATTRIBUTES = ("run_id", "build")
TEST = "long-context"


def tests_of(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Points by the name of Otava's test: machine, model and configuration are never mixed.

    A single one is called `long-context`; of several, each name says which it is.
    """
    kinds = groups(points)
    if len(kinds) == 1:
        return {TEST: list(points)}
    return {
        re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join((TEST, *kind))): list(some)
        for kind, some in kinds.items()
    }


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
                "build": re.sub(r"^(?=[=+@-])", "'", point.build),  # no formula to a spreadsheet
            },
        )
        row[_column(point.metric, point.depth)] = f"{point.value:.6g}"
    text = io.StringIO()
    writer = csv.DictWriter(text, [TIME, *ATTRIBUTES, *columns], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    return text.getvalue()


def as_config(tests: Mapping[str, Sequence[Point]]) -> str:
    """`otava.yaml` for tests whose CSVs are called `<name>.csv`: every metric's direction."""
    lines = ["tests:"]
    for name, points in tests.items():
        lines += [
            f"  {name}:",
            "    type: csv",
            f"    file: {name}.csv",
            f"    time_column: {TIME}",
            f"    attributes: [{', '.join(ATTRIBUTES)}]",
            "    metrics:",
        ]
        for column, metric in _columns(points):
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
