"""`harness history`: every run by metric and depth, and what lasted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
from rich.table import Table

from harness.cli.arguments import (
    local_folder,
    results_or_url,
)
from harness.cli.chosen import settings_for
from harness.cli.output import say, show, write_text
from harness.errors import SetupError
from harness.quantities import depth_label, number, percent
from harness.records.history import History, read_history
from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell, groups
from harness.report.publish import bands_of, sentences
from harness.report.sparkline import sparkline
from harness.report.text import plain_table
from harness.settings import Settings
from harness.verdicts.trend import findings, points_of

FIRST_RUNS = 5
"""Runs that "at first" is the median of."""


@click.command()
@results_or_url
@click.option("--metric", type=click.Choice(list(METRICS)), help="Only this metric.")
@click.option("--depth", type=int, help="Only this depth, tokens.")
@click.option("--reference", help="The run to measure slow decay against (the oldest five).")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Also write the plots as a page."
)
def history(
    results: str | None,
    metric: str | None,
    depth: int | None,
    reference: str | None,
    output: Path | None,
) -> None:
    """Say what lastingly changed over all runs in the results folder; then show every cell."""
    settings = settings_for({"results": local_folder(results)})
    found = read_history(results or settings.results, points_of)
    points = [
        p
        for p in found.points
        if (metric is None or p.metric == metric) and (depth is None or p.depth == depth)
    ]
    if not points:
        raise SetupError(
            f"no measured runs in {results or settings.results}"
            + ("" if metric is None and depth is None else " with that metric and depth")
            + _damaged(found)
        )
    pinned = _pinned(reference, points)
    answers = []
    for (machine, model, configuration), some in groups(points).items():
        lines = sentences(some, settings, pinned) or ["nothing changed lastingly"]
        answers.append(f"{model} on {machine}, {len({p.run_id for p in some})} runs: {lines[0]}")
        say(answers[-1])
        for line in lines[1:]:
            say(f"  {line}")
        say(f"  configuration {configuration}")
        show(_table(some, settings))
    for damage in found.damaged:
        say(f"left out: {damage}")
    if output is not None:
        from harness.report.html import history_page

        text = history_page(points, bands=bands_of(settings), reference=pinned)
        write_text(text, output)
    for answer in answers:
        say(answer)


def _table(points: Sequence[Point], settings: Settings) -> Table:
    """One row a cell, the largest change of the newest run first."""
    table = plain_table()
    for name in ("metric", "depth", "runs", "at first", "newest", "change", "over time"):
        table.add_column(name, justify="left" if name in ("metric", "over time") else "right")
    cells = {place: (cell, _change(cell)) for place, cell in by_cell(points).items()}
    for (metric, depth), (cell, share) in sorted(cells.items(), key=lambda c: -abs(c[1][1])):
        unit, at_first = METRICS[metric].unit, median(p.value for p in cell[:FIRST_RUNS])
        table.add_row(
            METRICS[metric].label,
            depth_label(depth),
            str(len(cell)),
            number(at_first),
            f"{number(cell[-1].value)} {unit}",
            percent(share),
            sparkline(
                [p.value for p in cell],
                sys.stdout.encoding,
                width=24,
                span=2 * (settings.band_of(metric) or METRICS["prefill"].band),
            ),
        )
    return table


def _change(cell: Sequence[Point]) -> float:
    """Of the newest run against the median of the first ones, a share; 0 where that is 0."""
    at_first = median(p.value for p in cell[:FIRST_RUNS])
    return cell[-1].value / at_first - 1.0 if at_first else 0.0


def _first_bad(points: Sequence[Point], settings: Settings) -> str | None:
    """The build at the newest change for the worse, as the history has it."""
    worse = [
        finding.since
        for cell in by_cell(points).values()
        for finding in findings(cell, band=settings.band_of(cell[0].metric))
        if finding.worse and finding.change is not None
    ]
    return max(worse, key=lambda p: p.run_id).build if worse else None


def _pinned(reference: str | None, points: Sequence[Point]) -> str | None:
    if reference is None:
        return None
    runs = sorted({p.run_id for p in points if reference in p.run_id})
    if len(runs) != 1:
        raise SetupError(f"--reference {reference}: fits {len(runs)} runs; give a run's id")
    return runs[0]


def _damaged(found: History) -> str:
    return f"; {len(found.damaged)} could not be read: {found.damaged[0]}" if found.damaged else ""
