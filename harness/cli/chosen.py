"""Which settings, runs and baselines a command means by what it was given."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.errors import SetupError, StoreError
from harness.records.baseline import key_of
from harness.records.baseline_files import find_baseline, nearest_baseline
from harness.records.files import list_runs, read_run
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS
from harness.settings import Settings, load, project_root

if TYPE_CHECKING:
    from harness.records.baseline import Baseline
    from harness.verdicts.judged import Judged


def settings_for(
    given: Mapping[str, object], arm: Mapping[str, object] = MappingProxyType({})
) -> Settings:
    """Settings of the project the command is called in, with the options that were given."""
    options = {name: value for name, value in given.items() if value is not None}
    return load(options, project_root(Path.cwd()), arm=arm)


def builds_ahead(settings: Settings, profile: str, since: str | None = None) -> tuple[str, ...]:
    """Builds from the profile's own (or `since`) to the newest, where it follows; else none.

    Raises:
        SetupError: it follows, but its `server_bin` is no name of a build, or nothing answers.
    """
    from harness.llamacpp.builds import LATEST, parse
    from harness.serving.builds import series

    if settings.follow is None:
        return ()
    own = parse(settings.server_bin or "")
    if own is None:
        raise SetupError(
            f'profile {profile} has follow = "latest", but its server_bin is '
            f"{settings.server_bin or 'not given'}; name the accepted build there, such as b11549"
        )
    options, offline = settings.builds, settings.offline
    return series(since or own.name, own.at(LATEST).name, options, offline=offline)


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
        some = ", ".join(path.stem for path in paths[-5:])
        raise SetupError(
            f"{name!r} fits {len(paths)} runs ({'… ' if len(paths) > 5 else ''}{some}); give more "
            "of its id, `harness runs` lists them"
        )
    try:
        return read_run(paths[-1])
    except StoreError as error:
        if name is not None or len(paths) < 2:
            raise
        raise StoreError(f"{error}; the run before it is {paths[-2].stem}, name it") from error


def judged(record: RunRecord, settings: Settings, against: "Baseline | None" = None) -> "Judged":
    """A run judged against this, else against the baseline of its key, else beside the nearest."""
    from harness.verdicts.judged import Judged
    from harness.verdicts.verdict import judge

    key, bands = key_of(record.header), {n: settings.band_of(n) for n in METRICS}
    against = against or find_baseline(settings.baselines, key)
    run = Judged(record, judge(record, against, bands), against)
    nearest = nearest_baseline(settings.baselines, key) if against is None else None
    if nearest is None:
        return run
    return replace(run, beside=Judged(record, judge(record, nearest, bands), nearest))


def judged_runs(names: Iterable[str | None], settings: Settings) -> "list[Judged]":
    """Runs by name, each judged against the accepted baseline of its own key."""
    return [judged(run_named(name, settings), settings) for name in names]
