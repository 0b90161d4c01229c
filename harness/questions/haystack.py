"""Haystacks: documents of an exact token budget whose every rung is a true prefix of the next.

Needles for all rungs are placed while the document grows, each rung's five at 5/25/50/75/95 % of
*that* rung, so one prefill of the deepest rung serves the whole ladder.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from harness.questions.background import Background, lines
from harness.questions.needles import MEMORY_TARGET, CodeSource, Needle, needle_names
from harness.questions.needles import distractors as look_alikes

CountTokens = Callable[[Sequence[str]], Sequence[int]]
"""Token count of each text, by the tokenizer of the server in hand."""

PLACEMENT: tuple[float, ...] = (0.05, 0.25, 0.50, 0.75, 0.95)
"""Where each rung's needles stand, as shares of the rung's document."""

_BLOCK_LINES = 512
_FIT_POOL = 400
_FIT_TOKENS = 160
_TRIM_LINES = 12


@dataclass(frozen=True, slots=True)
class Placed:
    """A needle and where it goes: `at_tokens` counts document tokens before it.

    `share` is the place asked for, as a share of the rung that it belongs to. One that is `exact`
    stands there to the token, not after the line that goes beyond.
    """

    needle: Needle
    at_tokens: int
    share: float
    exact: bool = False


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
    return grow(
        budgets,
        plan_ladder(budgets, codes, seed=seed),
        count_tokens,
        seed=seed,
        background=background,
        tolerance_tokens=tolerance_tokens,
    )


def plan_ladder(
    budgets: Sequence[tuple[int, int]], codes: CodeSource, *, seed: int
) -> dict[int, list[Placed]]:
    """Each rung's five needles, by depth, at `PLACEMENT` of its document."""
    names = iter(needle_names(_source(f"names/{seed}"), len(PLACEMENT) * len(budgets)))
    return {
        depth: [
            Placed(
                Needle(f"{MEMORY_TARGET} {next(names)}", codes.take("MEM")),
                int(share * budget),
                share,
            )
            for share in PLACEMENT
        ]
        for depth, budget in budgets
    }


def plan_distractors(
    budgets: Sequence[tuple[int, int]],
    planned: Mapping[int, Sequence[Placed]],
    codes: CodeSource,
    *,
    per_rung: int,
    seed: int,
) -> list[Placed]:
    """`per_rung` records a rung that look like its needles, anywhere in what the rung adds."""
    rng = _source(f"distractors/{seed}")
    needles = [placed.needle for rung in planned.values() for placed in rung]
    records = iter(look_alikes(rng, needles, codes, per_rung * len(budgets)))
    found: list[Placed] = []
    start = 0
    for _, budget in budgets:
        for record in islice(records, per_rung):
            at_tokens = start + int(rng.uniform(0.02, 0.95) * (budget - start))
            found.append(Placed(record, at_tokens, at_tokens / budget))
        start = budget
    return found


def grow(
    budgets: Sequence[tuple[int, int]],
    planned: Mapping[int, Sequence[Placed]],
    count_tokens: CountTokens,
    *,
    seed: int,
    background: Background,
    distractors: Sequence[Placed] = (),
    tolerance_tokens: int = 4,
) -> list[Segment]:
    """Grow one document through `budgets` with any needles at any places.

    `planned` maps a rung's depth to its own needles, which stand in that rung or before it;
    `distractors` belong to no rung and stand wherever their place is. A needle goes where a line
    ends at or after its place; earlier only where the rung would end before it.

    Raises:
        ValueError: budgets that do not ascend, a place outside the document, or a budget too small
            for the needles that must stand before it ends.
    """
    if not budgets or budgets[0][1] <= 0 or any(b <= a for (_, a), (_, b) in pairwise(budgets)):
        raise ValueError(f"document budgets must ascend, got {[b for _, b in budgets]}")
    records = _sized(budgets, planned, distractors, count_tokens)
    filler = _Filler(
        lines(_source(f"haystack/{seed}/{background}"), background),
        count_tokens,
        tolerance_tokens,
    )
    placed: dict[int, list[Placed]] = {depth: [] for depth, _ in budgets}
    segments: list[Segment] = []
    total = 0
    for rung, (depth, budget) in enumerate(budgets):
        inside, records = _share_out(records, rung, total, budget)
        start = total
        parts: list[str] = []
        for record in inside:
            total = filler.approach(parts, total, record.plan.at_tokens, record.latest)
            parts.append(record.plan.needle.text)
            if record.home is not None:
                home = budgets[record.home][0]
                placed[home].append(replace(record.plan, at_tokens=total))
            total += record.tokens
        total = filler.finish(parts, total, budget)
        if abs(budget - total) > tolerance_tokens:
            raise ValueError(
                f"the document of rung {depth} ends at {total} tokens instead of {budget}: no "
                f"background line fits; allow more than {tolerance_tokens} tokens of tolerance"
            )
        segments.append(Segment(depth, "".join(parts), total - start, total, tuple(placed[depth])))
    return segments


def _source(name: str) -> random.Random:
    return random.Random(name)


@dataclass(frozen=True, slots=True)
class _Record:
    """A needle with its size, its rung's index (`None`: a distractor) and its last place."""

    plan: Placed
    tokens: int
    home: int | None
    latest: int


