"""`harness bisect GOOD BAD`: the first bad build of a series, with an exit code."""

import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click
from pydantic import ValidationError

from harness.cli.chosen import settings_for
from harness.cli.compare import Bisectable, Console, arm_named
from harness.cli.output import say
from harness.errors import SetupError
from harness.llamacpp.builds import parse, tag_of
from harness.measuring.bisect import BOOKS, Bisection
from harness.options import taken
from harness.records.bisect import Books
from harness.records.files import check_writable, now, read_run
from harness.records.metrics import METRICS
from harness.report.bisect import answer, bisect_issue, bisect_text
from harness.report.text import encodable
from harness.serving.builds import pinned, series
from harness.settings import Settings, tokens
from harness.verdicts.bisect import EXIT_CODES, Ended

FOLDER = "bisect"
SHORT_TOKENS = 16384
_BLOCKS, _BLOCKS_OF_ANSWERS = 3, 1


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is looked for, how each pair is measured, and whether an issue's text is printed."""

    options: dict[str, object]
    settings: Settings
    metrics: tuple[str, ...]
    blocks: int
    contended: bool
    issue: bool

    def bisect(self, folder: Path, begun: Books) -> tuple[Books, Ended]:
        """Bisect, going on with what `folder` has, and tell what came of it.

        Raises:
            SetupError: GOOD cannot be measured, or cannot be any more.
        """
        bisection = Bisection(
            *(_read(folder / BOOKS) or begun, folder),
            *(lambda name: arm_named(name, self.options), Console()),
            metrics=self.metrics,
            blocks=self.blocks,
            short_tokens=SHORT_TOKENS,
            contended=self.contended,
        )
        ended, books = bisection.run(), bisection.books
        say(f"records: {folder}")
        for line in bisect_text(books, ended, self.settings.builds.repository).splitlines():
            say(line)
        return books, ended

    def write_issue(self, folder: Path, found: Sequence[tuple[Books, Ended]]) -> None:
        """What was found as the text of an issue, in `issue.md` and where it was asked for."""
        arguments = shlex.join(self.settings.server_args) or "none"
        machine = f"{_machine(folder)}; server arguments: {arguments}"
        text = bisect_issue(found, self.settings.builds.repository, machine)
        (folder / "issue.md").write_text(text, encoding="utf-8", newline="\n")
        if self.issue:
            click.echo(encodable(text, sys.stdout.encoding))


