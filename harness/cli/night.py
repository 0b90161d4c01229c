"""`harness night`: several profiles one after another, to be killed and started again at will."""

from datetime import datetime, timedelta
from pathlib import Path

import click

from harness.cli.chosen import settings_for
from harness.cli.night_run import Plan, run_night
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
@click.option("--pytest-args", default="", help="More arguments for every pytest, as one string.")
def night(
    profiles: tuple[str, ...],
    name: str | None,
    hours: float | None,
    pytest_args: str,
    **options: object,
) -> None:
    """Measure PROFILES of harness.toml one after another (by default all of them).

    Each is `pytest -m long --profile PROFILE` in a process of its own. What was cut short is gone
    on with, also from an earlier night; what was measured already in this night is not measured
    again. Everything is in RESULTS/nights/NAME.

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
