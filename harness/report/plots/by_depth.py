"""Plots by rung: generation, time to first token and memory, with the baseline's band."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from harness.records.metrics import GENERATION, MEMORY, TTFT, Metric
from harness.records.outcomes import OUTCOMES
from harness.records.samples import Samples, samples_of, values_of
from harness.report.plots.figure import (
    Figure,
    Table,
    Trace,
    axes,
    band_traces,
    base_name,
    log_depth,
    log_values,
    safe,
    wrapped,
)
from harness.report.quantities import ABSENT, change
from harness.verdicts.judged import Judged

_MIB = 2**20
_GIB = 2**30


def generation(runs: Sequence[Judged], band: float) -> Figure | None:
    """Generation against depth: every repeat, the medians, the baseline's band."""
    return _by_depth(
        runs,
        GENERATION,
        band,
        "Generation by depth",
        "Every repeat as a small mark, medians joined; higher is better.",
    )


def ttft(runs: Sequence[Judged], band: float) -> Figure | None:
    """Time to the first token: warm (the document is cached) and cold (all of it read)."""
    figure = _by_depth(
        runs,
        TTFT,
        band,
        "Time to first token, warm and cold",
        "Warm: another question on a document already read. Cold: the whole document read first. "
        "Lower is better.",
        always=True,
    )
    if figure is None:
        return None
    rows = [(*row, "warm") for row in figure.table.rows]
    for number, run in enumerate(runs):
        cold = [(r.depth, r.cold_ttft_ms) for r in run.record.rungs if r.cold_ttft_ms is not None]
        if not cold:
            continue
        figure.traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"cold, {safe(run.name)}",
                "meta": f"run{number}",
                "line": {"dash": "dot"},
                "marker": {"symbol": "diamond", "size": 9},
                "x": [d for d, _ in cold],
                "y": [round(ms, 2) for _, ms in cold],
                "hovertemplate": "cold at %{x:,}: %{y:,.0f} ms",
            }
        )
        rows += [(run.name, f"{d:,}", f"{ms:,.0f}", "–", "–", "1", "cold") for d, ms in cold]
    if not any(t["x"] for t in figure.traces):
        return None
    figure.layout["yaxis"] = {
        "title": {"text": "time to first token, ms"},
        **log_values(y for t in figure.traces for y in t["y"]),
    }
    return replace(figure, table=Table((*figure.table.columns, "kind"), tuple(rows)))


def memory(runs: Sequence[Judged], band: float) -> Figure | None:
    """Memory of the server by rung, and the KV cache: by theory and as the server's log has it."""
    figure = _by_depth(
        runs,
        MEMORY,
        band,
        "Server memory by rung",
        "Resident memory of the server's processes plus device memory where readable, GiB (2^30); "
        "lines across: the KV cache by theory and as the server's log states it.",
    )
    if figure is None:
        return None
    rows = list(figure.table.rows)
    depths = [x for t in figure.traces for x in t["x"]]
    for number, run in enumerate(runs):
        kv = run.event_data("server_log").get("kv") or {}
        for field_name, label, dash in (
            ("theory_bytes", "KV cache by theory", "dashdot"),
            ("measured_bytes", "KV cache in the log", "dot"),
        ):
            size = kv.get(field_name)
            if not isinstance(size, int | float) or size <= 0:
                continue
            name = label if len(runs) == 1 else f"{label}, {run.name}"
            figure.traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": safe(name),
                    "meta": f"run{number + 4}" if dash == "dot" else f"run{number + 5}",
                    "x": [min(depths), max(depths)],
                    "y": [size / _GIB] * 2,
                    "line": {"dash": dash, "width": 2},
                    "hovertemplate": f"{safe(label)}: {size / _MIB:,.1f} MiB",
                }
            )
            rows.append((run.name, label, f"{size / _GIB:,.4f}", "–", "–", "–"))
    figure.layout["yaxis"]["rangemode"] = "tozero"
    return replace(figure, table=Table(figure.table.columns, tuple(rows)))


