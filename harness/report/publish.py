"""After a measured session: the page asked for with `--report`, and the summary of a CI job."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import StoreError
from harness.records.baseline import key_of
from harness.records.history import read_history
from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell, groups
from harness.report.markdown import summary
from harness.report.plots.trends import sentence
from harness.settings import Settings
from harness.verdicts.judged import Judged
from harness.verdicts.trend import findings, points_of

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
MAX_SUMMARY_BYTES = 1_000_000
"""GitHub refuses a step's summary above 1 MiB."""


def publish(
    runs: Sequence[Judged],
    settings: Settings,
    report: Path | None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """Write what is asked for of these runs and yield a sentence for each file written.

    A file that fails is a sentence too: the verdict on the run stands whether or not its report
    could be written.
    """
    job = environ.get(STEP_SUMMARY)
    if not runs or (report is None and not job):
        return
    try:
        points = history_of(runs, settings.results)
        if report is not None:
            from harness.report.html import page

            report.parent.mkdir(parents=True, exist_ok=True)
            text = page(runs, bands=bands_of(settings), history=points)
            report.write_text(text, encoding="utf-8", newline="\n")
            yield f"report: {report}"
        if job:
            trends = sentences(points, settings, None)
            text = "\n".join(summary(run, trends=trends) for run in runs)
            with Path(job).open("ab") as file:
                file.write(text.encode()[:MAX_SUMMARY_BYTES])
            yield f"job summary: {job}"
    except (OSError, StoreError) as error:
        where = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        yield f"no report written: {getattr(error, 'strerror', None) or error}{where}"


def history_of(runs: Iterable[Judged], results: Path | str) -> tuple[Point, ...]:
    """All runs in a results folder (or URL) that may stand beside these: same machine and key."""
    headers = [run.record.header for run in runs]
    wanted = {(h.machine.machine_class, h.model.identity, key_of(h).slug) for h in headers}
    return tuple(
        p
        for p in read_history(results, points_of).points
        if (p.machine_class, p.model, p.configuration) in wanted
    )


def sentences(points: Sequence[Point], settings: Settings, reference: str | None) -> list[str]:
    """What the history shows: lasting changes and slow decays, a sentence each."""
    return [
        sentence(finding)
        for some in groups(points).values()
        for cell in by_cell(some).values()
        for finding in findings(cell, band=settings.band_of(cell[0].metric), reference=reference)
    ]


def bands_of(settings: Settings) -> dict[str, float]:
    """Every metric's noise band, a share."""
    return {name: settings.band_of(name) for name in METRICS}
