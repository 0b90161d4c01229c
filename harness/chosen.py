"""Which settings, runs and baselines a command means by what it was given."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.core.baseline import key_of
from harness.core.metrics import METRICS
from harness.core.records import RunRecord
from harness.core.trend import Point, by_cell, findings, groups
from harness.core.verdict import judge
from harness.errors import SetupError, StoreError
from harness.report.judged import Judged
from harness.report.trends import sentence
from harness.settings import Settings, load, project_root
from harness.store.baselines import find_baseline
from harness.store.history import read_history
from harness.store.runs import list_runs, read_run


def settings_for(
    results: Path | None, baselines: Path | None, profile: str | None = None
) -> Settings:
    """Settings of the project the command is called in, with these folders and profile if given."""
    given = {"results": results, "baselines": baselines, "profile": profile}
    return load({k: v for k, v in given.items() if v is not None}, project_root(Path.cwd()))


def run_named(name: str | None, settings: Settings) -> RunRecord:
    """The run of that id, part of an id or file; the newest without a name.

    Raises:
        SetupError: none fits, or several do.
    """
    if name is not None and Path(name).is_file():
        return read_run(Path(name))
    paths = [p for p in list_runs(settings.results) if name is None or name in p.stem]
    if not paths:
        what = "runs" if name is None else f"run {name!r}"
        raise SetupError(f"no {what} in {settings.results}; give a run id or a file")
    if name is not None and len(paths) > 1:
        raise SetupError(f"{name!r} fits {len(paths)} runs; give more of its id")
    try:
        return read_run(paths[-1])
    except StoreError as error:
        if name is not None or len(paths) < 2:
            raise
        raise StoreError(f"{error}; the run before it is {paths[-2].stem}, name it") from error


def judged_runs(names: Iterable[str | None], settings: Settings) -> list[Judged]:
    """Runs by name, each judged against the accepted baseline of its own key."""
    return [judged(run_named(name, settings), settings) for name in names]


def judged(record: RunRecord, settings: Settings) -> Judged:
    """A run judged against the accepted baseline of its key, if there is one."""
    baseline = find_baseline(settings.baselines, key_of(record.header))
    return Judged(record, judge(record, baseline, bands_of(settings)), baseline)


def history_of(runs: Iterable[Judged], results: Path | str) -> tuple[Point, ...]:
    """All runs in a results folder (or URL) that may stand beside these: same machine and key."""
    headers = [run.record.header for run in runs]
    wanted = {(h.machine.machine_class, h.model.name, key_of(h).slug) for h in headers}
    return tuple(
        p
        for p in read_history(results).points
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
