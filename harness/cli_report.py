"""`harness report`, `export`, `import`, `history`, `schema`: runs as pages, files and trends."""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

import click
from rich.table import Table

from harness.chosen import judged_runs, run_named, settings_for
from harness.cli_output import say, show
from harness.errors import SetupError, StoreError
from harness.exports import record_schema
from harness.records.baseline import MAX_RUNS, Baseline, Key, key_of
from harness.records.baseline_files import find_baseline, write_baseline
from harness.records.files import readable_runs, write_run
from harness.records.history import History, read_history
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell, groups
from harness.report.exports import (
    github_action,
    llama_bench,
    llama_bench_run,
    otava,
    pytest_benchmark,
)
from harness.report.html import history_page, page
from harness.report.markdown import bug_report
from harness.report.markdown import summary as markdown_summary
from harness.report.publish import bands_of, history_of, sentences
from harness.report.quantities import depth_label
from harness.report.sparkline import sparkline
from harness.report.text import encodable, plain_number, plain_table
from harness.settings import Settings
from harness.verdicts.trend import findings

_results = click.option("--results", help="Folder of run records, or a URL that fsspec knows.")
_baselines = click.option(
    "--baselines", type=click.Path(path_type=Path), help="Folder of accepted baselines."
)
_profile = click.option("--profile", help="Settings of this profile of harness.toml (its bands).")
_output = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where to write; else standard output."
)


def attach(group: click.Group) -> None:
    """Add this module's commands to the `harness` command."""
    for command in (report, export, import_, history, schema):
        group.add_command(command)


@click.command()
@click.argument("runs", nargs=-1)
@_results
@_baselines
@_profile
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
    baselines: Path | None,
    profile: str | None,
    output: Path | None,
    no_history: bool,
    markdown: bool,
    issue: bool,
) -> None:
    """Write RUNS (ids or files; by default the newest run) as one page that opens offline.

    Several runs, also of several machines, stand side by side; the first one's baseline is drawn.
    A URL as --results is where the history is from; RUNS are then those of the usual folder.
    """
    settings = settings_for(_folder(results), baselines, profile)
    chosen = judged_runs(runs or (None,), settings)
    points: tuple[Point, ...] = ()
    if not no_history:
        points = history_of(chosen, results or settings.results)
    if markdown:
        _write(markdown_summary(chosen[0], trends=sentences(points, settings, None)), output)
    elif issue:
        _write(bug_report(chosen[0], first_bad=_first_bad(points, settings)), output)
    else:
        text = page(chosen, bands=bands_of(settings), history=points)
        _write(text, output or settings.results / f"{chosen[0].record.header.run_id}.html")


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
@_results
@_output
def export(runs: tuple[str, ...], form: str, results: str | None, output: Path | None) -> None:
    """Write RUNS (by default the newest; for otava all) in another tool's format.

    `github-action` writes two files into the folder -o, `otava` a CSV for each machine, model and
    configuration, and one otava.yaml.
    """
    settings = settings_for(_folder(results), None)
    if form == "otava":
        points = [
            p
            for p in read_history(results or settings.results).points
            if not runs or any(r in p.run_id for r in runs)
        ]
        if not points:
            where = results or settings.results
            raise SetupError(f"no measured runs{' of those ids' if runs else ''} in {where}")
        folder = _existing_folder(output, form)
        tests = otava.tests_of(points)
        for name, some in tests.items():
            _write(otava.as_csv(some), folder / f"{name}.csv")
        _write(otava.as_config(tests), folder / "otava.yaml")
        return
    _refuse_url(results)
    records = [run_named(name, settings) for name in runs or (None,)]
    if form == "github-action":
        folder = _existing_folder(output, form)
        for direction, name in github_action.FILES.items():
            _write(github_action.as_json(records[0], direction), folder / name)
        return
    writers: dict[str, Callable[[Sequence[RunRecord]], str]] = {
        "llama-bench": lambda r: llama_bench.as_json(_rows(r)),
        "llama-bench-jsonl": lambda r: llama_bench.as_jsonl(_rows(r)),
        "pytest-benchmark": pytest_benchmark.as_json,
    }
    _write(writers[form](records), output)


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
@_results
@_baselines
def import_(
    files: tuple[Path, ...],
    kind: str,
    run: str | None,
    force: bool,
    replace: bool,
    results: str | None,
    baselines: Path | None,
) -> None:
    """Take llama-bench FILES (JSON or JSONL, one a run) into a baseline, or as runs.

    Only rows that measured what a rung of the run --like did are taken. llama-bench works without
    the server, so its numbers are not the server's: a baseline says where they are from, and a run
    has a label of its own.
    """
    settings = settings_for(_folder(results), baselines)
    if kind == "run" and replace:
        raise SetupError("--replace is for --as baseline; a run is deleted by deleting its file")
    _refuse_url(results)
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
    written = write_baseline(
        settings.baselines, Baseline(key=key, runs=tuple(accepted[-MAX_RUNS:]))
    )
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


@click.command()
@_results
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
    settings = settings_for(_folder(results), None)
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
        _write(text, output)


@click.command()
@_output
def schema(output: Path | None) -> None:
    """Write the JSON Schema of a run record's lines (docs/record.schema.json)."""
    _write(record_schema.as_json(), output)


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


def _rows(records: Sequence[RunRecord]) -> list[llama_bench.Row]:
    rows = [row for record in records for row in llama_bench.rows_of(record)]
    if not rows:
        raise SetupError("nothing undisturbed was measured, so there are no rows to write")
    return rows


def _existing_folder(output: Path | None, form: str) -> Path:
    folder = output or Path()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"--to {form} writes into a folder, but {folder} is none") from error
    return folder


def _refuse_url(results: str | None) -> None:
    if results is not None and "://" in results:
        raise SetupError(
            f"--results {results}: this needs a local folder of runs (history, report and export "
            "--to otava read a URL's history); copy the runs first"
        )


def _folder(results: str | None) -> Path | None:
    return None if results is None or "://" in results else Path(results)


def _damaged(found: History) -> str:
    return f"; {len(found.damaged)} could not be read: {found.damaged[0]}" if found.damaged else ""


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(encodable(text, sys.stdout.encoding), nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror or error}") from error
    say(f"wrote {output}")
