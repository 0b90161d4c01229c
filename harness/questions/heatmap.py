"""Heatmaps for the price of one prefill: which needle answers which cell, asked on the way up.

A cell is a length of the document and a band of depth in it (the first sixteenth, the second ...).
One document grows through all lengths. A needle stands in a band of every length that reaches it,
so later lengths ask needles that are there already and add only what their bands lack: 8 x 16 cells
need about 45 needles, not 128. At each length only the questions are read anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.questions.haystack import Placed, Segment
from harness.questions.needles import MEMORY_TARGET, CodeSource, Needle

DEFAULT_LENGTHS = 8
DEFAULT_BANDS = 16
MAX_QUESTIONS = 8
"""Most questions in one request, the control's included (the reference model's limit)."""


NEEDLE_TOKENS = 48
"""Room kept for a needle and for the line that may run past its place, by default."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: band `band` of the document of `length` (a rung's depth), answered by a needle.

    `share` is the needle's planned place as a share of that document.
    """

    length: int
    band: int
    needle: Needle
    share: float


@dataclass(frozen=True, slots=True)
class HeatmapPlan:
    """What to put where and what to ask.

    `planned` is what `haystack.grow` takes: needles by the first length that asks them; `asks` maps
    each length to its requests, each a tuple of cells in document order.
    """

    budgets: tuple[tuple[int, int], ...]
    bands: int
    planned: Mapping[int, tuple[Placed, ...]]
    asks: Mapping[int, tuple[tuple[Cell, ...], ...]]

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, shortest length first, in document order within it."""
        for asks in self.asks.values():
            yield from sorted((c for ask in asks for c in ask), key=lambda cell: cell.band)

    @property
    def requests(self) -> int:
        """How many questions-only requests the heatmap takes, confirmations not counted."""
        return sum(len(asks) for asks in self.asks.values())

    def prefilled_tokens(self, tail_tokens: int) -> int:
        """Tokens read in all: the longest document once, and `tail_tokens` for each request."""
        return self.budgets[-1][1] + self.requests * tail_tokens


def even_lengths(ctx_tokens: int, count: int = DEFAULT_LENGTHS) -> tuple[int, ...]:
    """`count` lengths in equal steps up to `ctx_tokens`."""
    if not 1 <= count <= ctx_tokens:
        raise ValueError(f"a heatmap needs 1 to {ctx_tokens} lengths, got {count}")
    return tuple(ctx_tokens * step // count for step in range(1, count + 1))


def plan_heatmap(
    budgets: Sequence[tuple[int, int]],
    names: Sequence[str],
    codes: CodeSource,
    *,
    bands: int = DEFAULT_BANDS,
    max_questions: int = MAX_QUESTIONS,
    needle_tokens: int = NEEDLE_TOKENS,
) -> HeatmapPlan:
    """Place needles for every (length, band) of `budgets`, pairs of (length, document tokens).

    `names` are taken in turn; `most_needles` says how many are enough. A new needle stands in the
    middle of its band. `needle_tokens` is what a needle and one background line take at most.

    Raises:
        ValueError: lengths that do not ascend, too few names, or bands too narrow for a needle.
    """
    if not budgets or any(b <= a for (_, a), (_, b) in pairwise(budgets)):
        raise ValueError(f"a heatmap's lengths must ascend, got {[b for _, b in budgets]} tokens")
    if bands < 1 or max_questions < 2:
        raise ValueError("a heatmap needs a band of depth, and two questions a request or more")
    shortest, least = budgets[0][1], bands * 2 * needle_tokens
    if shortest < least:
        raise ValueError(
            f"{bands} bands need a shortest document of {least} tokens, got {shortest}; "
            "ask for fewer depths or fewer lengths"
        )
    fresh = iter(names)
    placed: list[Placed] = []
    planned: dict[int, tuple[Placed, ...]] = {}
    asks: dict[int, tuple[tuple[Cell, ...], ...]] = {}
    for length, budget in budgets:
        new: list[Placed] = []
        row: list[Cell] = []
        for band in range(bands):
            found = _nearest(placed, budget, band, bands, needle_tokens)
            if found is None:
                found = _new_needle(fresh, codes, budget, band, bands)
                new.append(found)
            row.append(Cell(length, band, found.needle, found.at_tokens / budget))
        placed += new
        planned[length] = tuple(new)
        asks[length] = _requests(row, max_questions - 1)
    return HeatmapPlan(tuple(budgets), bands, planned, asks)


def most_needles(lengths: int, bands: int) -> int:
    """Names that are enough for any heatmap of this shape (one a cell, none shared)."""
    return lengths * bands


def _nearest(
    placed: Sequence[Placed], budget: int, band: int, bands: int, needle_tokens: int
) -> Placed | None:
    """The needle nearest to the middle of a band, well inside it; `None` when there is none.

    A needle moves by up to a line when the document is made, so one near a band's end won't do.
    """
    first, last = band * budget / bands, (band + 1) * budget / bands - needle_tokens
    middle = (band + 0.5) * budget / bands
    inside = [p for p in placed if first <= p.at_tokens <= last]
    return min(inside, key=lambda p: abs(p.at_tokens - middle), default=None)


def _new_needle(
    names: Iterator[str], codes: CodeSource, budget: int, band: int, bands: int
) -> Placed:
    name = next(names, None)
    if name is None:
        raise ValueError("too few names for a heatmap of this shape; see most_needles()")
    at_tokens = int((band + 0.5) * budget / bands)
    return Placed(
        Needle(f"{MEMORY_TARGET} {name}", codes.take("MEM")), at_tokens, at_tokens / budget
    )


def _requests(row: Sequence[Cell], most: int) -> tuple[tuple[Cell, ...], ...]:
    """A length's cells dealt out to as few requests as can be, each spread over all depths."""
    count = -(-len(row) // most)
    return tuple(tuple(row[start::count]) for start in range(count))


def true_shares(plan: HeatmapPlan, segments: Sequence[Segment]) -> dict[tuple[int, int], float]:
    """Where each cell's needle really stands, as a share, by (length, band).

    `segments` are the document as made by `haystack.grow` from `plan.planned`.
    """
    at = {p.needle: p.at_tokens for segment in segments for p in segment.needles}
    totals = {segment.depth: segment.total_tokens for segment in segments}
    return {(c.length, c.band): at[c.needle] / totals[c.length] for c in plan.cells}
