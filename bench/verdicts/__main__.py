"""`python -m bench.verdicts`: simulate the verdict's operating curve and write it into the docs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from bench.verdicts import tables
from bench.verdicts.constants import constants_table
from bench.verdicts.noise import RECORDED, SCENARIOS, recorded_residuals
from bench.verdicts.simulate import Design

DOCUMENT = Path(__file__).parents[2] / "docs" / "verdicts.md"


@click.command()
@click.option("--quick", is_flag=True, help="Seconds instead of minutes; not written to the docs.")
@click.option("--jobs", default=1, show_default=True, help="Processes to spread over.")
@click.option("--constants", is_flag=True, help="Print the small-sample constants and stop.")
def main(quick: bool, jobs: int, constants: bool) -> None:
    """Print the operating curve; at full size also write it into docs/verdicts.md."""
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    if constants:
        click.echo(constants_table(np.random.default_rng(1), 20_000 if quick else 200_000))
        return
    size = tables.QUICK if quick else tables.FULL
    parts: list[str] = []
    for part in _parts(size, jobs):
        click.echo(f"{part}\n")
        parts.append(part)
    if not quick:
        tables.write_between(DOCUMENT, "\n\n".join(parts))


def _parts(size: tables.Size, jobs: int) -> Iterator[str]:
    """Headings with their tables, one after the other as they get ready."""
    scenarios = {s.name: s for s in SCENARIOS}
    yield f"### What is promised, counted\n\n{tables.promise_table(scenarios, size, jobs)}"
    recorded = (RECORDED,) if recorded_residuals() else ()
    for scenario in (*SCENARIOS, *recorded):
        table = tables.samples_table(scenario, Design(), size, jobs)
        yield f"### Repeats: {scenario.what}\n\n{table}"
    for batches, from_share, words, name in (
        (4, 0.0, "4 batches, slower throughout", "correlated"),
        (4, 0.0, "4 batches, slower throughout", "outliers"),
        (16, 0.0, "16 batches, slower throughout", "correlated"),
        (16, 0.0, "16 batches, slower throughout", "outliers"),
        (64, 0.5, "64 batches, slower from the middle on", "correlated"),
    ):
        table = tables.curve_table(scenarios[name], batches, from_share, size, jobs)
        yield f"### Prefill curve of {words}: {scenarios[name].what}\n\n{table}"


if __name__ == "__main__":
    main()
