"""The report's plots as Plotly figures (plain data) with the table behind each.

Text from outside (answers, names, sentences) is escaped here, for Plotly reads a few HTML tags in
hover text and legends. Colours are left to the page, which knows whether it is light or dark: a
trace names a role in `meta`.
"""

import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from harness.core.cells import Samples, samples_of, values_of
from harness.core.metrics import GENERATION, MEMORY, TTFT, Metric
from harness.core.records import Chunk, Timed
from harness.report.judged import Judged, depth_label
from harness.report.sparkline import curve_of, rate

Trace = dict[str, Any]
MAX_POINTS = 400
"""Batches drawn a curve; neighbours beyond that are drawn as one, tokens and times added up."""

HOVER_CHARS = 600
_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Table:
    """What a plot shows, in words: columns and rows of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot: `name` is its anchor, `note` how to read it, `layout` and `traces` are Plotly's.

    `subject` says of which run or machine it is, where there is one plot for each; `warnings` are
    sentences to stand above it.
    """

    name: str
    title: str
    note: str
    traces: list[Trace]
    layout: dict[str, Any]
    table: Table
    height: int = 380
    subject: str = ""
    warnings: tuple[str, ...] = ()


def safe(text: object) -> str:
    """Text that Plotly shows as it is."""
    return html.escape(str(text), quote=False)


def wrapped(text: str, limit: int = HOVER_CHARS) -> str:
    """Text for a hover label: cut, broken into lines, escaped."""
    cut = text if len(text) <= limit else text[:limit] + " …"
    lines = [w for line in cut.splitlines() for w in (textwrap.wrap(line, 60) or [""])]
    return "<br>".join(safe(line) for line in lines[:24])


# -- prefill --------------------------------------------------------------------------------


def prefill(runs: Sequence[Judged], band: float) -> Figure | None:
    """The pace of every batch by depth, both axes logarithmic, with the baseline's band."""
    traces: list[Trace] = []
    rows: list[tuple[str, ...]] = []
    base = _base_curve(runs[0])
    if base:
        x = [_middle(c) for c in base]
        y = [rate(c) for c in base]
        traces += band_traces(x, y, band, "baseline")
    reached = []
    for number, run in enumerate(runs):
        chunks = thinned(curve_of(run.record))
        if not chunks:
            continue
        reached += [chunks[0].end_tokens, chunks[-1].end_tokens]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(run.name),
                "meta": f"run{number}",
                "marker": {"size": 5},
                "x": [_middle(c) for c in chunks],
                "y": [round(rate(c), 3) for c in chunks],
                "text": [
                    f"{c.start_tokens:,}–{c.end_tokens:,} tokens<br>{rate(c):,.1f} tok/s, "
                    f"{c.ms:,.1f} ms"
                    for c in chunks
                ],
                "hovertemplate": "%{text}",
            }
        )
        rows += [
            (
                run.name,
                f"{c.start_tokens:,}",
                f"{c.end_tokens:,}",
                f"{rate(c):,.1f}",
                _near(rate(c), base, c),
            )
            for c in thinned(chunks, 100)
        ]
    if not reached:
        return None
    return Figure(
        "prefill",
        "Prefill by batch",
        "Tokens per second of each batch of the climb; higher is better. A bend says from which "
        "depth on something changed.",
        traces,
        _axes(
            {"title": {"text": "depth, tokens"}, **_log_depth(reached)},
            {
                "title": {"text": "prefill, tok/s"},
                **_log_values(y for t in traces for y in t["y"]),
            },
        ),
        Table(("run", "from token", "to token", "tok/s", "baseline tok/s"), tuple(rows)),
        height=420,
    )


