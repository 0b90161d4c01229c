"""Whether a server that does not say so keeps prompts, told from times to first token.

A server with prompt caching answers the second question about a document at once, and the first one
too if it has met the document before (in an earlier run, say). A number is cold only if nothing of
its prompt can have been met: its first line is then one that no request ever had.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.core.records import Rung

CACHED_SHARE = 0.5
"""Kept prompts answer in less than this share of a cold reading's time; others need all of it."""
SHORTEST_COLD_MS = 50.0
"""A reading shorter than this tells nothing: connection and template take as long."""


@dataclass(frozen=True, slots=True)
class Caching:
    """Whether prompts are kept (`None`: cannot be told), and the sentence that says so."""

    kept: bool | None
    sentence: str


def caching_of(cold_ms: Sequence[float], again_ms: Sequence[float]) -> Caching:
    """From times to first token of documents never met, and of documents just asked about, ms."""
    if not cold_ms or not again_ms:
        return Caching(None, "whether the server keeps prompts cannot be told: too few readings")
    cold, again = median(cold_ms), median(again_ms)
    if cold < SHORTEST_COLD_MS:
        return Caching(
            None, f"whether the server keeps prompts cannot be told from {cold:.0f} ms of reading"
        )
    seen = f"{again:,.0f} ms to the first token of another question, {cold:,.0f} ms unread"
    if again < CACHED_SHARE * cold:
        return Caching(
            True,
            f"the server keeps prompts ({seen}): questions count as warm, never as cold",
        )
    return Caching(
        False, f"the server keeps no prompts ({seen}): there is no warm TTFT, only a cold one"
    )


def caching_at(rung: Rung) -> Caching:
    """The same for a rung of a server in reduced mode."""
    cold = [p.wall_ms for p in rung.prefills if p.kind == "cold_repeat"]
    again = [a.ttft_ms for a in rung.asks[1:] if a.ttft_ms is not None]
    return caching_of(cold, again)
