"""`harness night`: several profiles one after another, to be killed and started again at will."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click

from harness.cli.chosen import builds_ahead, settings_for
from harness.cli.night_run import Plan, all_nights, run_night
from harness.cli.output import say
from harness.errors import SetupError
from harness.llamacpp.command_line import split_arguments
from harness.machine import sigterm
from harness.options import taken
from harness.records.night import file_name
from harness.settings import profile_names, project_root

_BEGINS_AT_NOON = timedelta(hours=12)
LEAST_WAIT_S = 60.0
"""The last run of a night that was killed a moment ago may still be ending."""


@click.command()
@click.argument("profiles", nargs=-1)
@click.option(
    "--name", help="The night's name (default: its date; a night lasts from noon to noon)."
)
@taken("results", "baselines")
@click.option(
    "--hours", type=float, help="Stop after so long; the same night goes on when started again."
)
@click.option(
    "--since",
    metavar="BUILD",
    help="Measure nothing: name the builds since BUILD that no night compared.",
)
@click.option("--pytest-args", default="", help="More arguments for every pytest, as one string.")
def night(
    profiles: tuple[str, ...],
    name: str | None,
    hours: float | None,
    since: str | None,
    pytest_args: str,
    **options: object,
) -> None:
    """Measure PROFILES of harness.toml one after another (by default all of them).

    Each is `pytest -m long --profile PROFILE` in a process of its own. What was cut short is gone
    on with, also from an earlier night; what was measured already in this night is not measured
    again. Everything is in RESULTS/nights/NAME. A profile with `follow = "latest"` is first
    compared with the newest build, then measured with it.

    Exit code: 0 nothing bad, 1 something failed, 3 a profile measured nothing, 2 not finished.
    """
    root = project_root(Path.cwd())
    known = profile_names(root)
    chosen = profiles or known
    if not chosen:
        raise SetupError(
            "there are no profiles in harness.toml; write one as [profiles.NAME] and run again"
        )
    if unknown := [p for p in chosen if p not in known]:
        raise SetupError(
            f"there is no profile {unknown[0]!r}; harness.toml has {', '.join(known) or 'none'}"
        )
    if hours is not None and hours <= 0:
        raise SetupError(f"--hours {hours:g}: expected a number above 0")
    settings = settings_for(options)
    if since is not None:
        _tell_skipped(chosen, since, settings.results)
        return
    plan = Plan(
        name=file_name(name or f"{datetime.now() - _BEGINS_AT_NOON:%Y-%m-%d}"),
        root=root,
        results=settings.results.absolute(),
        profiles=tuple(dict.fromkeys(chosen)),
        arguments=tuple(split_arguments(pytest_args, "--pytest-args")),
        baselines=settings.baselines.absolute(),
        hours=hours,
        wait_lock_s=max(settings.wait_lock_s, LEAST_WAIT_S),
    )
    sigterm.as_ctrl_c()
    raise SystemExit(run_night(plan, say))


def _tell_skipped(profiles: Sequence[str], since: str, results: Path) -> None:
    compared = {f.newest for books in all_nights(results) for f in books.followed}
    for profile in profiles:
        ahead = builds_ahead(settings_for({"profile": profile}), profile, since)[1:]
        skipped = [name for name in ahead if name not in compared]
        if not ahead:
            say(f"{profile}: nothing newer than {since}, or it does not follow")
        else:
            said = f": {', '.join(skipped)}" if skipped else ""
            say(
                f"{profile}: {len(skipped)} of {len(ahead)} builds since {since} not compared{said}"
            )
