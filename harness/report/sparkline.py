"""A curve as one line of text, in plain ASCII where blocks can't be shown."""

import itertools
import math
from collections.abc import Sequence
from statistics import median

from harness.records.lines import Chunk, RunRecord
from harness.records.samples import samples_of

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
WIDTH = 48
LEAST_WIDTH = 8


def sparkline(
    values: Sequence[float], encoding: str | None, *, width: int = WIDTH, span: float = 0.0
) -> str:
    """One sign a value, lowest to highest; more values than `width` are drawn together by median.

    A flat series is shown in the middle, an empty one as nothing. From bottom to top is at least
    the share `span` of the median, so that noise does not look like a change.
    """
    if not values:
        return ""
    marks = BLOCKS if _shows(BLOCKS, encoding) else ASCII
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [median(values[a:b]) for a, b in itertools.pairwise(edges)]
    low, high = min(values), max(values)
    if high - low < span * abs(median(values)):
        middle, reach = (low + high) / 2, span * abs(median(values)) / 2
        low, high = middle - reach, middle + reach
    if high - low <= 1e-9 * abs(high):
        return marks[len(marks) // 2] * len(values)
    top = len(marks) - 1
    return "".join(marks[round((v - low) / (high - low) * top)] for v in values)


def prefill_line(record: RunRecord, encoding: str | None, *, columns: int = 100) -> str | None:
    """The prefill curve of a whole climb in one line of `columns`; `None` without a curve or room.

    Its ends are in numbers. Batches are spaced by the logarithm of depth, as in the report's plot.
    """
    chunks = curve_of(record)
    if len(chunks) < 2:
        return None
    paces = [(c.end_tokens, rate(c)) for c in chunks]
    before = f"prefill by batch, tok/s: {paces[0][1]:,.0f} "
    after = f" {paces[-1][1]:,.0f} (to {paces[-1][0]:,} tokens)"
    room = min(WIDTH, columns - len(before) - len(after))
    if room < LEAST_WIDTH:
        return None
    first, last = math.log(paces[0][0]), math.log(paces[-1][0])
    places: dict[int, list[float]] = {}
    for end, pace in paces:
        share = 0.0 if last == first else (math.log(end) - first) / (last - first)
        places.setdefault(round(share * (room - 1)), []).append(pace)
    line = sparkline([median(places[c]) for c in sorted(places)], encoding, width=room)
    return f"{before}{line}{after}"


def curve_of(record: RunRecord) -> list[Chunk]:
    """The batches of all rungs by depth, of disturbed ones as well."""
    chunks = [
        chunk
        for depth in record.header.plan.depths
        if (rung := record.rung(depth)) is not None
        for chunk in samples_of(rung, contended=True).chunks
    ]
    return sorted(
        (c for c in chunks if c.ms > 0 and c.end_tokens > c.start_tokens),
        key=lambda c: c.start_tokens,
    )


def rate(chunk: Chunk) -> float:
    """Tokens per second of one batch."""
    return (chunk.end_tokens - chunk.start_tokens) / chunk.ms * 1e3


def _shows(marks: str, encoding: str | None) -> bool:
    try:
        marks.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