@click.command(cls=Bisectable)
@click.argument("good", metavar="GOOD")
@click.argument("bad", metavar="BAD")
@click.option("--metric", type=click.Choice(list(METRICS)), help="What got worse (default: any).")
@click.option("--depth", help="At which depth, such as 8K (default: the whole ladder).")
@click.option("--retrieval", is_flag=True, help="The same as --metric retrieval.")
@click.option("--fidelity", is_flag=True, help="The same as --metric fidelity.")
@click.option(
    "--among",
    metavar="A,B,…",
    help="The builds between, in their order, where no source can list them.",
)
@click.option(
    "--blocks",
    type=click.IntRange(1, 50),
    help="ABBA blocks of each comparison (3; 1 of retrieval and fidelity).",
)
@click.option("--contended", is_flag=True, help="As in harness compare.")
@click.option("--issue", is_flag=True, help="Also print the text of an issue, ready to paste.")
@taken("profile", "ctx_tokens", "depths", "model", "server_args", "repeats", "band")
@taken("wait_quiet_s", "wait_lock_s", "results", "offline", "spot", "resume")
def bisect(
    good: str,
    bad: str,
    metric: str | None,
    depth: str | None,
    retrieval: bool,
    fidelity: bool,
    among: str | None,
    blocks: int | None,
    contended: bool,
    issue: bool,
    resume: bool | None,
    **options: object,
) -> None:
    """Find the first build after GOOD that is worse than it, between GOOD and BAD.

    Builds by name: releases (b11549, latest), wheels (xllamacpp==VERSION, wheel:NAME==VERSION),
    commits (commit:REVISION). Each is compared with GOOD as `harness compare` does; the last two
    with each other. BAD may be older than GOOD.

    Exit code: 0 found, 1 BAD is no worse than GOOD here, 125 undecided.
    """
    short_for = {"retrieval": retrieval, "fidelity": fidelity}
    named = [metric] if metric else []
    named += [name for name, given in short_for.items() if given]
    if len(named) > 1:
        raise click.UsageError(f"one metric is looked for, not {' and '.join(named)}")
    chosen = named[0] if named else None
    metrics = (chosen,) if chosen else tuple(METRICS)
    if depth is not None:
        options["depths"] = str(tokens(depth, "--depth"))
    settings = settings_for(options)
    blocks = blocks or (_BLOCKS_OF_ANSWERS if chosen in ("retrieval", "fidelity") else _BLOCKS)
    asked = _Asked(options, settings, metrics, blocks, contended, issue)
    question = (good, bad, *metrics, *map(str, settings.rung_depths), among or "")
    runs = settings.results / FOLDER
    folder = _begun(runs, question) if resume else None
    if folder is not None:
        books = _read(folder / BOOKS)
        assert books is not None
    else:
        folder = runs / f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        builds = _series(good, bad, among, settings)
        books = Books(question=question, started_at=now(), builds=builds)
    check_writable(folder)
    books, ended = asked.bisect(folder, books)
    if ended.outcome == "FOUND":
        found = [(books, ended)]
        if settings.builds.checkout is not None:
            found += _bisect_commits(asked, folder / "commits", books, ended)
        asked.write_issue(folder, found)
    raise SystemExit(EXIT_CODES[ended.outcome])


def _series(good: str, bad: str, among: str | None, settings: Settings) -> tuple[str, ...]:
    options, offline = settings.builds, settings.offline
    if among is None:
        return series(good, bad, options, offline=offline)
    names = [name.strip() for name in (good, *among.split(","), bad) if name.strip()]
    return tuple(pinned(n, options, offline=offline).name if parse(n) else n for n in names)


def _begun(runs: Path, question: tuple[str, ...]) -> Path | None:
    """The folder of the newest bisection of this question."""
    for path in sorted(runs.glob(f"*/{BOOKS}"), reverse=True):
        if (books := _read(path)) is not None and books.question == question:
            return path.parent
    return None


def _read(path: Path) -> Books | None:
    try:
        return Books.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _machine(folder: Path) -> str:
    """The machine and model of one of the records."""
    path = next(folder.glob("*/*.jsonl"), None)
    if path is None:
        return "not read"
    header = read_run(path).header
    gpus = ", ".join(header.machine.gpus) or "no GPU read"
    return f"{header.machine.cpu}, {gpus}, {header.machine.os}; model {header.model.name}"


def _bisect_commits(
    asked: _Asked, folder: Path, books: Books, ended: Ended
) -> list[tuple[Books, Ended]]:
    """On through the commits between two builds, where the checkout knows their tags."""
    specs = [parse(books.builds[place]) for place in (ended.last_good, ended.first_bad)]
    good, bad = (None if spec is None else tag_of(spec) for spec in specs)
    if good is None or bad is None or any(spec and spec.source == "commit" for spec in specs):
        return []
    options = asked.settings.builds
    try:
        names = series(f"commit:{good}", f"commit:{bad}", options, offline=asked.settings.offline)
        say(f"on through {len(names) - 1} commits from {good} to {bad}")
        begun = Books(question=names, started_at=now(), builds=names, focus=books.focus)
        found = asked.bisect(folder, begun)
    except SetupError as error:
        say(f"the commits between them are not bisected: {error}")
        return []
    if found[1].outcome == "FOUND":
        return [found]
    say(f"so it stays at this: {answer(books, ended)}")
    return []
