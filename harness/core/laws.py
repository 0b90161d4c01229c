"""Laws that measured numbers must obey; a number that breaks one was not measured, whatever it is.

Every check returns a `Violation` (data: the law and a sentence with the numbers) or `None`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.curve import ChunkLike
from harness.core.noise import PRIOR, NoisePrior
from harness.core.stats import (
    CONFIDENCE,
    Unjudgeable,
    same_run_ratio,
)

Law = Literal[
    "times are positive",
    "our clock covers the server's",
    "first token within the request",
    "enough tokens to time",
    "no more tokens than asked for",
    "batches follow one another",
    "bytes read fit the memory bandwidth",
    "depth never speeds generation up",
]

MIN_PREDICTED_TOKENS = 16
MIN_PREDICTED_MS = 20.0
CLOCK_SLACK_SHARE = 0.01
CLOCK_SLACK_MS = 2.0
BANDWIDTH_SLACK_SHARE = 0.05
DEPTH_GAIN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Violation:
    """A law broken: its name, and what was seen against what can be."""

    law: Law
    sentence: str


def positive_time(what: str, ms: float) -> Violation | None:
    """A duration that is zero or negative."""
    if ms > 0.0:
        return None
    return Violation("times are positive", f"{what} took {ms:g} ms: nothing takes no time or less")


def clock_covers_server(what: str, wall_ms: float, server_ms: float) -> Violation | None:
    """The server says it worked longer than the request lasted for us (1 % and 2 ms allowed)."""
    if wall_ms >= server_ms * (1.0 - CLOCK_SLACK_SHARE) - CLOCK_SLACK_MS:
        return None
    return Violation(
        "our clock covers the server's",
        f"{what}: the server reports {server_ms:.1f} ms of work inside a request that lasted "
        f"{wall_ms:.1f} ms",
    )


def first_token_within(what: str, ttft_ms: float, wall_ms: float) -> Violation | None:
    """The first token came after the request had ended."""
    if ttft_ms <= wall_ms:
        return None
    return Violation(
        "first token within the request",
        f"{what}: first token after {ttft_ms:.1f} ms of a request of {wall_ms:.1f} ms",
    )


def enough_tokens(
    what: str,
    predicted_tokens: int,
    predicted_ms: float,
    *,
    min_tokens: int = MIN_PREDICTED_TOKENS,
    min_ms: float = MIN_PREDICTED_MS,
) -> Violation | None:
    """Too few tokens, or too short a time, to make a rate (EOS at once gives 1,000,000 tok/s)."""
    if predicted_tokens >= min_tokens and predicted_ms >= min_ms:
        return None
    return Violation(
        "enough tokens to time",
        f"{what}: {predicted_tokens} tokens in {predicted_ms:.1f} ms; a rate needs at least "
        f"{min_tokens} tokens and {min_ms:g} ms",
    )


def no_more_than_asked(what: str, predicted_tokens: int, asked_tokens: int) -> Violation | None:
    """More tokens reported than the request's `max_tokens` allowed."""
    if predicted_tokens <= asked_tokens:
        return None
    return Violation(
        "no more tokens than asked for",
        f"{what}: the server reports {predicted_tokens} tokens where {asked_tokens} were asked for",
    )


def batches_in_order(what: str, chunks: Sequence[ChunkLike]) -> Violation | None:
    """A prefill batch without tokens or time, or one that starts before its predecessor ended."""
    end = 0
    for chunk in chunks:
        if chunk.start_tokens < end or chunk.end_tokens <= chunk.start_tokens or chunk.ms <= 0.0:
            return Violation(
                "batches follow one another",
                f"{what}: batch {chunk.start_tokens:,}..{chunk.end_tokens:,} in {chunk.ms:g} ms "
                f"after one that ended at {end:,}",
            )
        end = chunk.end_tokens
    return None


def within_bandwidth(
    what: str,
    tok_s: float,
    *,
    bytes_per_token: float,
    bandwidth_bytes_s: float,
    tokens_per_pass: float = 1.0,
) -> Violation | None:
    """Faster than memory can deliver what one pass must read (5 % allowed).

    `bytes_per_token` are weights and KV read for one forward pass; `tokens_per_pass` is above 1
    with speculation (accepted draft tokens come along with one pass).
    """
    possible_tok_s = bandwidth_bytes_s / bytes_per_token * tokens_per_pass
    if tok_s <= possible_tok_s * (1.0 + BANDWIDTH_SLACK_SHARE):
        return None
    read_gb_s = tok_s * bytes_per_token / tokens_per_pass / 1e9
    return Violation(
        "bytes read fit the memory bandwidth",
        f"{what}: {tok_s:,.1f} tok/s would read {read_gb_s:,.1f} GB/s; the memory "
        f" gives {bandwidth_bytes_s / 1e9:,.1f} GB/s ({possible_tok_s:,.1f} tok/s)",
    )


def depth_costs(
    at_zero_tok_s: Sequence[float],
    at_depth_tok_s: Sequence[float],
    depth_tokens: int,
    *,
    allowed: float = DEPTH_GAIN_SHARE,
    confidence: float = CONFIDENCE,
    prior: NoisePrior = PRIOR,
) -> Violation | None:
    """Generation at depth 0 slower than with a filled KV cache, beyond noise and `allowed`.

    With fewer than two samples on a side nothing is claimed. Does not hold for speculative
    decoding, whose acceptance may differ by depth: don't call it there.
    """
    ratio = same_run_ratio(at_depth_tok_s, at_zero_tok_s, confidence=confidence, prior=prior)
    if isinstance(ratio, Unjudgeable) or ratio.low <= 1.0 + allowed:
        return None
    return Violation(
        "depth never speeds generation up",
        f"generation with {depth_tokens:,} tokens in the KV cache is {ratio.change:+.1%} against "
        f"an empty one ({ratio.low - 1.0:+.1%} to {ratio.high - 1.0:+.1%}): something else slowed "
        "the measurement at depth 0",
    )
