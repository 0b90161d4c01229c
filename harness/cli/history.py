"""`harness history`: every run by metric and depth, and what lasted."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from harness.cli.arguments import (
    local_folder,
    results_or_url,
)
from harness.cli.chosen import settings_for
from harness.cli.output import say, show, write_text
from harness.errors import SetupError
from harness.records.history import History, read_history
from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell, groups
from harness.report.html import history_page
from harness.report.publish import bands_of, sentences
from harness.report.quantities import depth_label
from harness.report.sparkline import sparkline
from harness.report.text import plain_number, plain_table
from harness.settings import Settings
from harness.verdicts.trend import findings


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
    """Show every cell over all runs in the results folder, and where its level changed."""
    settings = settings_for({"results": local_folder(results)})
    found = read_history(results or settings.results)
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
    for (machine, model, configuration), some in groups(points).items():
        runs = {p.run_id for p in some}
        say(f"{machine} / {model} / {configuration}: {len(runs)} runs")
        show(_table(some))
        for line in sentences(some, settings, pinned):
            say(line)
    for damage in found.damaged:
        say(f"left out: {damage}")
    if output is not None:
        text = history_page(points, bands=bands_of(settings), reference=pinned)
        write_text(text, output)


def _table(points: Sequence[Point]) -> Table:
    table = plain_table()
    for name in ("metric", "depth", "runs", "first", "newest", "over time"):
        table.add_column(name, justify="right" if name in ("depth", "runs") else "left")
    for (metric, depth), cell in by_cell(points).items():
        unit = METRICS[metric].unit
        table.add_row(
            METRICS[metric].label,
            depth_label(depth),
            str(len(cell)),
            plain_number(cell[0].value),
            f"{plain_number(cell[-1].value)} {unit}",
            sparkline([p.value for p in cell], sys.stdout.encoding, width=24),
        )
    return table


def _first_bad(points: Sequence[Point], settings: Settings) -> str | None:
    """The build at the newest change for the worse, as the history has it."""
    worse = [
        finding.since
        for cell in by_cell(points).values()
        for finding in findings(cell, band=settings.band_of(cell[0].metric))
        if finding.worse and finding.change is not None
    ]
    return max(worse, key=lambda p: p.started_at).build if worse else None


def _pinned(reference: str | None, points: Sequence[Point]) -> str | None:
    if reference is None:
        return None
    runs = sorted({p.run_id for p in points if reference in p.run_id})
    if len(runs) != 1:
        raise SetupError(f"--reference {reference}: fits {len(runs)} runs; give a run's id")
    return runs[0]


def _damaged(found: History) -> str:
    return f"; {len(found.damaged)} could not be read: {found.damaged[0]}" if found.damaged else ""