def _sized(
    budgets: Sequence[tuple[int, int]],
    planned: Mapping[int, Sequence[Placed]],
    distractors: Sequence[Placed],
    count_tokens: CountTokens,
) -> list[_Record]:
    """All records with their token counts, in the order of their places."""
    homes = {depth: index for index, (depth, _) in enumerate(budgets)}
    plans: list[tuple[Placed, int | None]] = [
        (plan, homes[depth]) for depth, plans in planned.items() for plan in plans
    ]
    plans += [(plan, None) for plan in distractors]
    for plan, home in plans:
        end = budgets[-1 if home is None else home][1]
        if not 0 <= plan.at_tokens < end:
            raise ValueError(
                f"{plan.needle.label} is to stand at token {plan.at_tokens}, outside the "
                f"{end} tokens of its document"
            )
    sizes = count_tokens([plan.needle.text for plan, _ in plans])
    records = [
        _Record(plan, size, home, latest=0) for (plan, home), size in zip(plans, sizes, strict=True)
    ]
    return sorted(records, key=lambda record: record.plan.at_tokens)


def _share_out(
    records: Sequence[_Record], rung: int, start: int, budget: int
) -> tuple[list[_Record], list[_Record]]:
    """The records that stand in this rung's segment, with their last places, and the rest.

    A rung's own are always inside. Of the others, the last in order wait for the next segment
    until no needle is pushed before its place by those behind it.
    """
    own = [record for record in records if record.home == rung]
    needed = sum(record.tokens for record in own)
    if needed > budget - start:
        raise ValueError(
            f"a rung's document of {budget} tokens, {budget - start} of them new, has no room for "
            f"its {needed} tokens of needles; choose a deeper rung"
        )
    others = [r for r in records if r.home != rung and r.plan.at_tokens + r.tokens <= budget]
    while True:
        kept = {id(record) for record in [*own, *others]}
        inside: list[_Record] = []
        end = budget
        for record in reversed([r for r in records if id(r) in kept]):
            if record.plan.exact:
                end = min(end, record.plan.at_tokens + record.tokens)
            end -= record.tokens
            inside.append(replace(record, latest=end))
        early = any(r.home != rung and r.latest < r.plan.at_tokens for r in inside)
        if not others or (end >= start and not early):
            return inside[::-1], [r for r in records if id(r) not in kept]
        others.pop()


class _Filler:
    """Background lines with their token counts, and a pool to end a segment exactly."""

    def __init__(
        self, source: Iterator[str], count_tokens: CountTokens, tolerance_tokens: int
    ) -> None:
        self._source = source
        self._count = count_tokens
        self._tolerance = tolerance_tokens
        self._ready: list[tuple[str, int]] = []
        self._pool: list[tuple[str, int]] = []

    def approach(self, parts: list[str], total: int, target: int, latest: int) -> int:
        """Add lines until `total` reaches `target`, never beyond `latest`; return the new total."""
        while total < min(target, latest):
            text, size = self._next()
            if total + size > latest:
                text, size = self._exactly(latest - total)
            if size <= 0:
                break
            parts.append(text)
            total += size
        return total

    def finish(self, parts: list[str], total: int, budget: int) -> int:
        """Add lines until `total` is within tolerance of `budget`; return the new total."""
        while (room := budget - total) > self._tolerance:
            text, size = self._exactly(room) if room < _FIT_TOKENS else self._next()
            if size > room:
                text, size = self._exactly(room)
            if size <= 0:
                break
            parts.append(text)
            total += size
        return total

    def _next(self) -> tuple[str, int]:
        """The next background line."""
        if not self._ready:
            block = list(islice(self._source, _BLOCK_LINES))
            self._ready = list(zip(block, self._count(block), strict=True))[::-1]
        return self._ready.pop()

    def _exactly(self, room: int) -> tuple[str, int]:
        """The line that brings the segment nearest to ending exactly; ("", 0) when none fits.

        A line whose count is `room` ends it; otherwise one that leaves room for another line;
        otherwise a part of one.
        """
        while len(self._pool) < _FIT_POOL:
            self._pool.append(self._next())
        sizes = sorted({size for _, size in self._pool})
        if room in sizes:
            wanted = room
        else:
            able = [s for s in sizes if s < room]
            ends = [s for s in able if room - s in sizes]
            rests = [s for s in able if room - s >= 2 * sizes[0]]
            if choice := ends or rests:
                wanted = choice[len(choice) // 2]
            elif able and room - able[-1] <= self._tolerance:
                wanted = able[-1]
            else:
                return self._part(room)
        index = next(i for i, (_, size) in enumerate(self._pool) if size == wanted)
        return self._pool.pop(index)

    def _part(self, room: int) -> tuple[str, int]:
        """The largest part of a line, a beginning or one word, that fits; ("", 0) if none does."""
        lines_of_words = [text.split() for text, _ in self._pool[:_TRIM_LINES]]
        cut = [" ".join(line[:n]) for line in lines_of_words for n in range(1, len(line) + 1)]
        cut += [word for line in lines_of_words for word in line]
        parts = [part + "\n" for part in dict.fromkeys(cut)]
        fitting = [
            (p, size) for p, size in zip(parts, self._count(parts), strict=True) if size <= room
        ]
        return max(fitting, key=lambda fit: fit[1], default=("", 0))
