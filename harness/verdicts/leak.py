"""Does the server's memory grow with every token it generates: by slope, not by level.

What is looked at is anonymous resident memory plus swap: the mapped model file comes and goes
with the page cache, and memory that is swapped out leaves the resident part flat. The slope is
Theil and Sen's (the median over all pairs of samples) with its 95 % interval, from scipy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import theilslopes

from harness.records.lines import MemorySample, Rung

MIN_SAMPLES = 8  # half of them must still give a slope with an interval
TOLERANCE_BYTES = 16 * 2**10  # per token; less than this isn't worth a run's outcome
# A KV cache's pages become resident as they are first written. Where the theory of the model's
# cache isn't known, as much as the largest common models hold per token (f16) must be allowed.
UNKNOWN_KV_BYTES = 512 * 2**10


@dataclass(frozen=True, slots=True)
class Point:
    """Memory (`RssAnon` + `VmSwap`, bytes) after so many generated tokens in the server's life."""

    generated_tokens: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth per generated token with its interval, bytes; `outcome` and the reason in words."""

    outcome: Literal["LEAK", "NO_LEAK", "UNKNOWN"]
    reason: str
    bytes_per_token: float | None = None
    low_bytes_per_token: float | None = None
    high_bytes_per_token: float | None = None


def held_bytes(sample: MemorySample) -> int | None:
    """What a leak shows in: anonymous memory plus swap, else private commit (Windows).

    `None` where neither can be read; plain RSS is no substitute, since it holds the mapped model.
    """
    if sample.rss_anon_bytes is not None:
        return sample.rss_anon_bytes + (sample.swap_bytes or 0)
    return sample.commit_bytes


def points(samples: Iterable[MemorySample]) -> tuple[Point, ...]:
    """The samples that can be used, each with the tokens generated until then."""
    return tuple(
        Point(sample.generated_tokens, held)
        for sample in samples
        if sample.generated_tokens is not None and (held := held_bytes(sample)) is not None
    )


def growth_at(rung: Rung, kv_bytes_per_token: float | None = None) -> Growth:
    """Growth while one rung's questions are answered and its generation is repeated.

    Its document is in the cache before the first sample, and every repeat starts again behind it.
    """
    return find_leak(points(rung.memory), kv_bytes_per_token)


def find_leak(series: Sequence[Point], kv_bytes_per_token: float | None = None) -> Growth:
    """Judge the growth of `series`, in order of tokens.

    `kv_bytes_per_token` is what the cache may legitimately grow by while it is filled for the
    first time. LEAK needs a slope whose whole interval lies beyond that, over all samples and
    over the later half alone: what rises once and then stays is a buffer, not a leak.
    """
    half = series[len(series) // 2 :]
    if len(series) < MIN_SAMPLES or len({p.generated_tokens for p in half}) < 2:
        return Growth(
            "UNKNOWN",
            f"{len(series)} memory samples during generation, {MIN_SAMPLES} at different token "
            "counts are needed to tell a leak: raise the number of repeats",
        )
    expected = UNKNOWN_KV_BYTES if kv_bytes_per_token is None else kv_bytes_per_token
    limit = expected + TOLERANCE_BYTES
    whole, later = _slope(series), _slope(half)
    slope, low, high = whole
    if low > limit and later[1] > limit:
        grown = series[-1].held_bytes - series[0].held_bytes
        tokens = series[-1].generated_tokens - series[0].generated_tokens
        return Growth(
            "LEAK",
            f"the server's memory grew by {_size(slope)} per generated token "
            f"({_size(grown)} over {tokens:,} tokens) and was still growing at the end; "
            f"at most {_size(limit)} is expected",
            slope,
            low,
            high,
        )
    return Growth("NO_LEAK", "no lasting growth per generated token", slope, low, high)


def _slope(series: Sequence[Point]) -> tuple[float, float, float]:
    """Slope and its 95 % interval, bytes per token."""
    found = theilslopes(
        [p.held_bytes for p in series], [p.generated_tokens for p in series], alpha=0.95
    )
    return float(found.slope), float(found.low_slope), float(found.high_slope)


def _size(size_bytes: float) -> str:
    if abs(size_bytes) >= 2**20:
        return f"{size_bytes / 2**20:,.1f} MiB"
    return f"{size_bytes / 2**10:,.1f} KiB"
