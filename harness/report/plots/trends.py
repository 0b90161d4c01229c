"""History in sentences and plots: each cell over time, builds named, changes of level marked."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from harness.quantities import depth_label, number, percent, span
from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell
from harness.report.plots.figure import Figure, Table, Trace, safe
from harness.verdicts.trend import RECENT_RUNS, Finding, findings

MAX_RUNS_DRAWN = 400
MAX_RUNS_TABLED = 60


def sentence(finding: Finding) -> str:
    """Such as "generation at 32K: −6 % since 2026-11-12, build b11501"."""
    point = finding.since
    where = f"{METRICS[point.metric].label} at {depth_label(point.depth)}"
    if finding.change is not None:
        return (
            f"{where}: {percent(finding.change.change)} since {point.started_at[:10]}, "
            f"build {point.build}"
        )
    if finding.newest is not None:
        return (
            f"{where}: {percent(finding.newest.change)} in the newest run, "
            f"{point.started_at[:10]}, build {point.build}, against the runs before it; one run is "
            "no lasting change"
        )
    decay = finding.decay
    assert decay is not None
    against = "the pinned reference" if finding.pinned else "its oldest runs"
    return (
        f"{where}: {percent(decay.change)} against {against} "
        f"({span(decay.low, decay.high)}), {percent(decay.per_run)} a run, "
        f"as of {point.started_at[:10]}, build {point.build}"
    )


def history(
    points: Sequence[Point],
    *,
    bands: Mapping[str, float],
    reference: str | None,
    label: str,
    place: int,
    drawn: int = MAX_RUNS_DRAWN,
) -> list[Figure]:
    """One plot a metric over the newest runs of one machine, model and configuration.

    Changes are looked for in all runs.
    """
    metrics: dict[str, list[tuple[int, list[Point]]]] = {}
    for (metric, depth), cell in by_cell(points).items():
        metrics.setdefault(metric, []).append((depth, cell))
    return [
        _figure(metric, cells, bands[metric], reference, label, place, drawn)
        for metric, cells in metrics.items()
    ]


def _figure(
    name: str,
    cells: Sequence[tuple[int, list[Point]]],
    band: float,
    reference: str | None,
    label: str,
    place: int,
    newest: int,
) -> Figure:
    metric = METRICS[name]
    traces: list[Trace] = []
    rows: list[tuple[str, ...]] = []
    said: list[str] = []
    relative = metric.kind != "score"
    if relative:
        ends = [cells[0][1][-newest:][0].started_at, cells[0][1][-1].started_at]
        traces += _band(ends, 100 * band, "reference" if reference else "its first runs")
    for line, (depth, cell) in enumerate(cells):
        drawn = [p for p in cell[-newest:] if p.value > 0 or not relative]
        first = _at_first(cell, reference) if relative else 1.0
        found = findings(cell, band=band, reference=reference)
        said += [sentence(f) for f in found]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": depth_label(depth),
                "meta": f"run{line}",
                "marker": {"size": 5},
                "x": [p.started_at for p in drawn],
                "y": [_height(p.value, first, relative) for p in drawn],
                "text": [
                    f"{number(p.value)} {metric.unit}<br>build {safe(p.build)}" for p in drawn
                ],
                "hovertemplate": "%{text}",
            }
        )
        changes = [f for f in found if f.change is not None]
        if changes:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"change at {depth_label(depth)}",
                    "meta": "mark",
                    "marker": {"symbol": "diamond-tall", "size": 14},
                    "x": [f.since.started_at for f in changes],
                    "y": [_height(f.since.value, first, relative) for f in changes],
                    "text": [safe(sentence(f)) for f in changes],
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
        rows += [
            (depth_label(depth), p.started_at[:16], p.build, number(p.value), p.run_id)
            for p in reversed(cell[-MAX_RUNS_TABLED:])
        ]
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "run started"}, "type": "date"},
        "yaxis": {"title": {"text": f"{metric.label}, {'change in %' if relative else 'right'}"}},
    }
    return Figure(
        f"history-{place}-{name}",
        f"{metric.label[0].upper()}{metric.label[1:]} over time",
        "Against the first runs, a line a depth; a tall diamond is the first run on a new level.",
        traces,
        layout,
        Table(("depth", "run started", "build", metric.unit, "run"), tuple(rows)),
        subject=label,
        warnings=tuple(said),
        folded=not said,
    )


def _at_first(cell: Sequence[Point], reference: str | None) -> float:
    """The value of the pinned run, by default the median of the oldest ones; above zero."""
    kept = [p for p in cell if p.value > 0]
    named = [p.value for p in kept if p.run_id == reference]
    return median(named or [p.value for p in kept[:RECENT_RUNS]] or [1.0])


def _height(value: float, first: float, relative: bool) -> float:
    """Where a run stands: in percent of what it began with, so that all depths fit one plot."""
    return round(100 * (value / first - 1) if relative else value, 3)


def _band(ends: list[str], percent_: float, name: str) -> list[Trace]:
    """The noise band around no change."""
    edge: Trace = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "x": ends}
    line = {**edge, "meta": "band", "line": {"width": 0}, "legendgroup": name}
    return [
        {**line, "y": [-percent_] * 2, "showlegend": False},
        {**line, "y": [percent_] * 2, "name": f"{name} ±{percent_:.0f} %", "fill": "tonexty"},
        {**edge, "meta": "baseline", "y": [0, 0], "showlegend": False, "line": {"dash": "dash"}},
    ]
