"""`harness judge`: a recorded run judged again."""

import sys
from pathlib import Path

import click

from harness.cli.chosen import judged, run_named, settings_for
from harness.cli.output import say, terminal
from harness.options import taken
from harness.records.baseline_files import read_baseline


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

    settings = settings_for(options)
    record = run_named(run, settings)
    shown = judged(record, settings, read_baseline(baseline_file) if baseline_file else None)
    width, color = terminal()
    encoding = sys.stdout.encoding
    text = summary(shown, width=width, color=color, encoding=encoding, every=every)
    click.echo(text, nl=False)
    say(f"run: {record.header.run_id}")
    say(answer(shown).line)
    raise SystemExit(shown.verdict.exit_code)
