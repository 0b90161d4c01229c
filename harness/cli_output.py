"""What the commands print: sentences and tables that any terminal, pipe or file can take."""

import os
import shutil
import sys

import click
from rich.table import Table

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
