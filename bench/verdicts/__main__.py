"""`python -m bench.verdicts`: simulate the verdict's operating curve and hold it to its targets."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from bench.verdicts import tables
from bench.verdicts.constants import constants_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "verdicts.md"


@click.command()
@click.option("--quick", is_flag=True, help="A minute instead of many; not written to the docs.")
@click.option("--jobs", default=1, show_default=True, help="Processes to spread over.")
@click.option("--constants", is_flag=True, help="Print the small-sample constants and stop.")
def main(quick: bool, jobs: int, constants: bool) -> None:
    """Print the operating curve; at full size also write it into docs/verdicts.md.

    Exits with 1 where a target is missed.
    """
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    if constants:
        click.echo(constants_table(np.random.default_rng(1), 20_000 if quick else 200_000))
        return
    parts: list[str] = []
    missed: list[str] = []
    for part, misses in _parts(tables.QUICK if quick else tables.FULL, jobs):
        click.echo(f"{part}\n")
        parts.append(part)
        missed += misses
    said = "\n".join(f"- missed: {miss}" for miss in missed) or "All targets are met."
    click.echo(said)
    if not quick:
        tables.write_between(DOCUMENT, "\n\n".join([*parts, said]))
    sys.exit(1 if missed else 0)


def _parts(size: tables.Size, jobs: int) -> Iterator[tuple[str, list[str]]]:
    for what, world in tables.SCENES:
        yield tables.scene(what, world, size, jobs)
    yield tables.retrieval(size, jobs)
    for what, world in tables.UNTOLD:
        yield tables.scene(what, world, size, jobs, held=False)


if __name__ == "__main__":
    main()
