"""What a server's streams say: events, once they have arrived, turned into an `Exchange`.

Nothing here waits or times. A stream that does not end as llama-server's streams end, or that lacks
what measuring needs, is a `ServerError`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ServerError
from harness.serving.shapes import (
    ChatEvent,
    Delta,
    Details,
    NativeEvent,
    ProgressEvent,
    Usage,
    inert,
    json_object,
    shaped,
    status_error,
)

Stamped = Sequence[tuple[int, str]]
"""Events as they came: (time of arrival, ns; text of the event)."""


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """One `prompt_progress` event.

    `processed_tokens` include reused ones; `server_ms` is the server's clock (whole ms),
    `arrived_ms` ours, from the request's start.
    """

    processed_tokens: int
    total_tokens: int
    cached_tokens: int
    server_ms: float
    arrived_ms: float


@dataclass(frozen=True, slots=True)
class Exchange:
    """One finished request. Times in ms from the moment it was sent, counts as the server says.

    `first_token_ms` is the first event that carried text (reasoning counts as a token);
    `token_event_ms` all of them. `timings` is the server's own block, {} when it sent none.
    """

    content: str
    reasoning: str
    finish_reason: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    predicted_tokens: int | None
    timings: dict[str, float]
    progress: tuple[ProgressPoint, ...]
    first_token_ms: float | None
    token_event_ms: tuple[float, ...]
    wall_ms: float
    started_ns: int
    ended_ns: int

    @property
    def new_tokens(self) -> int | None:
        """Prompt tokens the server processed anew."""
        value = self.timings.get("prompt_n")
        return None if value is None else int(value)

    @property
    def reused_tokens(self) -> int | None:
        """Prompt tokens the server took from its cache."""
        value = self.timings.get("cache_n")
        return self.cached_tokens if value is None else int(value)


_PREFILL_TIMINGS = ("cache_n", "prompt_n", "prompt_ms")


def native_exchange(events: Stamped, started_ns: int, ended_ns: int) -> Exchange:
    """A streamed `/completion`.

    Raises:
        ServerError: an error event, a wrong shape, timings that are missing, or a stream that
            ended before its last event.
    """
    progress: list[ProgressPoint] = []
    timings: dict[str, float] = {}
    prompt_tokens: int | None = None
    stopped = False
    for at_ns, body in _decoded(events):
        event = shaped(NativeEvent, body, "an event")
        if event.prompt_progress is not None:
            progress.append(_point(event.prompt_progress, (at_ns - started_ns) / 1e6))
        if event.timings:
            timings = _numbers(event.timings)
        if event.tokens_evaluated is not None:
            prompt_tokens = event.tokens_evaluated
        stopped = stopped or event.stop
    if not stopped:
        raise _unfinished(len(events))
    _refuse_untimed(timings, _PREFILL_TIMINGS)
    return _exchange(
        started_ns, ended_ns, progress=progress, timings=timings, prompt_tokens=prompt_tokens
    )


def chat_exchange(events: Stamped, started_ns: int, ended_ns: int, *, timed: bool) -> Exchange:
    """A streamed `/v1/chat/completions`; `timed` of a server that must send `timings`.

    Raises:
        ServerError: an error event, a wrong shape, timings that are missing, or a stream that
            ended before its last event.
    """
    content: list[str] = []
    reasoning: list[str] = []
    progress: list[ProgressPoint] = []
    token_events: list[int] = []
    timings: dict[str, float] = {}
    usage = Usage()
    finish: str | None = None
    for at_ns, body in _decoded(events):
        event = shaped(ChatEvent, body, "an event")
        if event.prompt_progress is not None:
            progress.append(_point(event.prompt_progress, (at_ns - started_ns) / 1e6))
        if event.timings:
            timings = _numbers(event.timings)
        usage = event.usage or usage
        for choice in event.choices or ():
            delta = choice.delta or Delta()
            thought = delta.reasoning_content or delta.reasoning
            if delta.content or thought:
                content.append(delta.content or "")
                reasoning.append(thought or "")
                token_events.append(at_ns)
            finish = choice.finish_reason or finish
    if finish is None:
        raise _unfinished(len(events))
    if timed:
        _refuse_untimed(timings, (*_PREFILL_TIMINGS, "predicted_n", "predicted_ms"))
    return _exchange(
        started_ns,
        ended_ns,
        content="".join(content),
        reasoning="".join(reasoning),
        finish_reason=finish,
        progress=progress,
        timings=timings,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=(usage.prompt_tokens_details or Details()).cached_tokens,
        predicted_tokens=usage.completion_tokens,
        token_events=token_events,
    )


def _refuse_untimed(timings: dict[str, float], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in timings]
    if missing:
        raise ServerError(
            f"the server has /props like a llama-server but its timings lack {', '.join(missing)}, "
            "and rates by another clock would not compare; use a build that reports them, or a "
            "proxy that lets them through"
        )


def _unfinished(events: int) -> ServerError:
    return ServerError(
        f"the stream ended after {events} events without saying that the request was finished; the "
        "server or something in front of it closed it early: see the server's log",
        cause="SERVER_DIED",
    )


def _decoded(events: Stamped) -> Iterator[tuple[int, dict[str, Any]]]:
    far = "before anything else"
    for number, (at_ns, data) in enumerate(events):
        if not data or data == "[DONE]":
            continue
        body = json_object(data, "an event of the server")
        if error := body.get("error"):
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) else 200
            began = f"the server began an answer and broke it off with an error {far}"
            raise status_error(status, body, "the server", began)
        progress = body.get("prompt_progress")
        if isinstance(progress, dict):
            done, of_all = (inert(progress.get(name), 20) for name in ("processed", "total"))
            far = f"after reading {done} of {of_all} tokens"
        else:
            far = f"after {number + 1} events"
        yield at_ns, body


def _point(raw: ProgressEvent, arrived_ms: float) -> ProgressPoint:
    return ProgressPoint(raw.processed, raw.total, raw.cache, raw.time_ms, arrived_ms)


def _numbers(raw: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in raw.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ServerError(
                f"the server's timings say {inert(name, 40)} = {number}, which is no measurement; "
                "report it with the server's build"
            )
        found[name] = number
    return found


def _exchange(
    started_ns: int,
    ended_ns: int,
    *,
    progress: list[ProgressPoint],
    timings: dict[str, float],
    prompt_tokens: int | None,
    content: str = "",
    reasoning: str = "",
    finish_reason: str | None = None,
    cached_tokens: int | None = None,
    predicted_tokens: int | None = None,
    token_events: Sequence[int] = (),
) -> Exchange:
    times = tuple((at - started_ns) / 1e6 for at in token_events)
    return Exchange(
        content=content,
        reasoning=reasoning,
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        predicted_tokens=predicted_tokens,
        timings=timings,
        progress=tuple(progress),
        first_token_ms=times[0] if times else None,
        token_event_ms=times,
        wall_ms=(ended_ns - started_ns) / 1e6,
        started_ns=started_ns,
        ended_ns=ended_ns,
    )
