"""Points of the history: one measured cell of one run, grouped into series."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.records.metrics import METRICS


@dataclass(frozen=True, slots=True)
class Point:
    """One run's location of one cell, in the metric's unit; `started_at` in ISO 8601.

    `model` is the model's identity, which has its file's hash: two files of one name are two.
    """

    run_id: str
    started_at: str
    build: str
    machine_class: str
    model: str
    configuration: str
    depth: int
    metric: str
    value: float


def by_cell(points: Iterable[Point]) -> dict[tuple[str, int], list[Point]]:
    """Points by (metric, depth), metrics in the registry's order, each list in the given order."""
    cells: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        cells.setdefault((point.metric, point.depth), []).append(point)
    order = list(METRICS)
    return dict(sorted(cells.items(), key=lambda c: (order.index(c[0][0]), c[0][1])))


def groups(points: Iterable[Point]) -> dict[tuple[str, str, str], list[Point]]:
    """Points by what may be compared: (machine class, model, configuration)."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        key = (point.machine_class, point.model, point.configuration)
        found.setdefault(key, []).append(point)
    return found
