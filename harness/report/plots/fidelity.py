"""Numbers by depth: how far each run's lie from the accepted ones, or from the first run's."""

from collections.abc import Sequence

from harness.quantities import depth_label, number, share
from harness.report.plots.figure import Figure, Table, Trace, axes, log_depth, safe
from harness.verdicts.fidelity import MATTERS_NATS, accepted_looks, apart, looks_of
from harness.verdicts.judged import Judged

_LEAST_NATS = 1e-7
"""What a logarithmic axis shows of numbers that are the same."""


def fidelity(runs: Sequence[Judged]) -> Figure | None:
    """Mean divergence (left) and agreement (right) by depth; `None` where nothing compares."""
    first = runs[0]
    depths = [rung.depth for rung in first.record.rungs]
    looks = {d: some for d in depths if (some := accepted_looks(first.baseline, d))}
    name, skipped = ("the newest accepted run", None) if looks else (first.name, 0)
    looks = looks or {r.depth: some for r in first.record.rungs if (some := looks_of([r]))}
    references = {depth: some[-1 if skipped is None else 0] for depth, some in looks.items()}
    traces: list[Trace] = []
    rows: list[tuple[str, ...]] = []
    for place, run in enumerate(runs):
        found = {
            rung.depth: far
            for rung in run.record.rungs
            if rung.depth in references
            for look in looks_of([rung])[:1]
            if (far := apart(references[rung.depth], look)) is not None
        }
        if not found or place == skipped:
            continue
        common = {"type": "scatter", "mode": "lines+markers", "x": list(found)}
        traces.append(
            {
                **common,
                "name": safe(run.name),
                "meta": f"run{place}",
                "y": [max(_LEAST_NATS, round(far.mean, 8)) for far in found.values()],
                "hovertemplate": "%{x:,} tokens: %{y:.3g} nats",
            }
        )
        traces.append(
            {
                **common,
                "name": f"likeliest token the same, {safe(run.name)}",
                "meta": f"run{place}",
                "yaxis": "y2",
                "line": {"dash": "dot"},
                "marker": {"symbol": "diamond", "size": 8},
                "y": [round(100 * far.agreeing / len(far.nats), 1) for far in found.values()],
                "hovertemplate": "%{x:,} tokens: the same in %{y} %",
            }
        )
        rows += [
            (
                run.name,
                depth_label(depth),
                number(far.mean),
                share(far.agreeing / len(far.nats)),
                number(far.shift),
                "–" if far.parted_at is None else f"after {far.parted_at} of {far.followed}",
            )
            for depth, far in found.items()
        ]
    if not traces:
        return None
    layout = axes(
        {"title": {"text": "depth, tokens"}, **log_depth(references)},
        {"title": {"text": "KL divergence, nats"}, "type": "log", "exponentformat": "power"},
    )
    layout["yaxis2"] = {
        "title": {"text": "likeliest token the same, %"},
        "overlaying": "y",
        "side": "right",
        "range": [-4, 104],
        "showgrid": False,
    }
    return Figure(
        "fidelity",
        "Numbers by depth",
        f"How far next-token probabilities behind the document lie from those of {name} (a lower "
        f"bound), and how often the likeliest token is the same. {MATTERS_NATS} nats begin to "
        f"matter; {_LEAST_NATS:g} stands for none.",
        traces,
        layout,
        Table(
            ("run", "depth", "KL, nats", "the same", "largest shift, nats", "answer parts"),
            tuple(rows),
        ),
    )
