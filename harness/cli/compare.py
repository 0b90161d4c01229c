"""`harness compare A B`: two binaries, profiles or servers, interleaved, with an exit code."""

import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from harness.cli.chosen import settings_for
from harness.cli.output import terminal
from harness.errors import HarnessError, SetupError
from harness.llamacpp.builds import parse
from harness.machine import sigterm
from harness.measuring.compare import Comparison, refuse_mixed
from harness.options import taken
from harness.records.files import check_writable, new_run_id
from harness.records.metrics import METRICS
from harness.report.compare import comparison_text
from harness.report.text import encodable
from harness.settings import Settings, tokens
from harness.verdicts.compare import CANNOT_TELL, Compared, Side
from harness.verdicts.differences import Difference, effective_differences

EMBEDDED = "embedded"
"""How the embedded server is called where a binary or profile may stand."""


class Bisectable(click.Command):
    """Ends with 125 whatever goes wrong, so that `git bisect run` skips instead of blaming."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            error.show()
            raise SystemExit(CANNOT_TELL) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            _cannot_tell(str(error))
        except KeyboardInterrupt:
            _cannot_tell("stopped before it could be told; the visits' records are kept")
        except Exception:
            traceback.print_exc()
            _cannot_tell("this is a fault of the harness; please report the lines above")


@click.command(cls=Bisectable)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@taken("profile", "ctx_tokens", "depths", "model", "server_args", "repeats", "band")
@taken("wait_quiet_s", "results", "budget_s", "offline", "spot")
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(list(METRICS)),
    multiple=True,
    help="Judge only this metric; may be given several times.",
)
@click.option(
    "--blocks",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="ABBA blocks over the short rungs; up to twice as many while noise hides a cell.",
)
@click.option(
    "--short",
    default="16K",
    show_default=True,
    help="Rungs up to this depth are short; longer ones get one block, more only in --budget.",
)
@click.option(
    "--contended",
    is_flag=True,
    help="Count samples that other processes disturbed, too: noisier, but on both sides.",
)
@click.option(
    "--find-onset",
    is_flag=True,
    help="Put rungs between the last right and the first wrong numbers, and look there, too.",
)
@click.option(
    "--allow-differences", is_flag=True, help="Compare arms that differ in several things."
)
def compare(
    a: str,
    b: str,
    metrics: tuple[str, ...],
    blocks: int,
    short: str,
    allow_differences: bool,
    contended: bool,
    find_onset: bool,
    **options: object,
) -> None:
    """Measure A and B interleaved and say whether B is slower.

    A and B are binaries, builds by name (b11549, latest, xllamacpp==VERSION, wheel:NAME==VERSION),
    profiles of harness.toml, URLs of servers that run, or `embedded`.

    Exit code: 0 B is no worse, 1 it is worse beyond the band, 125 it cannot be told; the codes of
    `git bisect run`.
    """
    arms: dict[Side, Settings] = {"A": arm_named(a, options), "B": arm_named(b, options)}
    folder = arms["A"].results / "compare" / new_run_id(arms["A"].results / "compare")
    check_writable(folder)
    comparison = Comparison(
        arms,
        folder,
        Console(),
        short_tokens=tokens(short, "--short"),
        metrics=metrics or tuple(METRICS),
        allow_differences=allow_differences,
        contended=contended,
    )
    found = comparison.differences()
    refuse_mixed(found, allowed=allow_differences)
    sigterm.as_ctrl_c()
    try:
        compared = comparison.measure(blocks, 2 * blocks)
        if find_onset:
            compared = comparison.find_onset()
    except (KeyboardInterrupt, HarnessError):
        kept = comparison.judged()
        if kept.cells:
            click.echo(f"cut short after {len(comparison.visits)} visits; what they show:")
            _show(kept, comparison, found, folder, _names(a, b))
        raise
    _show(compared, comparison, found, folder, _names(a, b))
    raise SystemExit(compared.exit_code)


def _show(
    compared: Compared,
    comparison: Comparison,
    found: Sequence[Difference],
    folder: Path,
    names: tuple[str, str],
) -> None:
    first = {visit.side: visit.record for visit in reversed(comparison.visits)}
    differing = [d.sentence for d in found]
    differing += [s for s in effective_differences(first["A"], first["B"]) if s not in differing]
    width, color = terminal()
    click.echo(f"records: {folder}")
    encoding = sys.stdout.encoding
    text = comparison_text(
        compared, differing, names=names, width=width, color=color, encoding=encoding
    )
    click.echo(text, nl=False)


def _names(a: str, b: str) -> tuple[str, str]:
    """What the answer calls them: profiles by name, binaries by what tells their paths apart."""
    if a == b:
        return "A", "B"
    left, right = Path(a).parts, Path(b).parts
    while len(left) > 1 and len(right) > 1 and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return (left[-1], right[-1]) if left and right else ("A", "B")


def arm_named(what: str, options: dict[str, object]) -> Settings:
    """Settings of an arm by what it was called."""
    if what.startswith(("http://", "https://")):
        return settings_for(options, {"server_url": what})
    if what == EMBEDDED:
        return settings_for(options, {"embedded": True})
    if Path(what).is_file():
        if (path := shutil.which(what if Path(what).parent.name else f"./{what}")) is None:
            raise SetupError(f"{what} cannot be run; expected a llama-server binary or a profile")
        return settings_for(options, {"server_bin": path})
    if parse(what) is not None:
        return settings_for(options, {"server_bin": what})
    try:
        return settings_for(options, {"profile": what})
    except SetupError as error:
        if f"--profile {what}:" not in str(error):
            raise
        if (path := shutil.which(what)) is not None:
            return settings_for(options, {"server_bin": path})
        raise SetupError(
            f"{what} is no file that can be run, no build by name, no URL and no profile of "
            f"harness.toml; expected one of these, or `{EMBEDDED}`"
        ) from error


class Console:
    """What is told while it runs, on standard error; what every visit says again, once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        if text in self._said:
            return
        self._said.add(text)
        click.echo(encodable(text, sys.stderr.encoding), err=True)

    def progress(
        self, depth: int, done_tokens: int, total_tokens: int, eta_s: float | None
    ) -> None:
        """Nothing: a comparison's prefills are announced by their visits."""

    def doing(self, depth: int, what: str) -> None:
        """Nothing, either."""


def _cannot_tell(text: str) -> NoReturn:
    click.echo(encodable(f"harness: {text}", sys.stderr.encoding), err=True)
    raise SystemExit(CANNOT_TELL)
