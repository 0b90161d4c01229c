"""One request to the fake server with the answer it gets, and that answer as steps on the wire."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

PREFILL_TOK_MS = 1000.0
GENERATE_TOK_MS = 10.0
_TOKEN = re.compile(r"[A-Za-z]+|[0-9]|\s|[^\sA-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent for `s` seconds."""

    s: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends here: reset, or closed as if the answer were complete (`clean`)."""

    clean: bool = False


@dataclass(frozen=True, slots=True)
class Die:
    """The server is gone: this connection is reset and nobody listens any more."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes outside the chunked framing."""

    data: bytes


Step = bytes | Pause | Cut | Die | Raw


@dataclass(slots=True)
class Turn:
    """One request, the `nth` of its `place`, and the answer it is about to get."""

    place: str
    nth: int
    body: dict[str, Any]
    asked: dict[int, str] = field(default_factory=dict)
    earlier_codes: tuple[str, ...] = ()
    # an answer that is one JSON object, or bytes
    reply: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    # a streamed answer
    stream: bool = False
    native: bool = False
    pieces: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish: str | None = "stop"
    timings: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] | None = None
    progress: list[dict[str, Any]] = field(default_factory=list)
    done: bool = True
    wire: list[Callable[[list[Step]], list[Step]]] = field(default_factory=list)

    def steps(self) -> list[Step]:
        """The stream as it goes over the wire: events, and the time they take."""
        steps = list(self._native_steps() if self.native else self._chat_steps())
        for change in self.wire:
            steps = change(steps)
        return steps

    def _native_steps(self) -> Iterator[Step]:
        base = {"index": 0, "content": "", "tokens": [0], "stop": False, "id_slot": -1}
        for point in self.progress:
            if point is not self.progress[0]:
                yield Pause(_prompt_s(self.progress))
            yield event({**base, "prompt_progress": point})
        yield event({**base, "content": "3", "tokens_predicted": 1})
        last = {**base, "id_slot": 0, "stop": True, "prompt": self.body.get("prompt")}
        total = self.progress[-1]["total"] if self.progress else 0
        yield event({**last, "tokens_evaluated": total, "timings": self.timings})

    def _chat_steps(self) -> Iterator[Step]:
        def chunk(delta: dict[str, Any] | None, **more: Any) -> bytes:
            choice = {"finish_reason": None, "index": 0, "delta": delta}
            body = {"choices": [] if delta is None else [choice], "model": "fake"}
            return event({**body, "object": "chat.completion.chunk", **more})

        role = {"role": "assistant", "content": None}
        for point in self.progress:
            if point is not self.progress[0]:
                yield Pause(_prompt_s(self.progress))
            yield chunk(role, prompt_progress=point)
        yield chunk(role)
        for piece in self.reasoning:
            yield chunk({"reasoning_content": piece})
        for piece in self.pieces:
            yield chunk({"content": piece})
        yield Pause(len(self.pieces) / GENERATE_TOK_MS / 1e3)
        if self.finish is not None:
            choice = {"finish_reason": self.finish, "index": 0, "delta": {}}
            yield event({"choices": [choice], "object": "chat.completion.chunk"})
        last: dict[str, Any] = {"usage": self.usage} if self.usage is not None else {}
        if self.timings:
            last["timings"] = self.timings
        yield chunk(None, **last)
        if self.done:
            yield b"data: [DONE]\n\n"


def event(body: object) -> bytes:
    """One event of a stream, as llama-server writes it."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


def _prompt_s(progress: Sequence[dict[str, Any]]) -> float:
    span = progress[-1]["processed"] - progress[0]["processed"]
    return float(span / PREFILL_TOK_MS / 1e3 / max(1, len(progress) - 1))


def tokens_of(text: str) -> list[str]:
    """The fake's tokens: runs of letters, single digits, signs and blanks."""
    return _TOKEN.findall(text)


def set_counts(turn: Turn, new: int, cached: int, predicted: int) -> None:
    """Timings, usage and progress that agree with one another."""
    total = new + cached
    prompt_ms, predicted_ms = new / PREFILL_TOK_MS, predicted / GENERATE_TOK_MS
    turn.timings = {
        "cache_n": cached,
        "prompt_n": new,
        "prompt_ms": prompt_ms,
        "prompt_per_second": new / prompt_ms * 1e3,
        "predicted_n": predicted,
        "predicted_ms": predicted_ms,
        "predicted_per_second": GENERATE_TOK_MS * 1e3,
    }
    if not turn.native:
        turn.usage = {
            "completion_tokens": predicted,
            "prompt_tokens": total,
            "total_tokens": total + predicted,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    if turn.body.get("return_progress"):
        turn.progress = [
            {"total": total, "cache": cached, "processed": done, "time_ms": round(ms)}
            for done, ms in ((cached, 0.0), (total, prompt_ms))
        ]


def too_long(tokens: int, n_ctx: int) -> dict[str, Any]:
    """llama-server's own words for a prompt that does not fit."""
    said = f"request ({tokens} tokens) exceeds the available context size ({n_ctx} tokens)"
    facts = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": n_ctx}
    return {"error": {"code": 400, "message": said, **facts}}