def thinned(chunks: Sequence[Chunk], limit: int = MAX_POINTS) -> list[Chunk]:
    """At most about `limit` batches, evenly spread over the logarithm of depth.

    Neighbours are joined by adding tokens and times, never across a gap.
    """
    if len(chunks) <= limit:
        return list(chunks)
    step = math.log(chunks[-1].end_tokens / max(chunks[0].end_tokens, 1)) / limit
    joined: list[Chunk] = []
    reach = 0.0
    for chunk in chunks:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.end_tokens == chunk.start_tokens
            and math.log(chunk.end_tokens) < reach
        ):
            joined[-1] = Chunk(
                start_tokens=last.start_tokens, end_tokens=chunk.end_tokens, ms=last.ms + chunk.ms
            )
            continue
        joined.append(chunk)
        reach = math.log(chunk.end_tokens) + step
    return joined


def band_traces(x: Sequence[float], y: Sequence[float], band: float, name: str) -> list[Trace]:
    """A line with a shaded band of ±`band` around it."""
    edge: Trace = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "meta": "band"}
    return [
        {
            **edge,
            "x": list(x),
            "y": [round(v * (1 - band), 4) for v in y],
            "showlegend": False,
            "legendgroup": name,
            "line": {"width": 0},
        },
        {
            **edge,
            "x": list(x),
            "y": [round(v * (1 + band), 4) for v in y],
            "name": f"{name} ±{band:.0%}",
            "legendgroup": name,
            "fill": "tonexty",
            "line": {"width": 0},
        },
        {
            "type": "scatter",
            "mode": "lines+markers" if len(x) < 3 else "lines",
            "name": name,
            "meta": "baseline",
            "x": list(x),
            "y": [round(v, 4) for v in y],
            "line": {"dash": "dash", "width": 2},
            "hovertemplate": f"{name}: %{{y:,.4~g}}<extra></extra>",
        },
    ]


def _base_curve(run: Judged) -> list[Chunk]:
    """The baseline's batches, times of its runs by their median where the batches agree."""
    if run.baseline is None:
        return []
    spans: dict[tuple[int, int], list[float]] = {}
    for accepted in run.baseline.runs:
        for samples in accepted.cells.values():
            for c in samples.chunks:
                spans.setdefault((c.start_tokens, c.end_tokens), []).append(c.ms)
    chunks: list[Chunk] = []
    for (start, end), ms in sorted(spans.items()):
        if median(ms) > 0 and (not chunks or start >= chunks[-1].end_tokens):
            chunks.append(Chunk(start_tokens=start, end_tokens=end, ms=median(ms)))
    return thinned(chunks)


def _near(_: float, base: Sequence[Chunk], chunk: Chunk) -> str:
    at = _middle(chunk)
    found = next((b for b in base if b.start_tokens <= at < b.end_tokens), None)
    return "–" if found is None else f"{rate(found):,.1f}"


def _middle(chunk: Chunk) -> float:
    return (chunk.start_tokens + chunk.end_tokens) / 2


