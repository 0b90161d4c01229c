"""What a server sends, once it has arrived: events checked for shape and turned into an `Exchange`.

Nothing here waits or times. A body or event that does not have the shape that llama-server's wire
has is a `ServerError` that shows it; text is made valid Unicode, numbers that are not finite are
refused.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from harness.errors import ServerError

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


# -- shapes ---------------------------------------------------------------------------------


def _valid_unicode(text: object) -> object:
    """Half a surrogate pair (`"\\ud800"` in JSON) is no character: it becomes U+FFFD."""
    if isinstance(text, str) and not text.isascii():
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


_Text = Annotated[str, BeforeValidator(_valid_unicode)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Progress(_Shape):
    total: int
    processed: int
    cache: int = 0
    time_ms: float = 0.0


class _Details(_Shape):
    cached_tokens: int | None = None


class _Usage(_Shape):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Delta(_Shape):
    content: _Text | None = None
    reasoning_content: _Text | None = None


class _Choice(_Shape):
    delta: _Delta | None = None
    finish_reason: _Text | None = None


class _Event(_Shape):
    prompt_progress: _Progress | None = None
    timings: dict[str, Any] | None = None


class _ChatEvent(_Event):
    choices: tuple[_Choice, ...] | None = None
    usage: _Usage | None = None


class _NativeEvent(_Event):
    stop: bool = False
    tokens_evaluated: int | None = None


class Token(_Shape):
    """One token of `/tokenize` with pieces; a piece that is no UTF-8 by itself comes as bytes."""

    piece: str | list[int]

    @property
    def size_bytes(self) -> int:
        """Length of the piece as UTF-8."""
        return len(self.piece.encode() if isinstance(self.piece, str) else self.piece)


class TokenPieces(_Shape):
    """`/tokenize` with `with_pieces`."""

    tokens: list[Token]


class TokenIds(_Shape):
    """`/tokenize` without pieces."""

    tokens: list[int]


class Templated(_Shape):
    """`/apply-template`."""

    prompt: str


_Any = TypeVar("_Any", bound=BaseModel)


def shaped(shape: type[_Any], body: object, what: str) -> _Any:
    """`body` as `shape`.

    Raises:
        ServerError: it has another one; the message says where.
    """
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "it"
        raise ServerError(
            f"{what} is not what llama-server sends ({where}: {fault['msg'].lower()}): "
            f"{inert(body, 120)}; check that the server is a llama-server, or report its build"
        ) from error


def inert(what: object, limit: int = 300) -> str:
    """Text of a server as it may be shown anywhere: control characters as escapes, cut short."""
    text = what if isinstance(what, str) else repr(what)
    cut = text[: limit - 1] + "…" if len(text) > limit else text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


# -- errors a server sends ------------------------------------------------------------------


def status_error(status: int, body: object, url: str) -> ServerError:
    """The error that an HTTP status or an `error` object stands for."""
    if status in (401, 403):
        return ServerError(
            f"{url} refused our API key (HTTP {status}); put the right one into the environment "
            "variable HARNESS_API_KEY",
            cause="SETUP",
        )
    if 300 <= status < 400:
        return ServerError(
            f"{url} sends us elsewhere (HTTP {status}); give --server-url the address it leads to",
            cause="SETUP",
        )
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        if error.get("type") == "exceed_context_size_error":
            return ServerError(
                f"a prompt of {inert(error.get('n_prompt_tokens'))} tokens does not fit the "
                f"server's context of {inert(error.get('n_ctx'))}; lower --ctx or start the server "
                "with more",
                cause="TRUNCATED",
            )
        error = error.get("message", error)
    said = f"the server answered HTTP {status}: {inert(error)}"
    if status in (408, 502, 504, 524):
        said += (
            "; that is the time limit of the server (--timeout) or of a proxy in front of it, not "
            "ours: raise it there, or measure without the proxy"
        )
    elif status == 503:
        said += "; it is still loading or overloaded: wait until /health says ok and run again"
    return ServerError(said)


def json_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object; NaN and Infinity, which are not JSON, are refused.

    Raises:
        ServerError: it is something else; the message shows its beginning.
    """
    try:
        body = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ServerError(f"{what} is not JSON: {inert(text, 120)}") from error
    if not isinstance(body, dict):
        raise ServerError(f"{what} is not a JSON object: {inert(text, 120)}")
    return body


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


# -- exchanges ------------------------------------------------------------------------------


def native_exchange(events: Stamped, started_ns: int, ended_ns: int) -> Exchange:
    """A streamed `/completion`.

    Raises:
        ServerError: an error event, a wrong shape, or a stream that ended before its last event.
    """
    progress: list[ProgressPoint] = []
    timings: dict[str, float] = {}
    prompt_tokens: int | None = None
    stopped = False
    for at_ns, body in _decoded(events):
        event = shaped(_NativeEvent, body, "an event")
        if event.prompt_progress is not None:
            progress.append(_point(event.prompt_progress, (at_ns - started_ns) / 1e6))
        if event.timings:
            timings = _numbers(event.timings)
        if event.tokens_evaluated is not None:
            prompt_tokens = event.tokens_evaluated
        stopped = stopped or event.stop
    if not stopped:
        raise _unfinished(len(events))
    return _exchange(
        started_ns, ended_ns, progress=progress, timings=timings, prompt_tokens=prompt_tokens
    )


def chat_exchange(events: Stamped, started_ns: int, ended_ns: int) -> Exchange:
    """A streamed `/v1/chat/completions`.

    Raises:
        ServerError: an error event, a wrong shape, or a stream that ended before its last event.
    """
    content: list[str] = []
    reasoning: list[str] = []
    progress: list[ProgressPoint] = []
    token_events: list[int] = []
    timings: dict[str, float] = {}
    usage = _Usage()
    finish: str | None = None
    for at_ns, body in _decoded(events):
        event = shaped(_ChatEvent, body, "an event")
        if event.prompt_progress is not None:
            progress.append(_point(event.prompt_progress, (at_ns - started_ns) / 1e6))
        if event.timings:
            timings = _numbers(event.timings)
        usage = event.usage or usage
        for choice in event.choices or ():
            delta = choice.delta or _Delta()
            if delta.content or delta.reasoning_content:
                content.append(delta.content or "")
                reasoning.append(delta.reasoning_content or "")
                token_events.append(at_ns)
            finish = choice.finish_reason or finish
    if finish is None:
        raise _unfinished(len(events))
    return _exchange(
        started_ns,
        ended_ns,
        content="".join(content),
        reasoning="".join(reasoning),
        finish_reason=finish,
        progress=progress,
        timings=timings,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=(usage.prompt_tokens_details or _Details()).cached_tokens,
        predicted_tokens=usage.completion_tokens,
        token_events=token_events,
    )


def _unfinished(events: int) -> ServerError:
    return ServerError(
        f"the stream ended after {events} events without saying that the request was finished; the "
        "server or something in front of it closed it early: see the server's log",
        cause="SERVER_DIED",
    )


def _decoded(events: Stamped) -> Iterator[tuple[int, dict[str, Any]]]:
    for at_ns, data in events:
        if not data or data == "[DONE]":
            continue
        body = json_object(data, "an event of the server")
        if error := body.get("error"):
            code = error.get("code") if isinstance(error, dict) else None
            raise status_error(code if isinstance(code, int) else 200, body, "the server")
        yield at_ns, body


def _point(raw: _Progress, arrived_ms: float) -> ProgressPoint:
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
