"""The one answer of a run, said alike on every surface: what is worse, what changed, what stayed.

Words are for people: better, same, worse, can't tell, broken. Codes stay in the table behind them
(`harness.records.outcomes`), in JSON and in exit codes. Cells are grouped by their cause, so that
one busy machine or one wrong control is one sentence.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.quantities import depth_label, number
from harness.records.metrics import METRICS, RETRIEVAL
from harness.records.outcomes import OUTCOMES, Outcome
from harness.report.quantities import change, quantity
from harness.verdicts.cell import NEXT_STEPS, CellVerdict
from harness.verdicts.judged import Judged

RESUME = "the same command with --resume goes on from there"
_SAID = {
    "noise": "the samples scatter too much to tell",
    "too_few": "too few samples to tell",
    "few_runs": "too few accepted runs to tell",
    "few_needles": "too few needles to tell",
    "together": "one change among many numbers, not yet beyond chance",
    "control": "the answer right beside the question was wrong",
    "contaminated": "a code of an earlier request came back",
    "budget": "an answer was cut by its token budget",
}
"""What cells with this code have in common, whatever else each of them says."""
_CONTROL = re.compile(r"local control (\d+ of \d+)")
_BUILD = re.compile(r"\b(b\d+)-[0-9a-f]+ → (?!\1-)(b\d+)-[0-9a-f]+\b")
_CREPT = re.compile(r"since .*?accepted little by little")
_BUSY = re.compile(r"(?:contention: |first of them )([^,:]+?) (?:used|with) ([\d.]+) % of the")


@dataclass(frozen=True, slots=True)
class Cause:
    """Cells that got one outcome for one reason, which is said once."""

    outcome: Outcome
    code: str | None
    cells: tuple[CellVerdict, ...]
    said: str

    @property
    def sentence(self) -> str:
        """The reason with the word for its outcome before it."""
        return f"{OUTCOMES[self.outcome].word}: {self.said}"

    @property
    def next_step(self) -> str | None:
        """What to do about it."""
        return NEXT_STEPS.get(self.code) if self.code else None


@dataclass(frozen=True, slots=True)
class Answer:
    """`line` is the answer; `changed`, `stayed` and `next_step` are what follows it, if anything.

    `beside` is what the nearest baseline says where the run has none of its own. `causes` are all
    of them, worst first, and `others` those that `line` does not say already.
    """

    outcome: Outcome
    line: str
    changed: str | None
    stayed: str | None
    causes: tuple[Cause, ...]
    others: tuple[Cause, ...]
    next_step: str | None
    beside: str | None = None

    def lines(self) -> Iterator[str]:
        """The whole answer, a sentence a line."""
        yield self.line
        if self.changed is not None:
            yield f"since the baseline: {self.changed}"
        if self.beside is not None:
            yield self.beside
        yield from (cause.sentence for cause in self.others)
        if self.stayed is not None:
            yield f"as before: {self.stayed}"
        if self.next_step is not None:
            yield f"next: {self.next_step}"


def answer(run: Judged) -> Answer:
    """What this run says, in one sentence and in the few that follow it."""
    verdict, found = run.verdict, causes_of(run.verdict.cells)
    stopped = _stopped(run)
    if stopped is not None:
        return Answer(verdict.outcome, stopped, None, None, found, (), RESUME)
    first = run.baseline is None
    shown = tuple(c for c in found if not (first and c.outcome == "NO_BASELINE"))
    near = f"nothing to compare with yet: {run.differs}"
    changed = ", ".join(_short(d) for d in verdict.differences if " → " in d) or None
    if not shown or shown[0].outcome == "PASS":
        line, beside = _unchanged(run), None
        step = found[0].next_step if found else None
        if run.beside is not None:
            line = near
            beside = f"against it, for information: {answer(run.beside).line}"
        return Answer(verdict.outcome, line, changed, None, found, (), step, beside)
    head, others = shown[0], tuple(c for c in shown[1:] if c.outcome != "PASS")
    line, step = head.sentence, head.next_step
    if first and head.outcome == "INCONCLUSIVE" and head.code != "contention":
        line, others = _unchanged(run), shown  # that one number is missing is not the answer
        step = next((c.next_step for c in found if c.outcome == "NO_BASELINE"), step)
    elif first and head.code == "contention":
        line = f"measured, too disturbed for a baseline: machine busy{_busy(head.cells)}"
    beside = near if run.beside is not None else None
    return Answer(
        verdict.outcome, line, changed, _stayed(verdict.cells), found, others, step, beside
    )


def causes_of(cells: Sequence[CellVerdict]) -> tuple[Cause, ...]:
    """The cells by outcome and reason, worst first; those that only follow are with their cause."""
    groups: dict[tuple[Outcome, object], list[CellVerdict]] = {}
    for cell in cells:
        groups.setdefault(_key(cell, cells), []).append(cell)
    order = list(OUTCOMES)
    found = [
        Cause(outcome, _first(some).code, tuple(some), _said(outcome, some, cells))
        for (outcome, _), some in groups.items()
    ]
    return tuple(sorted(found, key=lambda c: order.index(c.outcome)))


def moved(cells: Sequence[CellVerdict]) -> list[CellVerdict]:
    """What is not the same as in the baseline, and can be compared with it."""
    return [c for c in cells if c.change is not None and c.outcome not in ("PASS", "INVALID")]


def where(cells: Sequence[CellVerdict]) -> str:
    """Which numbers: `prefill, generation at 32K, 128K; retrieval at 128K`."""
    depths: dict[str, list[int]] = {}
    for cell in sorted(cells, key=lambda c: (list(METRICS).index(c.metric.name), c.depth)):
        depths.setdefault(cell.metric.label, []).append(cell.depth)
    together: dict[tuple[int, ...], list[str]] = {}
    for label, some in depths.items():
        together.setdefault(tuple(some), []).append(label)
    return "; ".join(
        f"{', '.join(labels)} at {', '.join(depth_label(d) for d in some)}"
        for some, labels in together.items()
    )


def _key(cell: CellVerdict, cells: Sequence[CellVerdict]) -> tuple[Outcome, object]:
    if cell.code == "answers":  # a consequence: it stands with the answers of its rung
        cause = next((c for c in cells if c.depth == cell.depth and c.metric is RETRIEVAL), cell)
        return (cell.outcome, cause.code)
    if cell.code in ("pace", "drift"):
        return cell.outcome, cell.message.rpartition(", but ")[2]
    shared = cell.code in _SAID or cell.code in (
        "contention",
        "regressed",
        "anchor",
        "improved",
        "leak",
        "numbers",
        None,
    )
    if shared or cell.outcome == "NO_BASELINE":
        return cell.outcome, cell.code
    return cell.outcome, cell.message


def _first(cells: Sequence[CellVerdict]) -> CellVerdict:
    """The cell that says the reason: not one that only follows from it."""
    return next((c for c in cells if c.code != "answers"), cells[0])


def _said(outcome: Outcome, some: Sequence[CellVerdict], cells: Sequence[CellVerdict]) -> str:
    cell = _first(some)
    if cell.code == "numbers":
        return f"{where(some)}; {depth_label(cell.depth)}: {cell.message}"
    if outcome in ("REGRESSED", "IMPROVED"):
        crept = _CREPT.search(cell.message) if cell.code == "anchor" else None
        return _moved(some, cells) + (f"; {crept[0]}" if crept else "")
    if outcome == "PASS":
        return where(some)
    if outcome == "LEAK":
        depths = ", ".join(depth_label(c.depth) for c in some)
        return f"{cell.message.partition(' (')[0]} at {depths}"
    if outcome == "INVALID" and cell.metric is RETRIEVAL and cell.code in _SAID:
        return _answers_broken(some)
    if cell.code == "contention":
        return f"{len(some)} of {len(cells)} numbers, the machine was busy{_busy(some)}"
    if cell.code in ("pace", "drift"):
        return f"{where(some)}: {cell.message.rpartition(', but ')[2]}"
    if len(some) > 1 and cell.code in _SAID:
        return f"{where(some)}: {_SAID[cell.code]}"
    return f"{where(some)}: {cell.message}"


def _moved(some: Sequence[CellVerdict], cells: Sequence[CellVerdict]) -> str:
    """By how much, from which depth on, at which numbers; the largest change first."""
    by_metric: dict[str, list[CellVerdict]] = {}
    for cell in some:
        by_metric.setdefault(cell.metric.name, []).append(cell)
    moves = sorted(by_metric.values(), key=lambda m: -abs(m[-1].change or 0.0))
    spans: dict[str, list[str]] = {}
    for move in moves:
        spans.setdefault(_span(move, cells), []).append(
            f"{move[-1].metric.label} {change(move[-1])}"
        )
    deepest = moves[0][-1]
    numbers = f"{quantity(deepest, deepest.measured)}, was {_bare(deepest)}"
    return (
        ", ".join(f"{', '.join(parts)} {span}" for span, parts in spans.items())
        + f"; {depth_label(deepest.depth)}: {numbers}"
    )


def _bare(cell: CellVerdict) -> str:
    """The baseline's number; its unit has just been said."""
    return quantity(cell, cell.baseline).removesuffix(f" {cell.metric.unit}")


