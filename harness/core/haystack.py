"""Haystacks: documents of an exact token budget whose every rung is a true prefix of the next.

Needles for all rungs are placed while the document grows, each rung's five at 5/25/50/75/95 % of
*that* rung, so one prefill of the deepest rung serves the whole ladder.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from harness.core.background import Background, lines
from harness.core.needles import MEMORY_TARGET, CodeSource, Needle, needle_names

CountTokens = Callable[[Sequence[str]], Sequence[int]]
"""Token count of each text, by the tokenizer of the server in hand."""

PLACEMENT: tuple[float, ...] = (0.05, 0.25, 0.50, 0.75, 0.95)
"""Where each rung's needles stand, as shares of the rung's document (seed 2's choice)."""

_BLOCK_LINES = 512
_FIT_POOL = 400


@dataclass(frozen=True, slots=True)
class Placed:
    """A needle and where it went: `at_tokens` counts document tokens before it."""

    needle: Needle
    at_tokens: int
    share: float


@dataclass(frozen=True, slots=True)
class Segment:
    """What one rung adds to the document.

    `text` is new text, newline-terminated; `tokens` its count; `total_tokens` the document's count
    up to and including it; `needles` are the rung's own, in document order.
    """

    depth: int
    text: str
    tokens: int
    total_tokens: int
    needles: tuple[Placed, ...]


def build(
    budgets: Sequence[tuple[int, int]],
    count_tokens: CountTokens,
    codes: CodeSource,
    *,
    seed: int,
    background: Background,
    tolerance_tokens: int = 4,
) -> list[Segment]:
    """Grow one document through `budgets`, pairs of (rung depth, document tokens), ascending.

    Each segment ends within `tolerance_tokens` of its budget, at a newline.

    Raises:
        ValueError: a budget is too small for its needles or not ascending.
    """
    if not budgets or any(b[1] <= a[1] for a, b in zip(budgets, budgets[1:], strict=False)):
        raise ValueError(f"document budgets must ascend, got {[b for _, b in budgets]}")
    rng = random.Random(f"haystack/{seed}/{background}")
    source = lines(rng, background)
    pending = _plan_needles(budgets, codes, seed)
    needle_tokens = count_tokens([p.needle.text for p in pending])
    queue = sorted(zip(pending, needle_tokens, strict=True), key=lambda item: item[0].at_tokens)
    homes = {p.needle.label: depth for p, depth in zip(pending, _homes(budgets), strict=True)}
    filler = _Filler(source, count_tokens)
    placed: dict[int, list[Placed]] = {depth: [] for depth, _ in budgets}
    segments: list[Segment] = []
    total = 0
    for depth, budget in budgets:
        start, parts = total, []
        while True:
            if queue and queue[0][0].at_tokens <= total:
                plan, size = queue.pop(0)
                parts.append(plan.needle.text)
                home = homes[plan.needle.label]
                placed[home].append(Placed(plan.needle, total, plan.share))
                total += size
                continue
            room = budget - total
            limit = min(room, queue[0][0].at_tokens - total) if queue else room
            if room <= tolerance_tokens:
                break
            text, size = filler.exactly(room) if limit == room and room < 160 else filler.next()
            if size > room:
                text, size = filler.exactly(room)
            if size <= 0:
                break
            parts.append(text)
            total += size
        if abs(budget - total) > tolerance_tokens or len(placed[depth]) < len(PLACEMENT):
            raise ValueError(
                f"a rung of {depth} leaves {budget} tokens for the document, too few for its "
                f"{len(PLACEMENT)} needles; choose a deeper rung"
            )
        segments.append(
            Segment(depth, "".join(parts), total - start, total, tuple(placed[depth]))
        )
    return segments


def _plan_needles(
    budgets: Sequence[tuple[int, int]], codes: CodeSource, seed: int
) -> list[Placed]:
    rng = random.Random(f"names/{seed}")
    names = iter(needle_names(rng, len(PLACEMENT) * len(budgets)))
    return [
        Placed(
            Needle(f"{MEMORY_TARGET} {next(names)}", codes.take("MEM")), int(share * budget), share
        )
        for _, budget in budgets
        for share in PLACEMENT
    ]


def _homes(budgets: Sequence[tuple[int, int]]) -> list[int]:
    return [depth for depth, _ in budgets for _ in PLACEMENT]


class _Filler:
    """Background lines with their token counts, and a pool to end a segment exactly."""

    def __init__(self, source: "object", count_tokens: CountTokens) -> None:
        self._source = source
        self._count = count_tokens
        self._ready: list[tuple[str, int]] = []
        self._pool: list[tuple[str, int]] = []

    def next(self) -> tuple[str, int]:
        """The next background line."""
        if not self._ready:
            block = list(islice(self._source, _BLOCK_LINES))  # type: ignore[call-overload]
            self._ready = list(zip(block, self._count(block), strict=True))[::-1]
        return self._ready.pop()

    def exactly(self, room: int) -> tuple[str, int]:
        """The line that brings the segment nearest to ending exactly; ("", 0) when none fits.

        A line whose count is `room` ends it; otherwise one that leaves room for another line.
        """
        while len(self._pool) < _FIT_POOL:
            self._pool.append(self.next())
        sizes = sorted({size for _, size in self._pool})
        if room in sizes:
            wanted = room
        else:
            able = [s for s in sizes if s < room]
            ends = [s for s in able if room - s in sizes]
            rests = [s for s in able if room - s >= 2 * sizes[0]]
            choice = ends or rests or able
            if not choice:
                return "", 0
            wanted = choice[len(choice) // 2] if (ends or rests) else choice[-1]
        index = next(i for i, (_, size) in enumerate(self._pool) if size == wanted)
        return self._pool.pop(index)
