"""The run in time: what was measured when, and during which of it others used the machine."""

from typing import Any

from harness.quantities import depth_label
from harness.records.lines import Timed
from harness.report.plots.figure import Figure, Table, Trace, axes, wrapped
from harness.verdicts.judged import Judged


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
            **axes(
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
        folded=True,
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
