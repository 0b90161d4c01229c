"""`harness baseline`: accept, list, show, compare and prune what later runs are judged against."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.chosen import run_named, settings_for
from harness.cli.output import fail, say, short, show
from harness.errors import SetupError, StoreError
from harness.options import taken
from harness.quantities import depth_label, percent
from harness.records.baseline import Baseline, key_of
from harness.records.baseline_files import (
    baseline_path,
    check_place,
    find_baseline,
    list_baselines,
    read_baseline,
    write_baseline,
)
from harness.records.files import now, readable_runs
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS
from harness.report.quantities import amount
from harness.report.text import plain_table
from harness.settings import Settings

if TYPE_CHECKING:
    from harness.verdicts.acceptance import Change, Update


@click.group()
def baseline() -> None:
    """Accept, list, show, compare and prune baselines."""


@baseline.command("update")
@click.argument("runs", nargs=-1)
@taken("results", "baselines", "profile")
@click.option("--add", is_flag=True, help="Keep the accepted runs and add these to them.")
@click.option("--force", is_flag=True, help="Accept despite objections; needs --reason.")
@click.option("--reason", help="Why; kept in the baseline file. Says that worse cells are meant.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
def baseline_update(
    runs: tuple[str, ...],
    add: bool,
    force: bool,
    reason: str | None,
    dry_run: bool,
    **options: object,
) -> None:
    """Accept RUNS (ids or files; by default the newest run and the one before it with its key).

    Cells that are steady are accepted, the others stay out and are named. Refused under CI, from a
    single run, and where a cell gets worse by more than the band, unless --reason says that it is
    meant; the level accepted first (the anchor) counts, too.
    """
    from harness.verdicts.acceptance import update

    settings = settings_for(options)
    if os.environ.get("CI", "").lower() in ("1", "true") and not dry_run:
        raise SetupError(
            "CI is set: baselines are accepted by people, on their own machine; use --dry-run to "
            "see what would change"
        )
    if force and not reason:
        raise SetupError("--force needs --reason TEXT, which is kept in the baseline file")
    records = _chosen(runs, settings)
    old = find_baseline(settings.baselines, key_of(records[-1].header))
    found = update(
        records,
        old,
        {name: settings.band_of(name) for name in METRICS},
        accepted_at=now(),
        add=add,
        reason=reason,
        force=force,
    )
    say(_answer(found, old))
    show_changes(found.changes, old is None)
    for said in _gathered(found.left_out):
        say(f"stays out: {said}")
    _refuse(found, reason=reason, force=force)
    if dry_run:
        say(f"{_answer(found, old)}; nothing written (--dry-run)")
        return
    path = write_baseline(settings.baselines, found.baseline)
    say(f"accepted {', '.join(r.header.run_id for r in records)} into {short(path)}")
    say("next: commit it with git")
    say(_answer(found, old))


def _refuse(found: "Update", *, reason: str | None, force: bool) -> None:
    standing = [*found.impossible, *(() if force else found.objections)]
    for said in standing:
        say(f"objection: {said}")
    if found.impossible:
        fail("not accepted; that cannot be overridden, choose other runs")
    if standing:
        fail(
            "not accepted; mend the above, choose other runs, or use --force --reason TEXT if you "
            "know better"
        )
    if found.worse and not reason:
        cells = "1 cell" if len(found.worse) == 1 else f"{len(found.worse)} cells"
        fail(
            f"not accepted: {cells} would get worse: {'; '.join(found.worse)}; "
            "if that is meant, repeat with --reason TEXT, which is kept in the baseline file"
        )


def _gathered(left_out: Iterable[str]) -> Iterator[str]:
    """One reason a run is one sentence, with all the numbers that it keeps out."""
    groups: dict[tuple[str, str], list[re.Match[str]]] = {}
    for said in left_out:
        if found := re.fullmatch(r"(.+?) at (\d+) of run (\S+): (.+)", said):
            groups.setdefault((found[3], found[4]), []).append(found)
        else:
            yield said
    for (run, why), some in groups.items():
        depths: dict[str, list[str]] = {}
        for label, depth in ((m[1], m[2]) for m in some):
            depths.setdefault(label, []).append(depth)
        together: dict[str, list[str]] = {}
        for label, at in depths.items():
            together.setdefault(", ".join(at), []).append(label)
        what = "; ".join(f"{', '.join(labels)} at {at}" for at, labels in together.items())
        yield f"{what} of run {run}: {why}"


def _answer(found: "Update", old: Baseline | None) -> str:
    """What an update comes to, in one sentence."""
    cells = [c for c in found.changes if c.after is not None]
    lost = [
        f"{c.metric.label} {depth_label(c.depth)} {percent(c.share or 0.0)}" for c in found.lost
    ]
    named = f": {', '.join(lost[:4])}{', …' if len(lost) > 4 else ''}" if lost else ""
    worse = f"{len(lost) or 'none'} of {len(cells)} cells {'get' if lost else 'gets'} worse{named}"
    then, now = len(old.runs) if old is not None else 0, len(found.baseline.runs)
    came = f"{then} runs replaced by {now}" if then else f"{now} runs accepted"
    gone = [c for c in found.changes if c.after is None]
    return "; ".join([worse, came, *([f"{len(gone)} cells leave the baseline"] if gone else [])])


@baseline.command("list")
@taken("baselines")
def baseline_list(**options: object) -> None:
    """List baselines, with those no run in the results folder has used."""
    settings = settings_for(options)
    used = {
        baseline_path(settings.baselines, key_of(r.header))
        for _, r in readable_runs(settings.results)
    }
    table = plain_table("machine class", "model", "configuration", "runs", "depths", "used")
    paths, broken = list(list_baselines(settings.baselines)), 0
    for path in paths:
        try:
            found = read_baseline(path)
            check_place(settings.baselines, path, found)
        except StoreError as error:
            say(f"unusable: {error}")
            broken += 1
            continue
        depths = sorted({d for run in found.runs for d in run.cells})
        table.add_row(
            found.key.machine_class,
            found.key.model,
            path.stem,
            str(len(found.runs)),
            ", ".join(map(str, depths)),
            "yes" if path in used else "by no run here",
        )
    if not paths:
        say(
            f"no baselines in {short(settings.baselines)}; accept two runs with "
            "`harness baseline update`"
        )
        return
    show(table)
    if broken:
        fail(f"{broken} of {len(paths)} baselines cannot be used; restore them with git checkout")


@baseline.command("show")
@click.argument("which")
@taken("baselines")
def baseline_show(which: str, **options: object) -> None:
    """Show one baseline (a file, or part of its name)."""
    from harness.verdicts.acceptance import changes

    path = _baseline_file(which, settings_for(options))
    found = read_baseline(path)
    say(f"{found.key.machine_class} / {found.key.model} / {path.stem}")
    for name, value in sorted(found.key.config.items()):
        say(f"  {name} = {value}")
    for run in found.runs:
        why = f", reason: {run.reason}" if run.reason else ""
        say(f"run {run.run_id}: build {run.build}, {run.os}, accepted {run.accepted_at}{why}")
    show_changes(changes(None, found), True)


@baseline.command("diff")
@click.argument("first")
@click.argument("second")
@taken("baselines")
def baseline_diff(first: str, second: str, **options: object) -> None:
    """Show what SECOND changes against FIRST (files, or parts of their names)."""
    from harness.verdicts.acceptance import changes

    settings = settings_for(options)
    a, b = (read_baseline(_baseline_file(which, settings)) for which in (first, second))
    for name in sorted({*a.key.config, *b.key.config}):
        if a.key.config.get(name) != b.key.config.get(name):
            say(f"{name}: {a.key.config.get(name)} -> {b.key.config.get(name)}")
    show_changes(changes(a, b), False)


@baseline.command("prune")
@taken("results", "baselines")
@click.option("--yes", is_flag=True, help="Delete; without it they are only named.")
def baseline_prune(yes: bool, **options: object) -> None:
    """Delete baselines that no run in the results folder belongs to."""
    settings = settings_for(options)
    runs = [record for _, record in readable_runs(settings.results)]
    if not runs:
        raise SetupError(
            f"no runs in {short(settings.results)}, so nothing can be told unused; give --results"
        )
    used = {baseline_path(settings.baselines, key_of(r.header)) for r in runs}
    unused = [path for path in list_baselines(settings.baselines) if path not in used]
    for path in unused:
        if yes:
            path.unlink()
        say(f"{'deleted' if yes else 'unused'}: {short(path)}")
    if not unused:
        say("every baseline is used by a run")
    elif not yes:
        say("nothing deleted; repeat with --yes to delete them")


def _chosen(names: Sequence[str], settings: Settings) -> list[RunRecord]:
    if names:
        return [run_named(name, settings) for name in names]
    newest: RunRecord | None = None
    for _, record in readable_runs(settings.results):
        if record.footer is None or not record.footer.complete or not record.rungs or record.spot:
            continue
        if newest is None:
            newest = record
        elif key_of(record.header) == key_of(newest.header):
            return [record, newest]
    if newest is None:
        raise SetupError(
            f"no complete run in {short(settings.results)}; measure first with "
            "`pytest -m long --ctx N`"
        )
    return [newest]


def _baseline_file(which: str, settings: Settings) -> Path:
    if Path(which).is_file():
        return Path(which)
    paths = [p for p in list_baselines(settings.baselines) if which in str(p)]
    if len(paths) != 1:
        count = "no baseline" if not paths else f"{len(paths)} baselines"
        raise SetupError(
            f"{count} match {which!r} in {short(settings.baselines)}; see `harness baseline list`"
        )
    return paths[0]


def show_changes(cells: "Iterable[Change]", first: bool) -> None:
    columns = (
        ("depth", "metric", "baseline")
        if first
        else ("depth", "metric", "before", "after", "change")
    )
    table = plain_table(*columns)
    for cell in cells:
        row = [depth_label(cell.depth), cell.metric.label]
        if not first:
            row.append(amount(cell.metric, cell.before))
        row.append(amount(cell.metric, cell.after))
        if not first:
            row.append("–" if cell.share is None else percent(cell.share))
        table.add_row(*row)
    show(table)
