"""Does the server's memory grow for ever: with every token it generates, or with every request.

What is looked at is anonymous resident memory plus swap: the mapped model file comes and goes
with the page cache, and memory that is swapped out leaves the resident part flat. The slope is
Theil and Sen's (the median over all pairs of samples) with its 95 % interval.

A heap that has to serve long prompts grows for some requests and then stands: on a GPU server by
35 to 100 bytes a request and token of its prompt, for ten requests and more. Such growth is a leak
only when it has gone on for `LONG_REQUESTS`; until then it is open, and asking on decides it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from harness.quantities import size
from harness.records.lines import MemorySample, Rung
from harness.verdicts.noise import theil_sen

MIN_SAMPLES = 8  # half of them must still give a slope with an interval
TOLERANCE_BYTES = 16 * 2**10  # per token; less than this isn't worth a run's outcome
REQUEST_BYTES_PER_PROMPT_TOKEN = 128  # more than this a request is no heap that settles
LONG_REQUESTS = 40  # requests after which what still grows does not level off
LEAST_BYTES = 2**18  # growth that is not worth asking on for
_TAIL = 3  # the last third of the samples says whether growth has ended
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
    """Growth per generated token with its interval, bytes; `outcome` and the reason in words.

    GROWING: neither a leak nor at its end; more requests decide.
    """

    outcome: Literal["LEAK", "NO_LEAK", "GROWING", "UNKNOWN"]
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
    return find_leak(points(rung.memory), kv_bytes_per_token, rung.document_tokens)


def find_leak(
    series: Sequence[Point], kv_bytes_per_token: float | None = None, prompt_tokens: int = 0
) -> Growth:
    """Judge the growth of `series`, one sample a request, in order of tokens.

    `kv_bytes_per_token` is what the cache may legitimately grow by while it is filled for the
    first time, `prompt_tokens` what each request reads or reuses. LEAK needs a slope whose whole
    interval lies beyond both allowances, over all samples and over the later half alone; or growth
    without an end over `LONG_REQUESTS`.
    """
    half = series[len(series) // 2 :]
    counts = {p.generated_tokens for p in half}
    if len(series) < MIN_SAMPLES or 2 * len(counts) <= len(half):
        return Growth(
            "UNKNOWN",
            f"{len(series)} memory samples during generation, {MIN_SAMPLES} at different token "
            "counts are needed to tell a leak: raise the number of repeats",
        )
    tokens = series[-1].generated_tokens - series[0].generated_tokens
    requests = len(series) - 1
    kv = UNKNOWN_KV_BYTES if kv_bytes_per_token is None else kv_bytes_per_token
    heap = REQUEST_BYTES_PER_PROMPT_TOKEN * prompt_tokens * requests / tokens
    limit = kv + TOLERANCE_BYTES + heap
    (slope, low, high), (_, later_low, _) = _slope(series), _slope(half)
    grows = min(low * tokens, later_low * tokens / 2.0) > LEAST_BYTES and not _levels_off(series)
    if not grows:
        return Growth("NO_LEAK", "no lasting growth per generated token", slope, low, high)
    said = f"the server's memory grew by {_by_what(series, prompt_tokens)}"
    if min(low, later_low) > limit:
        expected = f"at most {size(limit)} per generated token is expected"
        reason = f"{said} and was still growing at the end; {expected}"
        return Growth("LEAK", reason, slope, low, high)
    if requests >= LONG_REQUESTS:
        return Growth("LEAK", f"{said} without levelling off", slope, low, high)
    reason = f"{said}; {LONG_REQUESTS} requests tell whether that ends"
    return Growth("GROWING", reason, slope, low, high)


def _levels_off(series: Sequence[Point]) -> bool:
    """Whether the last third grew by less than half of its share of the whole growth."""
    grown = series[-1].held_bytes - series[0].held_bytes
    tail = series[-(len(series) // _TAIL + 1) :]
    share = (len(tail) - 1) / (len(series) - 1)
    return tail[-1].held_bytes - tail[0].held_bytes < grown * share / 2.0


def _by_what(series: Sequence[Point], prompt_tokens: int) -> str:
    """The growth in words: per generated token, or per request where it follows that."""
    steps = [
        (after.generated_tokens - before.generated_tokens, after.held_bytes - before.held_bytes)
        for before, after in pairwise(series)
    ]
    grown, tokens = sum(held for _, held in steps), sum(count for count, _ in steps)
    each, mean = grown / tokens, grown / len(steps)
    total = f"({size(grown)} over {len(steps)} requests and {tokens:,} tokens)"
    by_token = sum(abs(held - each * count) for count, held in steps)
    by_request = sum(abs(held - mean) for _, held in steps)
    if by_request >= by_token:
        return f"{size(each)} per generated token {total}"
    prompt = f", {mean / prompt_tokens:,.0f} B per token of its prompt" if prompt_tokens else ""
    return f"{size(mean)} per request{prompt} {total}"


def _slope(series: Sequence[Point]) -> tuple[float, float, float]:
    """Slope and its 95 % interval, bytes per token."""
    held, tokens = (
        np.array(side, dtype=np.float64)
        for side in zip(*((p.held_bytes, p.generated_tokens) for p in series), strict=True)
    )
    slope, low, high = theil_sen(held, tokens)
    if math.isnan(low):  # nearly all samples are alike
        return 0.0, 0.0, 0.0
    return slope, low, high
