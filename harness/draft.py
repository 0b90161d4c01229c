"""A rung while it is being measured."""

import time

from harness.core.records import AskRecord, Failure, Generation, MemorySample, Prefill, Rung

GENERATION_S = 1.0
"""A fast server repeats its generation until it has generated for so long in all."""
FAST_TOK_S = 200.0


class RungDraft:
    """What has been measured of a rung so far, and the prompt its generation repeats send."""

    def __init__(self, depth: int, document_tokens: int, sitting: int = 1) -> None:
        self.depth = depth
        self.sitting = sitting
        self.document_tokens = document_tokens
        self.prefills: list[Prefill] = []
        self.asks: list[AskRecord] = []
        self.generations: list[Generation] = []
        self.memory: list[MemorySample] = []
        self.cold_ttft_ms: float | None = None
        self.notes: list[str] = []
        self.log_counts: dict[str, int] = {}
        self.failure: Failure | None = None
        self.last_text = ""
        self.climb_ms = 0.0
        self._started_s = time.perf_counter()

    @classmethod
    def again(cls, rung: Rung) -> "RungDraft":
        """A finished rung, to be added to."""
        draft = cls(rung.depth, rung.document_tokens, rung.sitting)
        draft.prefills, draft.asks = list(rung.prefills), list(rung.asks)
        draft.generations, draft.memory = list(rung.generations), list(rung.memory)
        draft.cold_ttft_ms, draft.notes = rung.cold_ttft_ms, list(rung.notes)
        draft.log_counts = dict(rung.log_counts)
        draft._started_s -= rung.elapsed_s
        return draft

    @property
    def fast(self) -> bool:
        """Whether the server answered this rung's questions faster than `FAST_TOK_S`."""
        return any(
            a.predicted_ms and (a.predicted_tokens or 0) / a.predicted_ms * 1e3 > FAST_TOK_S
            for a in self.asks
        )

    def rung(self) -> Rung:
        """The record of what has been measured so far."""
        return Rung(
            depth=self.depth,
            sitting=self.sitting,
            document_tokens=self.document_tokens,
            prefills=tuple(self.prefills),
            asks=tuple(self.asks),
            generations=tuple(self.generations),
            memory=tuple(self.memory),
            cold_ttft_ms=self.cold_ttft_ms,
            notes=tuple(self.notes),
            log_counts=self.log_counts,
            failure=self.failure,
            elapsed_s=time.perf_counter() - self._started_s,
        )

    def needs_repeat(self, repeats: int, max_repeats: int) -> bool:
        """Whether to generate once more: up to `repeats`, or for `GENERATION_S` in all."""
        done = len(self.generations)
        if done < repeats:
            return True
        took_s = sum((g.server_ms or g.wall_ms) for g in self.generations) / 1e3
        return done < max_repeats and took_s < GENERATION_S
