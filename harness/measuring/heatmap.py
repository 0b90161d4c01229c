"""Drives a heatmap: one document grows, and every cell is asked on the way up.

At each length only the questions are read anew. A request with a wrong answer is put once more, the
same to the letter, with nothing reused: only then does a cell count as wrong.
"""

import random
import time

from harness.errors import SetupError
from harness.measuring.asking import Interview
from harness.questions.heatmap import (
    MAX_QUESTIONS,
    Cell,
    even_lengths,
    most_needles,
    plan_heatmap,
    true_shares,
)
from harness.questions.needles import Ask, CodeSource, Needle, make_ask, needle_names
from harness.records.probes import CellResult, Matrix

CONFIRM_LIMIT = 3.0
"""Tokens read cold to confirm failures, in multiples of the context; beyond it they stay open."""
_TAIL_MARGIN_TOKENS = 8


class HeatmapClimb:
    """One heatmap of `--heatmap LxD` on one server."""

    def __init__(self, interview: Interview) -> None:
        settings, script = interview.sitting.settings, interview.sitting.script
        assert settings.heatmap is not None
        lengths, bands = settings.heatmap
        self._interview = interview
        self._ctx_tokens = settings.ctx_tokens
        self._rng = random.Random(f"heatmap asks/{settings.seed}")
        self._codes = CodeSource(random.Random(f"heatmap codes/{settings.seed}"))
        names = needle_names(
            random.Random(f"heatmap names/{settings.seed}"), most_needles(lengths, bands)
        )
        self._tail_tokens = script.tail_tokens(_sample_ask(names)) + _TAIL_MARGIN_TOKENS
        wrapped = self._tail_tokens + script.head_tokens
        try:
            self.plan = plan_heatmap(
                [
                    (length, round(settings.fill * length) - wrapped)
                    for length in even_lengths(settings.ctx_tokens, lengths)
                ],
                names,
                self._codes,
                bands=bands,
            )
        except ValueError as error:
            raise SetupError(f"--heatmap {lengths}x{bands}: {error}") from error
        self._segments = interview.grow(self.plan.budgets, self.plan.planned)
        self._shares = true_shares(self.plan, self._segments)
        self._warm: dict[tuple[int, int], tuple[str, bool]] = {}
        self._cold: dict[tuple[int, int], tuple[str, bool]] = {}

    def run(self) -> Matrix:
        """Read, ask, confirm; the whole matrix.

        Raises:
            ServerError: the server failed on the way.
        """
        began_s = time.perf_counter()
        document = ""
        here: list[Needle] = []
        for segment in self._segments:
            document += segment.text
            here += [placed.needle for placed in segment.needles]
            self._interview.begin_document(here)
            first = segment is self._segments[0]
            self._interview.read(document, segment.total_tokens, reuse=not first)
            failed: list[tuple[Ask, tuple[Cell, ...]]] = []
            for cells in self.plan.asks[segment.depth]:
                ask = make_ask([c.needle for c in cells], self._codes, "shuffled", self._rng)
                if not self._put(document, segment.total_tokens, ask, cells, cold=False):
                    failed.append((ask, cells))
            for ask, cells in failed:
                spent = self._interview.spent.cold_tokens + segment.total_tokens
                if spent <= CONFIRM_LIMIT * self._ctx_tokens:
                    self._put(document, segment.total_tokens, ask, cells, cold=True)
            self._interview.sitting.reporter.say(
                f"heatmap at {segment.depth}: {len(self.plan.asks[segment.depth])} requests"
                + (f", {len(failed)} with wrong answers" if failed else ", all right")
            )
        return self._matrix(time.perf_counter() - began_s)

    def _put(
        self, document: str, tokens: int, ask: Ask, cells: tuple[Cell, ...], *, cold: bool
    ) -> bool:
        """Ask and note what each cell said; False when one that counts was wrong."""
        answered = self._interview.ask(document, tokens, ask, cold=cold)
        seen = self._cold if cold else self._warm
        for cell in cells:
            seen[cell.length, cell.band] = (
                answered.class_of(ask, cell.needle),
                answered.diagnosis.valid,
            )
        return answered.right

    def _matrix(self, elapsed_s: float) -> Matrix:
        spent = self._interview.spent
        return Matrix(
            lengths=tuple(length for length, _ in self.plan.budgets),
            document_tokens=tuple(s.total_tokens for s in self._segments),
            bands=self.plan.bands,
            cells=tuple(self._result(cell) for cell in self.plan.cells),
            prefilled_tokens=spent.document_tokens + spent.question_tokens,
            planned_prefilled_tokens=self.plan.prefilled_tokens(self._tail_tokens),
            question_tokens=spent.question_tokens,
            confirm_tokens=spent.cold_tokens,
            elapsed_s=elapsed_s,
        )

    def _result(self, cell: Cell) -> CellResult:
        place = (cell.length, cell.band)
        warm_class, warm_valid = self._warm[place]
        cold_class, cold_valid = self._cold.get(place, (None, True))
        return CellResult(
            length=cell.length,
            band=cell.band,
            share=self._shares[place],
            warm_class=warm_class,
            warm_valid=warm_valid,
            cold_class=cold_class,
            cold_valid=cold_valid,
        )


def _sample_ask(names: list[str]) -> Ask:
    """A request of the longest kind, for measuring; it is never sent."""
    rng = random.Random(0)
    codes = CodeSource(rng)
    longest = sorted(names, key=len)[1 - MAX_QUESTIONS :]
    needles = [Needle(f"MEMORY TARGET {name}", codes.take("MEM")) for name in longest]
    return make_ask(needles, codes, "forward", rng)
