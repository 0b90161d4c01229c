"""`harness judge`: a recorded run judged again."""

import sys
from pathlib import Path

import click

from harness.cli.chosen import run_named, settings_for
from harness.cli.output import say, terminal
from harness.options import taken
from harness.records.baseline import key_of
from harness.records.baseline_files import find_baseline, read_baseline
from harness.records.metrics import METRICS


@click.command()
@click.argument("run", required=False)
@taken("results", "baselines", "profile", "band")
@click.option(
    "--baseline", "baseline_file", type=click.Path(path_type=Path), help="Judge against this file."
)
@click.option("-v", "--verbose", "every", is_flag=True, help="Show every number and note.")
def judge(run: str | None, baseline_file: Path | None, every: bool, **options: object) -> None:
    """Judge a recorded RUN again (by default the newest one).

    Exit code: 0 PASS, 1 REGRESSED or LEAK, 2 INCONCLUSIVE or NO_BASELINE, 3 INVALID or ERROR.
    """
    from harness.report.answer import answer
    from harness.report.terminal import summary
    from harness.verdicts.judged import Judged
    from harness.verdicts.verdict import judge as judge_record

    settings = settings_for(options)
    record = run_named(run, settings)
    against = (
        read_baseline(baseline_file)
        if baseline_file is not None
        else find_baseline(settings.baselines, key_of(record.header))
    )
    verdict = judge_record(record, against, {n: settings.band_of(n) for n in METRICS})
    width, color = terminal()
    shown = Judged(record, verdict, against)
    encoding = sys.stdout.encoding
    text = summary(shown, width=width, color=color, encoding=encoding, every=every)
    click.echo(text, nl=False)
    say(f"run: {record.header.run_id}")
    say(answer(shown).line)
    raise SystemExit(verdict.exit_code)
