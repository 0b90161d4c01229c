"""`python -m bench.verdicts.record RECORD... --to NAME`: keep the noise of real runs as a trace."""

import json
from pathlib import Path

import click

from bench.verdicts.noise import TRACES
from harness.records.files import read_run
from harness.records.samples import samples_of

MIN_REPEATS = 8


@click.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "name", required=True, help="Name of the trace, such as a machine class.")
def main(records: tuple[Path, ...], name: str) -> None:
    """Keep the generation rates of run records (JSON Lines), one list per run and rung.

    Use runs of one build and configuration with many repeats (`--repeats 12`): what differs
    between them is then noise. Rungs with fewer than 8 repeats are left out.
    """
    traces: list[list[float]] = []
    machines: set[str] = set()
    for path in records:
        record = read_run(path)
        machine = record.header.machine
        machines.add(f"{machine.cpu}, {machine.cpu_cores} cores")
        for rung in record.rungs:
            rates = samples_of(rung).generation_tok_s
            if len(rates) >= MIN_REPEATS:
                traces.append([round(rate, 2) for rate in rates])
    if not traces:
        raise click.ClickException(f"no rung with {MIN_REPEATS} or more repeats in these records")
    TRACES.mkdir(exist_ok=True)
    kept = {"machines": sorted(machines), "runs": len(records), "generation_tok_s": traces}
    path = TRACES / f"{name}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8", newline="\n")
    click.echo(f"{len(traces)} traces of {len(records)} runs kept in {path}")


if __name__ == "__main__":
    main()
