"""Options that several commands share."""

from pathlib import Path

import click

from harness.errors import SetupError

results_or_url = click.option(
    "--results", help="Folder of run records, or a URL that fsspec knows."
)


output_file = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where to write; else standard output."
)


def existing_folder(output: Path | None, form: str) -> Path:
    folder = output or Path()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"--to {form} writes into a folder, but {folder} is none") from error
    return folder


def refuse_url(results: str | None) -> None:
    if results is not None and "://" in results:
        raise SetupError(
            f"--results {results}: this needs a local folder of runs (history, report and export "
            "--to otava read a URL's history); copy the runs first"
        )


def local_folder(results: str | None) -> Path | None:
    return None if results is None or "://" in results else Path(results)
