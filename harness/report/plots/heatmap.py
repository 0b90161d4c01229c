"""The heatmap probe as a plot: one tile a length and band of depth, with its class on hover."""

from harness.quantities import depth_label
from harness.records.probes import CellResult, CellState, matrix_of
from harness.report.plots.figure import Figure, Table, Trace, axes, safe
from harness.verdicts.judged import Judged

LABELS: dict[CellState, tuple[str, str, str]] = {
    "right": ("right", "state-right", ""),
    "wrong": ("wrong, also when read cold", "state-wrong", "x"),
    "wrong_warm_only": ("wrong only with the document reused", "state-partly", "/"),
    "unconfirmed": ("wrong, not read cold", "state-partly", "x"),
    "invalid": ("says nothing", "state-invalid", "."),
}
"""Label, colour role and pattern of each state that was asked."""


def heatmap(run: Judged, number: int) -> Figure | None:
    """The result of the run's heatmap probe; `None` where none was run."""
    matrix = matrix_of(run.record)
    if matrix is None:
        return None
    cells = [c for c in matrix.cells if c.state in LABELS]
    if not cells:
        return None
    traces: list[Trace] = []
    for state, (label, role, pattern) in LABELS.items():
        some = [c for c in cells if c.state == state]
        if some:
            traces.append(
                {
                    "type": "bar",
                    "name": label,
                    "meta": role,
                    "marker": {"pattern": {"shape": pattern, "fillmode": "overlay"}},
                    "width": 1,
                    "x": [depth_label(c.length) for c in some],
                    "y": [1] * len(some),
                    "base": [matrix.bands - 1 - c.band for c in some],
                    "text": [_said(c) for c in some],
                    "textposition": "none",
                    "hovertemplate": "%{text}",
                }
            )
    x = {
        "title": {"text": "context, tokens"},
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [depth_label(length) for length in matrix.lengths],
    }
    y = {
        "title": {"text": "depth in the document"},
        "tickvals": [b + 0.5 for b in range(matrix.bands)],
        "ticktext": [_band(b, matrix.bands) for b in reversed(range(matrix.bands))],
        "range": [0, matrix.bands],
        "showgrid": False,
    }
    rows = tuple(
        (
            depth_label(c.length),
            f"{c.share:.1%}",
            c.state,
            c.warm_class or "–",
            c.cold_class or "–",
        )
        for c in matrix.cells
    )
    return Figure(
        f"heatmap-{number}",
        "Heatmap of answers",
        f"{matrix.count('right')} of {len(matrix.cells)} cells right; one needle a cell.",
        traces,
        {**axes(x, y), "barmode": "overlay", "bargap": 0, "showlegend": True},
        Table(("context", "needle at", "state", "class, reused", "class, cold"), rows),
        height=160 + 26 * matrix.bands,
        subject=run.name,
    )


def _said(cell: CellResult) -> str:
    said = f"needle at {cell.share:.1%}: {safe(cell.warm_class)}"
    return said if cell.cold_class is None else f"{said}; read cold: {safe(cell.cold_class)}"


def _band(band: int, bands: int) -> str:
    return f"{band / bands:.0%}–{(band + 1) / bands:.0%}"
