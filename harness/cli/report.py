"""`harness report`: runs as a page, or as Markdown for a job or an issue."""

from pathlib import Path

import click

from harness.cli.arguments import (
    local_folder,
    results_or_url,
)
from harness.cli.chosen import judged_runs, settings_for
from harness.cli.history import _first_bad
from harness.cli.output import write_text
from harness.options import taken
from harness.records.points import Point
from harness.report.markdown import bug_report
from harness.report.markdown import summary as markdown_summary
from harness.report.publish import bands_of, history_of, sentences


@click.command()
@click.argument("runs", nargs=-1)
@results_or_url
@taken("baselines", "profile")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write; else the page goes into the results folder, Markdown to standard output.",
)
@click.option("--no-history", is_flag=True, help="Leave out the results folder's other runs.")
@click.option("--markdown", is_flag=True, help="Markdown for a job summary instead of a page.")
@click.option("--issue", is_flag=True, help="Markdown for an issue upstream instead of a page.")
def report(
    runs: tuple[str, ...],
    results: str | None,
    output: Path | None,
    no_history: bool,
    markdown: bool,
    issue: bool,
    **options: object,
) -> None:
    """Write RUNS (ids or files; by default the newest run) as one page that opens offline.

    Several runs, also of several machines, stand side by side; the first one's baseline is drawn.
    A URL as --results is where the history is from; RUNS are then those of the usual folder.
    """
    settings = settings_for({"results": local_folder(results), **options})
    chosen = judged_runs(runs or (None,), settings)
    points: tuple[Point, ...] = ()
    if not no_history:
        points = history_of(chosen, results or settings.results)
    if markdown:
        write_text(markdown_summary(chosen[0], trends=sentences(points, settings, None)), output)
    elif issue:
        write_text(bug_report(chosen[0], first_bad=_first_bad(points, settings)), output)
    else:
        from harness.report.html import page

        text = page(chosen, bands=bands_of(settings), history=points)
        write_text(text, output or settings.results / f"{chosen[0].record.header.run_id}.html")
