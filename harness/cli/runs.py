"""`harness runs`: the recorded runs, newest first."""

from collections.abc import Sequence

import click

from harness.cli.chosen import settings_for
from harness.cli.output import say, short, show
from harness.options import taken
from harness.records.baseline import key_of
from harness.records.baseline_files import find_baseline
from harness.records.files import readable_runs
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS
from harness.report.text import plain_table
from harness.settings import Settings


@click.command()
@click.argument("part", required=False, default="")
@taken("results", "baselines", "profile")
@click.option("--all", "every", is_flag=True, help="All of them, not the newest twenty.")
def runs(part: str, every: bool, **options: object) -> None:
    """List recorded runs, newest first (those with PART in their id), with their outcome."""
    settings = settings_for(options)
    found = [r for _, r in readable_runs(settings.results) if part in r.header.run_id]
    if not found:
        say(f"no runs in {short(settings.results)}; `pytest -m long --ctx 8K` measures one")
        return
    shown = found if every else found[:20]
    rows = [_row(record, settings) for record in shown]
    table = plain_table("run", "began", "outcome", "deepest", "model", "build", "profile")
    for row in rows:
        table.add_row(*row)
    show(table)
    rest = "" if len(shown) == len(found) else f"; {len(found) - len(shown)} older with --all"
    say(f"{len(found)} runs{rest}. Look at one: harness judge RUN, harness report RUN")


def _row(record: RunRecord, settings: Settings) -> Sequence[str]:
    from harness.verdicts.verdict import judge

    header = record.header
    against = find_baseline(settings.baselines, key_of(header))
    outcome = judge(record, against, {n: settings.band_of(n) for n in METRICS}).outcome
    cut = "" if record.footer is not None and record.footer.complete else ", cut short"
    return (
        header.run_id,
        header.started_at[:16].replace("T", " "),
        f"{outcome}{cut}",
        f"{max((r.depth for r in record.rungs), default=0):,}",
        header.model.name,
        header.server.build or "-",
        header.arm or header.profile or "-",
    )