def _span(move: Sequence[CellVerdict], cells: Sequence[CellVerdict]) -> str:
    """`from 32K on` where all deeper cells of the metric moved as well, else the depths."""
    depths = sorted(c.depth for c in move)
    all_ = sorted(c.depth for c in cells if c.metric is move[0].metric)
    if len(depths) > 1 and depths == all_[-len(depths) :]:
        return f"from {depth_label(depths[0])} on"
    return f"at {', '.join(depth_label(d) for d in depths)}"


def _answers_broken(some: Sequence[CellVerdict]) -> str:
    """One wrong control, however many rungs and speeds it touches."""
    asked = [c for c in some if c.metric is RETRIEVAL]
    places = ", ".join(
        depth_label(c.depth)
        + (f" ({found[1]} right)" if (found := _CONTROL.search(c.message)) else "")
        for c in asked
    )
    far = f"{sum(c.measured or 0 for c in asked):.0f} of {sum(c.n_current for c in asked)}"
    follow = "; speeds measured, not judged" if len(some) > len(asked) else ""
    return f"{_SAID[str(asked[0].code)]} at {places}; far ones {far} right{follow}"


def _busy(cells: Sequence[CellVerdict]) -> str:
    """Who used the machine, each at its most."""
    most: dict[str, float] = {}
    for who, share in (m for c in cells for m in _BUSY.findall(c.message)):
        most[who] = max(most.get(who, 0.0), float(share))
    named = sorted(most.items(), key=lambda pair: -pair[1])[:3]
    return f" ({', '.join(f'{who} {share:.0f} %' for who, share in named)})" if named else ""


