"""After a measured session: the page asked for with `--report`, and the summary of a CI job."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.chosen import bands_of, history_of, judged, sentences
from harness.core.records import RunRecord
from harness.errors import StoreError
from harness.report.html import page
from harness.report.markdown import summary
from harness.settings import Settings

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
MAX_SUMMARY_BYTES = 1_000_000
"""GitHub refuses a step's summary above 1 MiB."""


def publish(
    records: Sequence[RunRecord],
    settings: Settings,
    report: Path | None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """Write what is asked for of these runs and yield a sentence for each file written.

    A file that fails is a sentence too: the verdict on the run stands whether or not its report
    could be written.
    """
    job = environ.get(STEP_SUMMARY)
    if not records or (report is None and not job):
        return
    try:
        runs = [judged(record, settings) for record in records]
        points = history_of(runs, settings.results)
        if report is not None:
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
        yield f"no report written: {error}"
