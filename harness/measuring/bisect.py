"""Bisects a series of builds: each pair by the rules of `compare`, kept once it is measured."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.errors import SetupError
from harness.measuring.compare import ArmError, Comparison
from harness.measuring.reporter import Reporter
from harness.quantities import duration
from harness.records.bisect import Books, Cell, Focus, Pair
from harness.records.files import replace_whole
from harness.settings import Settings
from harness.verdicts.bisect import Answer, Asked, Ended, Question, next_step
from harness.verdicts.cell import CellVerdict

BOOKS = "bisect.json"


class Bisection:
    """A series of builds and the pairs of it that were measured so far.

    Args:
        books: as far as they are; written to `folder` after every pair.
        folder: where books and the pairs' records go.
        arm: the settings under which a build of that name is measured.
        metrics: names of the metrics that decide; of all, the first pair's worst cell does.
        blocks: ABBA blocks of a comparison, up to twice as many while noise hides a cell.
    """

    def __init__(
        self,
        books: Books,
        folder: Path,
        arm: Callable[[str], Settings],
        reporter: Reporter,
        *,
        metrics: Sequence[str],
        blocks: int,
        short_tokens: int,
        contended: bool = False,
    ) -> None:
        self.books = books
        self._folder = folder
        self._arm = arm
        self._reporter = reporter
        self._metrics = metrics
        self._blocks = blocks
        self._short_tokens = short_tokens
        self._contended = contended

    def run(self) -> Ended:
        """Measure pair after pair until the first bad build is named, or cannot be.

        Raises:
            SetupError: the first build, or one that was measured before, cannot be measured.
        """
        while isinstance(step := self._next(), Question):
            self._say(step)
            self._keep(self._measured(step.a, step.b))
        return step

    def _next(self) -> Question | Ended:
        asked = [Asked(pair.a, pair.b, pair.answer) for pair in self.books.pairs]
        return next_step(len(self.books.builds), asked)

    def _say(self, step: Question) -> None:
        took_s = [pair.took_s for pair in self.books.pairs if pair.answer != "DEAD"]
        left = f"about {step.steps_left} left"
        if took_s:
            left += f", {duration(step.steps_left * sum(took_s) / len(took_s))}"
        names = self.books.builds
        self._reporter.say(
            f"comparison {len(self.books.pairs) + 1} ({left}): {names[step.b]} against "
            f"{names[step.a]}"
        )

    def _measured(self, a: int, b: int) -> Pair:
        since_s = time.perf_counter()
        folder = self._folder / f"{len(self.books.pairs) + 1:02d}"

        def pair(answer: Answer, cells: Sequence[CellVerdict] = (), said: str = "") -> Pair:
            return Pair(
                a=a,
                b=b,
                answer=answer,
                cells=tuple(_cell(cell) for cell in cells),
                said=said,
                folder=folder.name,
                took_s=round(time.perf_counter() - since_s, 3),
            )

        first = self._settings(a)
        try:
            second = self._settings(b)
        except SetupError as error:
            return pair("DEAD", said=str(error).splitlines()[0])
        comparison = Comparison(
            {"A": first, "B": second},
            folder,
            self._reporter,
            short_tokens=self._short_tokens,
            metrics=self._metrics if self.books.focus is None else (self.books.focus.metric,),
            contended=self._contended,
        )
        try:
            comparison.differences()  # gets the builds that are not here yet
            compared = comparison.measure(self._blocks, 2 * self._blocks)
        except ArmError as error:
            if error.side == "A":
                raise
            return pair("DEAD", said=str(error).splitlines()[0])
        depth = None if self.books.focus is None else self.books.focus.depth
        cells = [cell for cell in compared.cells if depth in (None, cell.depth)]
        return pair(answer_of(cells), cells)

    def _settings(self, place: int) -> Settings:
        settings = self._arm(self.books.builds[place])
        if (focus := self.books.focus) is None or settings.spot:  # kept are documents of a ladder
            return settings
        return settings.model_copy(update={"depths": (focus.depth,)})

    def _keep(self, pair: Pair) -> None:
        focus = self.books.focus
        if focus is None and pair.answer == "BAD":
            focus = worst(pair)
            self._reporter.say(f"looked for: the loss of {focus.metric} at {focus.depth}")
        self.books = self.books.with_pair(pair, focus)
        replace_whole(self._folder / BOOKS, self.books.model_dump_json(indent=1))
        names = self.books.builds
        word = {"BAD": "worse", "GOOD": "no worse", "UNCLEAR": "not told apart", "DEAD": "not run"}
        why = f": {pair.said}" if pair.said else ""
        self._reporter.say(f"{names[pair.b]} against {names[pair.a]}: {word[pair.answer]}{why}")


def answer_of(cells: Sequence[CellVerdict]) -> Answer:
    """What a comparison's cells say of B: worse if any is, no worse if all are."""
    outcomes = {cell.outcome for cell in cells}
    if outcomes & {"REGRESSED", "LEAK"}:
        return "BAD"
    return "GOOD" if outcomes and outcomes <= {"PASS", "IMPROVED"} else "UNCLEAR"


def worst(pair: Pair) -> Focus:
    """The cell that lost most, by the ratio of the two readings."""
    bad = [cell for cell in pair.cells if cell.outcome in ("REGRESSED", "LEAK")]
    cell = max(bad, key=_loss)
    return Focus(metric=cell.metric, depth=cell.depth)


def _loss(cell: Cell) -> float:
    if not cell.before or cell.after is None:
        return 0.0
    return abs(math.log(cell.after / cell.before)) if cell.after else math.inf


def _cell(cell: CellVerdict) -> Cell:
    return Cell(
        metric=cell.metric.name,
        depth=cell.depth,
        outcome=cell.outcome,
        before=cell.baseline,
        after=cell.measured,
        change=cell.change,
        low=cell.low,
        high=cell.high,
        message=cell.message,
    )
