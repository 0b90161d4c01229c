"""The end of a bisection: the first bad build, its change on both sides; also as an issue."""

from collections.abc import Iterator, Sequence

from harness.llamacpp.builds import parse, tag_of
from harness.quantities import depth_label, percent, span
from harness.records.bisect import Books, Cell, Pair
from harness.records.metrics import METRICS
from harness.report.markdown import fenced, text
from harness.verdicts.bisect import Ended

GITHUB = "https://github.com"


def bisect_text(books: Books, ended: Ended, repository: str) -> str:
    """Everything a bisection ends with; the answer stands first and last."""
    said = answer(books, ended)
    lines = [said, *(f"  {line}" for line in _evidence(books, ended))]
    lines += [f"  {line}" for line in _stepped_over(books)]
    if (link := range_link(books, ended, repository)) is not None:
        lines.append(f"  what lies between: {link}")
    lines.append(f"  {len(books.pairs)} comparisons of {len(books.builds)} builds")
    if ended.outcome == "UNDECIDED":
        lines.append("  to ask anew: without --resume, with more --blocks or on a quieter machine")
    return "\n".join((*lines, said)) + "\n"


def answer(books: Books, ended: Ended) -> str:
    """What came of it in one sentence."""
    names = books.builds
    good, bad = names[ended.last_good], names[ended.first_bad]
    if ended.outcome == "FOUND":
        also = f" that can be measured ({_listed(books, ended)} before it cannot)"
        pair = books.newest(ended.last_good, ended.first_bad)
        moved = f": {_moved(cell)}" if (cell := _cell(books, pair)) is not None else ""
        return f"first bad build{also if ended.between else ''}: {bad}, last good: {good}{moved}"
    if ended.outcome == "NOT_REPRODUCIBLE":
        return f"{bad} is no worse than {good} here: there is nothing to look for"
    left = "" if ended.first_bad - ended.last_good == len(names) - 1 else f" between {good} and"
    return f"undecided{left} {bad}: {ended.reason}" if left else f"undecided: {ended.reason}"


def bisect_issue(found: Sequence[tuple[Books, Ended]], repository: str, machine: str) -> str:
    """A report for whoever keeps the builds: its title on the first line.

    `found` are the bisections that named a build, the finest last: of releases, then of commits.
    """
    books, ended = found[-1]
    bad = books.builds[ended.first_bad]
    cell = _cell(books, books.newest(ended.last_good, ended.first_bad))
    assert cell is not None  # a build is named only where it was measured
    label = METRICS[cell.metric].label
    title = f"{label.capitalize()} at {depth_label(cell.depth)}: {_change(cell)} since {bad}"
    parts = [text(title), "### What happened"]
    for each in found:
        lines = (*_evidence(*each), *_stepped_over(each[0]))
        parts += [text(answer(*each)), "\n".join(f"- {text(line)}" for line in lines)]
    if (link := range_link(books, ended, repository)) is not None:
        parts += ["### What lies between", link]
    again = "\n".join(_command(*each) for each in found)
    parts += ["### Again", fenced(again), "### Machine", text(machine)]
    return "\n\n".join(parts) + "\n"


def _command(books: Books, ended: Ended) -> str:
    command = f"harness compare {books.builds[ended.last_good]} {books.builds[ended.first_bad]}"
    if books.focus is not None:
        command += f" --metric {books.focus.metric} --depths {books.focus.depth}"
    return command


def range_link(books: Books, ended: Ended, repository: str) -> str | None:
    """Where the commits between the two are listed; `None` where their tags are not known."""
    if ended.outcome == "NOT_REPRODUCIBLE":
        return None
    specs = [parse(books.builds[place]) for place in (ended.last_good, ended.first_bad)]
    tags = [tag_of(spec) for spec in specs if spec is not None]
    if len(tags) < 2 or None in tags:
        return None
    return f"{GITHUB}/{repository}/compare/{tags[0]}...{tags[1]}"


def _evidence(books: Books, ended: Ended) -> Iterator[str]:
    asked = [(0, ended.last_good), (0, ended.first_bad), (ended.last_good, ended.first_bad)]
    for a, b in dict.fromkeys(asked):
        cell = _cell(books, books.newest(a, b)) if a != b else None
        if cell is not None:
            yield f"{books.builds[b]} against {books.builds[a]}: {_moved(cell)}"


def _stepped_over(books: Books) -> Iterator[str]:
    for pair in books.pairs:
        if pair.answer == "DEAD":
            yield f"stepped over {books.builds[pair.b]}: {pair.said}"


def _listed(books: Books, ended: Ended) -> str:
    return ", ".join(books.builds[place] for place in ended.between)


def _cell(books: Books, pair: Pair | None) -> Cell | None:
    """The cell of a pair that was looked at; without a focus the first."""
    if pair is None:
        return None
    focus = books.focus
    fitting = (
        c for c in pair.cells if focus and (c.metric, c.depth) == (focus.metric, focus.depth)
    )
    return next(fitting, next(iter(pair.cells), None))


def _moved(cell: Cell) -> str:
    where = f"{METRICS[cell.metric].label} at {depth_label(cell.depth)}"
    if cell.change is None or cell.low is None or cell.high is None:
        return f"{where}: {cell.message}"
    return f"{where} {_change(cell)} ({span(cell.low, cell.high, _unit(cell))})"


def _change(cell: Cell) -> str:
    return "changed" if cell.change is None else percent(cell.change, _unit(cell))


def _unit(cell: Cell) -> str:
    return " points" if METRICS[cell.metric].kind == "score" else " %"
