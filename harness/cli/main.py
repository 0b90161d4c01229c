"""The `harness` command: its commands by what they are for, each imported only when called."""

import atexit
import gc
import importlib
import os
import sys
from typing import Any

import click

from harness import __version__
from harness.cli.output import fail
from harness.errors import HarnessError

AFTER, SEVERAL = "After a run", "Several runs"
COMMANDS: dict[str, dict[str, str]] = {
    "Before a run": {
        "init": "Write the few files for a project of your own; shows them first.",
        "doctor": "What this machine is, and what stands in the way of trustworthy numbers.",
        "builds": "Builds of llama.cpp by name: list, get, prune.",
        "models": "The packaged models, and what each proves of an engine.",
        "plan": "What a context will need in memory and time, before the hours are spent.",
    },
    AFTER: {
        "runs": "List the recorded runs.",
        "judge": "Judge a recorded run again.",
        "baseline": "Accept, list, show, compare and prune baselines.",
        "report": "Runs as one page that opens offline; Markdown for a job or an issue.",
        "history": "Every run by metric and depth, and where its level changed.",
    },
    SEVERAL: {
        "compare": "Measure two servers interleaved: is B slower than A?",
        "bisect": "The first bad build between a good one and a bad one.",
        "night": "Measure profiles of harness.toml one after another.",
    },
    "Files": {
        "export": "Runs in another tool's format.",
        "import": "llama-bench's output as a baseline or as runs.",
        "schema": "The JSON Schema of a run record's lines.",
    },
}
_ELSEWHERE = {"export": "transfer", "import": "transfer"}
"""Modules of the commands that have none of their own name."""


class _Group(click.Group):
    """Imports a command when it is called; turns our errors into one sentence and exit code 3."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"harness.cli.{_ELSEWHERE.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            fail(str(error))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness")
def main() -> None:
    """Did my long-context serving get slower, hungrier or wrong since it was good?

    Measuring itself is pytest's. Begin with `pytest -m long --ctx 8K`; after a second run
    `harness baseline update` accepts both, and every later run is judged against them.
    """


def run() -> None:
    """The command as a process of its own.

    One that does not measure is over before it has made garbage worth looking for; looking through
    what it imported would take a sixth of its time. What it leaves, the system takes back.
    """
    called = set(sys.argv[1:2])
    if called & COMMANDS[AFTER].keys():  # they start no server, which would inherit it
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for numpy's few numbers
    if not called & COMMANDS[SEVERAL].keys():
        gc.set_threshold(200_000)
        atexit.register(gc.freeze)
    main()