# -- by rung --------------------------------------------------------------------------------


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
        **_log_values(y for t in figure.traces for y in t["y"]),
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
        traces += band_traces(list(base), list(base.values()), band, "baseline")
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
            change = "–" if cell is None or cell.change is None else f"{cell.change:+.1%}"
            level = base.get(depth)
            rows.append(
                (
                    run.name,
                    f"{depth:,}",
                    f"{median(values):,.{digits}f}" + (" (disturbed)" if contended else ""),
                    "–" if level is None else f"{level:,.{digits}f}",
                    change,
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
        _axes(
            {"title": {"text": "depth, tokens"}, **_log_depth(depths)},
            {"title": {"text": f"{metric.label}, {metric.unit}"}},
        ),
        Table(
            ("run", "depth", f"median, {metric.unit}", "baseline", "change", "samples"), tuple(rows)
        ),
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
    return "" if cell is None else wrapped(f"{cell.outcome}: {cell.message}", 240)


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


# -- time -----------------------------------------------------------------------------------


def timeline(run: Judged, number: int) -> Figure | None:
    """When what was measured, and during which of it something else used the machine."""
    bars: list[tuple[str, str, Timed]] = []
    for control in run.record.controls:
        bars += [("control", f"control {control.position}", t) for t in control.prefills]
        bars += [("control", f"control {control.position}", t) for t in control.generations]
    for rung in run.record.rungs:
        label = depth_label(rung.depth)
        bars += [("prefill", f"prefill to {label} ({t.kind})", t) for t in rung.prefills]
        bars += [("answers", f"answer at {label} ({t.order})", t) for t in rung.asks]
        bars += [("generation", f"generation at {label}", t) for t in rung.generations]
    placed = [b for b in bars if b[2].start_s is not None and b[2].end_s is not None]
    if not placed:
        return None
    traces: list[Trace] = []
    for disturbed, name in ((False, "undisturbed"), (True, "disturbed by other load")):
        some = [b for b in placed if (b[2].contention is not None) is disturbed]
        if not some:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "meta": "bad" if disturbed else "good",
                "y": [lane for lane, _, _ in some],
                "base": [_start(t) for _, _, t in some],
                "x": [_length(t) for _, _, t in some],
                "text": [
                    f"{label}, {_start(t):,.1f}–{_start(t) + _length(t):,.1f} s"
                    + (f"<br>{wrapped(t.contention, 300)}" if t.contention else "")
                    for _, label, t in some
                ],
                "textposition": "none",
                "hovertemplate": "%{text}",
                "marker": {"pattern": {"shape": "/" if disturbed else ""}, "line": {"width": 1}},
            }
        )
    account = run.event_data("machine")
    rows = [
        (lane, label, f"{_start(t):,.2f}", f"{_length(t):,.2f}", t.contention or "undisturbed")
        for lane, label, t in placed
    ]
    return Figure(
        f"timeline-{number}",
        "When it was measured, and who else used the machine",
        _conditions(account),
        traces,
        {
            **_axes(
                {"title": {"text": "seconds since the run began"}},
                {
                    "type": "category",
                    "categoryarray": ["generation", "answers", "prefill", "control"],
                    "categoryorder": "array",
                },
            ),
            "barmode": "overlay",
            "bargap": 0.35,
        },
        Table(("lane", "what", "start, s", "length, s", "other load"), tuple(rows)),
        height=260,
        subject=run.name,
    )


def _start(timed: Timed) -> float:
    return round(timed.start_s or 0.0, 3)


def _length(timed: Timed) -> float:
    return round((timed.end_s or 0.0) - (timed.start_s or 0.0), 3)


def _conditions(account: dict[str, Any]) -> str:
    """Clocks, heat and power in words, as far as the record's account has them."""
    parts = [str(account.get("summary") or "the machine's other load was not watched")]
    for key, label in (("cpu_mhz", "CPU clock"), ("gpu_mhz", "GPU clock")):
        span = account.get(key)
        if isinstance(span, list | tuple) and len(span) == 2:
            parts.append(f"{label} {span[0]:,.0f} to {span[1]:,.0f} MHz")
    for key, label in (("cpu_peak_c", "CPU"), ("gpu_peak_c", "GPU")):
        if isinstance(peak := account.get(key), int | float):
            parts.append(f"{label} at most {peak:.0f} °C")
    if isinstance(stolen := account.get("steal_peak_share"), int | float):
        parts.append(f"stolen by the hypervisor at most {stolen:.0%} of the CPUs")
    return "; ".join(parts) + "."


# -- axes -----------------------------------------------------------------------------------


def _axes(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {"xaxis": x, "yaxis": y}


def _log_depth(depths: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at powers of two, about eight of them."""
    known = sorted(d for d in depths if d > 0) or [1024]
    first, last = math.floor(math.log2(known[0])), math.ceil(math.log2(known[-1]))
    every = max(1, round((last - first) / 8))
    ticks = [2**power for power in range(first, last + 1, every)]
    return {"type": "log", "tickvals": ticks, "ticktext": [depth_label(t) for t in ticks]}


def _log_values(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, written in full."""
    known = sorted(v for v in values if v > 0) or [1.0]
    first, last = math.floor(math.log10(known[0])), math.ceil(math.log10(known[-1]))
    ticks = [m * 10.0**power for power in range(first, last + 1) for m in (1, 2, 5)]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{t:,.10g}" for t in ticks]}
