"""The prefill curve as a plot: every batch's pace by depth, over the baseline's band."""

import math
from collections.abc import Sequence
from statistics import median

from harness.records.lines import Chunk
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
)
from harness.report.sparkline import curve_of, rate
from harness.verdicts.judged import Judged

MAX_POINTS = 400
"""Batches drawn a curve; neighbours beyond that are drawn as one, tokens and times added up."""


def prefill(runs: Sequence[Judged], band: float) -> Figure | None:
    """The pace of every batch by depth, both axes logarithmic, with the baseline's band."""
    traces: list[Trace] = []
    rows: list[tuple[str, ...]] = []
    base = _base_curve(runs[0])
    if base:
        x = [_middle(c) for c in base]
        y = [rate(c) for c in base]
        traces += band_traces(x, y, band, base_name(runs))
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
                _base_rate(base, c),
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
        axes(
            {"title": {"text": "depth, tokens"}, **log_depth(reached)},
            {
                "title": {"text": "prefill, tok/s"},
                **log_values(y for t in traces for y in t["y"]),
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


def _base_rate(base: Sequence[Chunk], chunk: Chunk) -> str:
    at = _middle(chunk)
    found = next((b for b in base if b.start_tokens <= at < b.end_tokens), None)
    return "–" if found is None else f"{rate(found):,.1f}"


def _middle(chunk: Chunk) -> float:
    return (chunk.start_tokens + chunk.end_tokens) / 2
