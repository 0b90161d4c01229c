"""`harness export` and `import`: runs in other tools' formats, and llama-bench's read back."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

import click

from harness.cli.arguments import (
    existing_folder,
    local_folder,
    output_file,
    refuse_url,
    results_or_url,
)
from harness.cli.baseline import show_changes
from harness.cli.chosen import run_named, settings_for
from harness.cli.output import say, write_text
from harness.errors import SetupError, StoreError
from harness.options import taken
from harness.records.baseline import MAX_RUNS, Baseline, Key, key_of
from harness.records.baseline_files import find_baseline, write_baseline
from harness.records.files import readable_runs, write_run
from harness.records.history import read_history
from harness.records.lines import RunRecord
from harness.report.exports import (
    github_action,
    llama_bench,
    llama_bench_run,
    otava,
    pytest_benchmark,
)
from harness.settings import Settings
from harness.verdicts.acceptance import changes
from harness.verdicts.trend import points_of


@click.command()
@click.argument("runs", nargs=-1)
@click.option(
    "--to",
    "form",
    type=click.Choice(
        ["llama-bench", "llama-bench-jsonl", "pytest-benchmark", "github-action", "otava"]
    ),
    required=True,
    help="The format.",
)
@results_or_url
@output_file
def export(runs: tuple[str, ...], form: str, results: str | None, output: Path | None) -> None:
    """Write RUNS (by default the newest; for otava all) in another tool's format.

    `github-action` writes two files into the folder -o, `otava` a CSV for each machine, model and
    configuration, and one otava.yaml.
    """
    settings = settings_for({"results": local_folder(results)})
    if form == "otava":
        points = [
            p
            for p in read_history(results or settings.results, points_of).points
            if not runs or any(r in p.run_id for r in runs)
        ]
        if not points:
            where = results or settings.results
            raise SetupError(f"no measured runs{' of those ids' if runs else ''} in {where}")
        folder = existing_folder(output, form)
        tests = otava.tests_of(points)
        for name, some in tests.items():
            write_text(otava.as_csv(some), folder / f"{name}.csv")
        write_text(otava.as_config(tests), folder / "otava.yaml")
        return
    refuse_url(results)
    records = [run_named(name, settings) for name in runs or (None,)]
    if form == "github-action":
        folder = existing_folder(output, form)
        for direction, name in github_action.FILES.items():
            write_text(github_action.as_json(records[0], direction), folder / name)
        return
    writers: dict[str, Callable[[Sequence[RunRecord]], str]] = {
        "llama-bench": lambda r: llama_bench.as_json(_rows(r)),
        "llama-bench-jsonl": lambda r: llama_bench.as_jsonl(_rows(r)),
        "pytest-benchmark": pytest_benchmark.as_json,
    }
    write_text(writers[form](records), output)
    if form.startswith("llama-bench") and (unknown := llama_bench.unknown(_rows(records))):
        click.echo(
            f"not known of these runs, so what llama-bench writes without an option stands there "
            f"(its readers drop a row that lacks one): {', '.join(unknown)}",
            err=True,
        )


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--as",
    "kind",
    type=click.Choice(["baseline", "run"]),
    default="baseline",
    show_default=True,
    help="Accepted numbers to judge runs by, or runs in the results folder.",
)
@click.option("--like", "run", help="The run whose rungs and key the numbers are for (newest).")
@click.option("--force", is_flag=True, help="Also where the configuration differs.")
@click.option("--replace", is_flag=True, help="Instead of the runs accepted so far, not beside.")
@results_or_url
@taken("baselines")
def import_(
    files: tuple[Path, ...],
    kind: str,
    run: str | None,
    force: bool,
    replace: bool,
    results: str | None,
    baselines: str | None,
) -> None:
    """Take llama-bench FILES (JSON or JSONL, one a run) into a baseline, or as runs.

    Only rows that measured what a rung of the run --like did are taken. llama-bench works without
    the server, so its numbers are not the server's: a baseline says where they are from, and a run
    has a label of its own.
    """
    settings = settings_for({"results": local_folder(results), "baselines": baselines})
    if kind == "run" and replace:
        raise SetupError("--replace is for --as baseline; a run is deleted by deleting its file")
    refuse_url(results)
    like = _measured_run(run, settings)
    now = datetime.now().astimezone()
    read = [(path, _bench_rows(path, key_of(like.header), force)) for path in files]
    if kind == "run":
        _import_runs(read, like, settings, now)
    else:
        _import_baseline(read, like, settings, now, replace=replace)


def _import_runs(
    read: Sequence[tuple[Path, list[llama_bench.Row]]],
    like: RunRecord,
    settings: Settings,
    now: datetime,
) -> None:
    records = [llama_bench_run.record_of(rows, like, path.name, now) for path, rows in read]
    for record, (path, _) in zip(records, read, strict=True):
        _say_left_out(record.events[0].data["left_out"])
        written = write_run(settings.results, record)
        say(f"imported {path} as run {record.header.run_id} ({written})")


def _import_baseline(
    read: Sequence[tuple[Path, list[llama_bench.Row]]],
    like: RunRecord,
    settings: Settings,
    now: datetime,
    *,
    replace: bool,
) -> None:
    key = key_of(like.header)
    old = None if replace else find_baseline(settings.baselines, key)
    accepted = list(old.runs) if old is not None else []
    for path, rows in read:
        one, imported = llama_bench.accepted_rows(rows, like, path.name, now)
        accepted = [*(a for a in accepted if a.run_id != one.run_id), one]
        _say_left_out(imported.left_out)
    new = Baseline(key=key, runs=tuple(accepted[-MAX_RUNS:]))
    show_changes(changes(old, new), old is None)
    written = write_baseline(settings.baselines, new)
    say(f"accepted {len(read)} file(s) into {written}")
    if len(accepted) < 2:
        say("next: import one more run's file; one run has no spread to judge by")


def _measured_run(name: str | None, settings: Settings) -> RunRecord:
    """The run of that name; without one the newest that was measured here, not imported."""
    runs = (r for _, r in readable_runs(settings.results) if not r.imported)
    newest = next(runs, None) if name is None else None
    return run_named(name, settings) if newest is None else newest


def _bench_rows(path: Path, key: Key, force: bool) -> list[llama_bench.Row]:
    try:
        rows = llama_bench.parse(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    faults = llama_bench.disagreements(rows, key)
    if faults and not force:
        raise SetupError(
            f"{path.name} was measured otherwise: {'; '.join(faults)}; measure it like the "
            "run, or use --force if you know that it does not matter"
        )
    return rows


def _say_left_out(reasons: Iterable[str]) -> None:
    for why in reasons:
        say(f"left out {why}")


def _rows(records: Sequence[RunRecord]) -> list[llama_bench.Row]:
    rows = [row for record in records for row in llama_bench.rows_of(record)]
    if not rows:
        raise SetupError("nothing undisturbed was measured, so there are no rows to write")
    return rows
