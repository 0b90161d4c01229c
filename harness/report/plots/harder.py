"""The harder tests as a plot: the share that was right by depth, a line a task."""

from harness.quantities import depth_label
from harness.questions.harder import Task
from harness.report.plots.figure import Figure, Table, Trace, axes, log_depth, safe
from harness.verdicts.harder import HARDER_EVENT, Share, cells_of
from harness.verdicts.judged import Judged

LABELS: dict[Task, str] = {
    "kv": "key-value pairs",
    "hops": "chains of two hops",
    "count": "counts",
}


def harder(run: Judged, number: int) -> Figure | None:
    """Shares by task and depth, with the accepted runs' dashed; `None` where none was run."""
    found = cells_of(run.record)
    if not found:
        return None
    traces: list[Trace] = []
    for index, (task, by_depth) in enumerate(found.items()):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(LABELS[task]),
                "meta": f"run{index}",
                "x": list(by_depth),
                "y": [_percent(s.right, s.asked) for s in by_depth.values()],
                "text": [safe(share) for share in by_depth.values()],
                "hovertemplate": f"{safe(LABELS[task])} at %{{x:,}}: %{{text}}<extra></extra>",
            }
        )
        known = {d: s for d, s in by_depth.items() if s.base_asked}
        if known:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{safe(LABELS[task])}, baseline",
                    "meta": f"run{index}",
                    "line": {"dash": "dash", "width": 1},
                    "marker": {"symbol": "circle-open", "size": 10},
                    "x": list(known),
                    "y": [_percent(s.base_right or 0, s.base_asked or 1) for s in known.values()],
                    "hoverinfo": "skip",
                }
            )
    x = {
        "title": {"text": "context, tokens"},
        **log_depth(d for one in found.values() for d in one),
    }
    y = {"title": {"text": "right, %"}, "range": [-4, 104]}
    rows = tuple(
        (LABELS[task], depth_label(depth), f"{share.right}/{share.asked}", _base(share))
        for task, by_depth in found.items()
        for depth, share in by_depth.items()
    )
    return Figure(
        f"harder-{number}",
        "Harder tests by depth",
        _verdict(run),
        traces,
        axes(x, y),
        Table(("task", "context", "right", "baseline"), rows),
        subject=run.name,
    )


def _verdict(run: Judged) -> str:
    return next(e.message for e in reversed(run.record.events) if e.code == HARDER_EVENT)


def _percent(right: int, asked: int) -> float:
    return round(100 * right / asked, 1) if asked else 0.0


def _base(share: Share) -> str:
    return "–" if share.base_asked is None else f"{share.base_right}/{share.base_asked}"
