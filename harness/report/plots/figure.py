"""The report's plots as Plotly figures (plain data) with the table behind each.

Text from outside (answers, names, sentences) is escaped here, for Plotly reads a few HTML tags in
hover text and legends. Colours are left to the page, which knows whether it is light or dark: a
trace names a role in `meta`.
"""

import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.quantities import depth_label, share
from harness.verdicts.judged import Judged

Trace = dict[str, Any]
HOVER_CHARS = 600


@dataclass(frozen=True, slots=True)
class Table:
    """What a plot shows, in words: columns and rows of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot: `name` is its anchor, `note` how to read it, `layout` and `traces` are Plotly's.

    `subject` says of which run or machine it is, where there is one plot for each; `warnings` are
    sentences to stand above it; `folded`: it shows nothing unless one looks.
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
    folded: bool = False


def safe(text: object) -> str:
    """Text that Plotly shows as it is."""
    return html.escape(str(text), quote=False)


def wrapped(text: str, limit: int = HOVER_CHARS) -> str:
    """Text for a hover label: cut, broken into lines, escaped."""
    cut = text if len(text) <= limit else text[:limit] + " …"
    lines = [w for line in cut.splitlines() for w in (textwrap.wrap(line, 60) or [""])]
    return "<br>".join(safe(line) for line in lines[:24])


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
            "name": f"{name} ±{share(band)}",
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


def base_name(runs: Sequence[Judged]) -> str:
    """What to call the band of the first run's baseline."""
    return "baseline" if len(runs) == 1 else "baseline of the first run"


def axes(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """The part of a layout that names the axes."""
    return {"xaxis": x, "yaxis": y}


def log_depth(depths: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at powers of two, about eight of them."""
    known = sorted(d for d in depths if d > 0) or [1024]
    first, last = math.floor(math.log2(known[0])), math.ceil(math.log2(known[-1]))
    every = max(1, round((last - first) / 8))
    ticks = [2**power for power in range(first, last + 1, every)]
    return {"type": "log", "tickvals": ticks, "ticktext": [depth_label(t) for t in ticks]}


def log_values(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, written in full."""
    known = sorted(v for v in values if v > 0) or [1.0]
    first, last = math.floor(math.log10(known[0])), math.ceil(math.log10(known[-1]))
    ticks = [m * 10.0**power for power in range(first, last + 1) for m in (1, 2, 5)]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{t:,.10g}" for t in ticks]}
