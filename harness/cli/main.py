"""The `harness` command: accept, look at and judge what runs have measured."""

import sys
from pathlib import Path
from typing import Any

import click

from harness import __version__
from harness.cli.baseline import baseline
from harness.cli.chosen import run_named, settings_for
from harness.cli.compare import compare
from harness.cli.doctor import doctor
from harness.cli.history import history
from harness.cli.night import night
from harness.cli.output import fail, say, terminal
from harness.cli.plan import plan
from harness.cli.report import report, schema
from harness.cli.transfer import export, import_
from harness.errors import HarnessError
from harness.options import taken
from harness.records.baseline import key_of
from harness.records.baseline_files import (
    find_baseline,
    read_baseline,
)
from harness.records.metrics import METRICS
from harness.report.terminal import summary
from harness.verdicts.verdict import judge as judge_record


class _Group(click.Group):
    """Turns our errors into one sentence and exit code 3."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            fail(str(error))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness")
def main() -> None:
    """Regression harness for long-context serving: baselines, verdicts, records.

    Measuring itself is pytest's: `pytest -m long --ctx 131072`.
    """


for command in (baseline, compare, doctor, export, history, import_, night, plan, report, schema):
    main.add_command(command)


@main.command()
@click.argument("run", required=False)
@taken("results", "baselines", "profile", "band")
@click.option(
    "--baseline", "baseline_file", type=click.Path(path_type=Path), help="Judge against this file."
)
def judge(run: str | None, baseline_file: Path | None, **options: object) -> None:
    """Judge a recorded RUN again (by default the newest one).

    Exit code: 0 PASS, 1 REGRESSED or LEAK, 2 INCONCLUSIVE or NO_BASELINE, 3 INVALID or ERROR.
    """
    settings = settings_for(options)
    record = run_named(run, settings)
    against = (
        read_baseline(baseline_file)
        if baseline_file is not None
        else find_baseline(settings.baselines, key_of(record.header))
    )
    verdict = judge_record(record, against, {n: settings.band_of(n) for n in METRICS})
    width, color = terminal()
    click.echo(
        summary(record, verdict, width=width, color=color, encoding=sys.stdout.encoding), nl=False
    )
    say(f"{record.header.run_id}: {verdict.outcome}")
    raise SystemExit(verdict.exit_code)
