"""What the commands print: sentences and tables that any terminal, pipe or file can take."""

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import click
from rich.table import Table

from harness.errors import StoreError
from harness.report.text import encodable, rendered

PIPE_COLUMNS = 400


def say(text: str) -> None:
    """One line on standard output."""
    click.echo(encodable(text, sys.stdout.encoding))


def show(table: Table) -> None:
    """A table as wide as the terminal, in colour where that is one; uncut where it is none."""
    width, color = terminal()
    if not color and "COLUMNS" not in os.environ:
        width = PIPE_COLUMNS
    click.echo(rendered(table, width=width, color=color, encoding=sys.stdout.encoding), nl=False)


def terminal() -> tuple[int, bool]:
    """Columns of the terminal, and whether standard output is one."""
    return shutil.get_terminal_size((100, 24)).columns, sys.stdout.isatty()


def write_text(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(encodable(text, sys.stdout.encoding), nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror or error}") from error
    say(f"wrote {output}")


def fail(text: str) -> NoReturn:
    click.echo(encodable(f"harness: {text}", sys.stderr.encoding), err=True)
    raise SystemExit(3)


def short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