def _unchanged(run: Judged) -> str:
    """A run of which nothing is to be said but its numbers, at the deepest rung."""
    cells = [c for c in run.verdict.cells if c.measured is not None]
    if not cells:
        return "nothing was measured"
    depth = max(c.depth for c in cells)
    deepest = [c for c in cells if c.depth == depth]
    speeds = [c for c in deepest if c.metric.kind == "speed"]
    parts = [f"{c.metric.label} {number(c.measured)}" for c in speeds if c.measured is not None]
    numbers = [f"{', '.join(parts)} {speeds[0].metric.unit}"] if parts else []
    numbers += [
        quantity(c, c.measured) + (" right" if c.n_current else "")
        for c in deepest
        if c.metric is RETRIEVAL
    ]
    said = "first run" if run.baseline is None else "same as the baseline"
    return f"{said}; {depth_label(depth)}: {', '.join(numbers)}"


def _short(difference: str) -> str:
    """Builds by their number, where that tells them apart."""
    return _BUILD.sub(r"\1 → \2", difference)


def _stayed(cells: Sequence[CellVerdict]) -> str | None:
    same = [c for c in cells if c.outcome == "PASS"]
    if not same:
        return None
    outcomes = {m.label: {c.outcome for c in cells if c.metric is m} for m in METRICS.values()}
    whole = [label for label, found in outcomes.items() if found == {"PASS"}]
    count = f"{len(same)} of {len(cells)}"
    return f"{', '.join(whole)} ({count})" if whole else f"{count} numbers"


def _stopped(run: Judged) -> str | None:
    """The sentence of a run that was stopped by hand: what is finished, and where it stopped."""
    failure = run.record.footer.failure if run.record.footer is not None else None
    failed = [r for r in run.record.rungs if r.failure and r.failure.cause == "INTERRUPTED"]
    if not failed and (failure is None or failure.cause != "INTERRUPTED"):
        return None
    done = [r.depth for r in run.record.rungs if r.failure is None]
    at = f" at {depth_label(failed[-1].depth)}" if failed else ""
    finished = ", ".join(depth_label(d) for d in sorted(set(done))) or "nothing"
    return f"stopped{at}; finished: {finished}"
