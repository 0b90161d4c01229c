"""The machine while it was measured: others' load, stolen time and clocks over the run."""

from typing import Any

from harness.report.plots.figure import Figure, Table, Trace, axes
from harness.verdicts.judged import Judged

_LINES = (
    ("others_share", "others' CPU use", "%", 100.0, "y"),
    ("steal_share", "stolen by the hypervisor", "%", 100.0, "y"),
    ("cpu_mhz", "CPU clock", "MHz", 1.0, "y2"),
    ("gpu_mhz", "GPU clock", "MHz", 1.0, "y2"),
    ("cpu_c", "CPU temperature", "°C", 1.0, "y"),
    ("gpu_c", "GPU temperature", "°C", 1.0, "y"),
)


def machine_timeline(run: Judged, number: int) -> Figure | None:
    """Lines over the run's seconds; what could not be read has none."""
    series: list[dict[str, Any]] = list(run.event_data("machine").get("series") or ())
    if not series:
        return None
    traces: list[Trace] = []
    shown = []
    for key, label, unit, scale, axis in _LINES:
        points = [(s["at_s"], s[key] * scale) for s in series if s.get(key) is not None]
        if not points:
            continue
        shown.append((key, f"{label}, {unit}", scale))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{label}, {unit}",
                "x": [x for x, _ in points],
                "y": [round(y, 2) for _, y in points],
                "yaxis": axis,
                "hovertemplate": f"{label} %{{y:,.1f}} {unit} at %{{x:,.0f}} s",
            }
        )
    if not traces:
        return None
    rows = [
        (
            f"{s['at_s']:,.1f}",
            *("-" if s.get(k) is None else f"{s[k] * scale:,.1f}" for k, _, scale in shown),
        )
        for s in series
    ]
    return Figure(
        f"machine-{number}",
        "The machine meanwhile: others' load and clocks",
        "Read once a second, averaged over longer runs. What is missing could not be read here.",
        traces,
        {
            **axes(
                {"title": {"text": "seconds since the run began"}},
                {"title": {"text": "% or °C"}, "rangemode": "tozero"},
            ),
            "yaxis2": {"title": {"text": "MHz"}, "overlaying": "y", "side": "right"},
        },
        Table(("seconds", *(label for _, label, _ in shown)), tuple(rows)),
        height=280,
        subject=run.name,
        folded=True,
    )
