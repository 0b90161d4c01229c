"""The shapes of what a llama-server sends, and the errors that other shapes and statuses mean.

Text is made valid Unicode, numbers must be finite, unknown fields are passed over. What a server
says reaches a message only through `inert`.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from harness.errors import ServerError, SetupError


def _valid_unicode(text: object) -> object:
    """Half a surrogate pair (`"\\ud800"` in JSON) is no character: it becomes U+FFFD."""
    if isinstance(text, str) and not text.isascii():
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


_Text = Annotated[str, BeforeValidator(_valid_unicode)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class ProgressEvent(_Shape):
    """`prompt_progress`: tokens read so far, reused ones among them; the server's clock, ms."""

    total: int
    processed: int
    cache: int = 0
    time_ms: float = 0.0


class Details(_Shape):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int | None = None


class Usage(_Shape):
    """`usage`, where it was asked for."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Delta(_Shape):
    """What a chat event adds to the answer."""

    content: _Text | None = None
    reasoning_content: _Text | None = None
    reasoning: _Text | None = None


class Choice(_Shape):
    """One choice of a chat event; only one is ever asked for."""

    delta: Delta | None = None
    finish_reason: _Text | None = None


class _Event(_Shape):
    prompt_progress: ProgressEvent | None = None
    timings: dict[str, Any] | None = None


class ChatEvent(_Event):
    """An event of `/v1/chat/completions`."""

    choices: tuple[Choice, ...] | None = None
    usage: Usage | None = None


class NativeEvent(_Event):
    """An event of `/completion`; `stop` marks the last one."""

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


class _GenerationSettings(_Shape):
    n_ctx: int | None = None


class Props(_Shape):
    """What of `/props` is relied upon."""

    default_generation_settings: _GenerationSettings = _GenerationSettings()
    total_slots: int | None = None
    build_info: _Text | None = None
    model_path: _Text | None = None
    model_ftype: _Text | None = None


class ModelMeta(_Shape):
    """llama-server's `meta` of a listed model."""

    n_params: int | None = None
    size: int | None = None
    n_ctx_train: int | None = None
    ftype: _Text | None = None


class ListedModel(_Shape):
    """An entry of `/v1/models`; `meta` is llama-server's own."""

    id: _Text | None = None
    meta: ModelMeta | None = None


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


def json_or_text(text: str) -> object:
    """What an answer says, be it JSON or not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def inert(what: object, limit: int = 300) -> str:
    """Text of a server as it may be shown anywhere: control characters as escapes, cut short."""
    text = what if isinstance(what, str) else repr(what)
    cut = text[: limit - 1] + "…" if len(text) > limit else text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


# -- errors a server sends ------------------------------------------------------------------


def missing(url: str, path: str, status: int) -> ServerError:
    """The error of a server that has `/props` and lacks what every llama-server has."""
    return ServerError(
        f"{url} has no {path} (HTTP {status}), which every llama-server has: it only looks like "
        "one; start a llama-server, or hide this one's /props, so that it is measured as any "
        "OpenAI-compatible server is",
        cause="SETUP",
    )


def not_listed(url: str, named: str | None, ids: Sequence[object]) -> SetupError:
    """The error of a server that does not list the model asked for."""
    return SetupError(
        f"{url} serves no model called {named}; it lists {', '.join(inert(i, 60) for i in ids[:8])}"
        ": name one of them with --model, or leave --model out"
    )


def status_error(status: int, body: object, url: str, began: str = "") -> ServerError:
    """The error that an HTTP status or an `error` object stands for.

    `began` says of an error inside an answer how far that had come.
    """
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
    said = f"{began or f'the server answered HTTP {status}'}: {inert(error)}"
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