def _by_depth(
    runs: Sequence[Judged],
    metric: Metric,
    band: float,
    title: str,
    note: str,
    *,
    always: bool = False,
) -> Figure | None:
    traces: list[Trace] = []
    rows: list[tuple[str, ...]] = []
    base = _base_levels(runs[0], metric)
    if base:
        traces += band_traces(list(base), list(base.values()), band, base_name(runs))
    for number, run in enumerate(runs):
        cells = {depth: values for depth, (values, _) in _samples(run, metric).items()}
        if not cells:
            continue
        role = f"run{number}"
        digits = 3 if metric is MEMORY else 2
        traces += [
            {
                "type": "scatter",
                "mode": "markers",
                "name": safe(run.name),
                "legendgroup": role,
                "showlegend": False,
                "meta": role,
                "opacity": 0.45,
                "marker": {"size": 6},
                "x": [d for d, values in cells.items() for _ in values],
                "y": [round(v, 4) for values in cells.values() for v in values],
                "hovertemplate": f"one sample at %{{x:,}}: %{{y:,.{digits}f}} {metric.unit}",
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(run.name),
                "legendgroup": role,
                "meta": role,
                "marker": {"size": 9},
                "x": list(cells),
                "y": [round(median(values), 4) for values in cells.values()],
                "text": [_said(run, depth, metric) for depth in cells],
                "hovertemplate": f"%{{x:,}} tokens: median %{{y:,.{digits}f}} {metric.unit}"
                "<br>%{text}",
            },
        ]
        for depth, (values, contended) in _samples(run, metric).items():
            cell = run.verdict.cell(depth, metric.name)
            level = base.get(depth)
            rows.append(
                (
                    run.name,
                    f"{depth:,}",
                    f"{median(values):,.{digits}f}" + (" (disturbed)" if contended else ""),
                    "–" if level is None else f"{level:,.{digits}f}",
                    ABSENT if cell is None else change(cell),
                    str(len(values)),
                )
            )
    if not rows and not always:
        return None
    depths = sorted({x for t in traces for x in t["x"]} | {d for r in runs for d in _depths(r)})
    return Figure(
        metric.name,
        title,
        note,
        traces,
        axes(
            {"title": {"text": "depth, tokens"}, **log_depth(depths)},
            {"title": {"text": f"{metric.label}, {metric.unit}"}},
        ),
        Table(
            ("run", "depth", f"median, {metric.unit}", "baseline", "change", "samples"), tuple(rows)
        ),
        folded=len(depths) < 2,
    )


def _depths(run: Judged) -> list[int]:
    return [rung.depth for rung in run.record.rungs]


def _samples(run: Judged, metric: Metric) -> dict[int, tuple[tuple[float, ...], bool]]:
    """Samples by depth, the undisturbed ones if there are any, and whether they are disturbed."""
    found: dict[int, tuple[tuple[float, ...], bool]] = {}
    for depth in sorted({r.depth for r in run.record.rungs}):
        rung = run.record.rung(depth)
        assert rung is not None
        if clean := values_of(metric, samples_of(rung)):
            found[depth] = (clean, False)
        elif every := values_of(metric, samples_of(rung, contended=True)):
            found[depth] = (every, True)
    return found


def _said(run: Judged, depth: int, metric: Metric) -> str:
    cell = run.verdict.cell(depth, metric.name)
    return "" if cell is None else wrapped(f"{OUTCOMES[cell.outcome].word}: {cell.message}", 240)


def _base_levels(run: Judged, metric: Metric) -> dict[int, float]:
    if run.baseline is None:
        return {}
    cells: dict[int, list[Samples]] = {}
    for accepted in run.baseline.runs:
        for depth, samples in accepted.cells.items():
            cells.setdefault(depth, []).append(samples)
    return {
        depth: median(each)
        for depth, runs in sorted(cells.items())
        if (each := [median(v) for s in runs if (v := values_of(metric, s))])
    }
