"""Talking to one server: the OpenAI-compatible endpoint through `openai`, native ones beside it.

Every request is sent once (`max_retries=0`). While a request is timed, this side only stamps and
keeps what arrives; it is parsed afterwards, so that on a CPU-only machine the harness does not
compete with the server for the cores it measures.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from harness.errors import ServerError, SetupError

Progress = Callable[[int, int], None]
"""Called with (tokens read so far, total tokens of the prompt) as a prefill proceeds."""

_ANSWER_KEYS = ("content", "reasoning_content")


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


@dataclass(slots=True)
class _Stamped:
    started_ns: int
    events: list[tuple[int, str]] = field(default_factory=list)
    ended_ns: int = 0


class Client:
    """One endpoint. `idle_limit_s` bounds silence, not length: any byte resets it.

    Args:
        base_url: the server's root, without `/v1`.
        api_key: sent as a bearer token; `None` sends a placeholder that llama-server ignores.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        idle_limit_s: float = 900.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.idle_limit_s = idle_limit_s
        timeout = httpx2.Timeout(idle_limit_s, connect=10.0)
        # A fresh connection per request: a kept one may have been closed by the server just then
        # (llama-server closes idle ones after 5 s), and a measured request is never sent twice.
        headers = {"Connection": "close"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx2.Client(
            base_url=self.base_url,
            timeout=timeout,
            headers=headers,
            transport=transport,
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=False,
        )
        self._openai = openai.OpenAI(
            base_url=f"{self.base_url}/v1",
            api_key=api_key or "none",
            max_retries=0,
            http_client=self._http,
            timeout=timeout,
        )
        self.model = "default"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # -- small, untimed requests -------------------------------------------------------------

    def health(self, timeout_s: float = 5.0) -> bool:
        """Whether `/health` says ok; False while loading or unreachable."""
        try:
            return self._http.get("/health", timeout=timeout_s).status_code == 200
        except httpx2.HTTPError:
            return False

    def get(self, path: str) -> dict[str, Any] | None:
        """JSON object of a native endpoint; `None` when the server has none there.

        Raises:
            SetupError: unreachable or unauthorised.
        """
        with self._explained():
            response = self._http.get(path, timeout=30.0)
            if response.status_code in (401, 403):
                raise SetupError(_unauthorised(self.base_url))
            if response.status_code != 200:
                return None
            try:
                body = response.json()
            except ValueError:
                return None
        return body if isinstance(body, dict) else None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """JSON object answered to an untimed native request."""
        with self._explained():
            response = self._http.post(path, json=body)
            return _checked_body(response, self.base_url)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Token count of each text by the server's tokenizer; texts end in a newline each.

        One request counts many lines: pieces are summed up to the newline that ends each text.
        """
        counts: list[int] = []
        for text in _blocks(texts):
            counts.extend(self._count_block(text))
        return counts

    def _count_block(self, texts: Sequence[str]) -> list[int]:
        ends: list[int] = []
        total = 0
        for text in texts:
            total += len(text.encode())
            ends.append(total)
        body = self.post("/tokenize", {"content": "".join(texts), "with_pieces": True})
        counts = [0] * len(texts)
        position = index = 0
        for token in body["tokens"]:
            while index < len(ends) - 1 and position >= ends[index]:
                index += 1
            counts[index] += 1
            piece = token["piece"]
            position += len(piece.encode()) if isinstance(piece, str) else len(piece)
        return counts

    def token_total(self, text: str) -> int:
        """Token count of one text."""
        return len(self.post("/tokenize", {"content": text})["tokens"])

    def templated(self, user_text: str, **template: Any) -> str:
        """The prompt as the chat template renders one user message."""
        messages = [{"role": "user", "content": user_text}]
        return str(self.post("/apply-template", {"messages": messages, **template})["prompt"])

    def first_model(self) -> dict[str, Any] | None:
        """The first entry of `/v1/models`, whose id later requests name."""
        listing = self.get("/v1/models")
        data = (listing or {}).get("data") or []
        if data and isinstance(data[0], dict):
            self.model = str(data[0].get("id", self.model))
            return dict(data[0])
        return None

    # -- timed requests ----------------------------------------------------------------------

    def prefill(self, prompt: str, *, reuse: bool, on_progress: Progress | None = None) -> Exchange:
        """Read `prompt` into slot 0 and generate nothing.

        `reuse` False asks for a cold prefill (`cache_prompt` false).
        """
        body = {
            "prompt": prompt,
            "n_predict": 0,
            "temperature": 0,
            "cache_prompt": reuse,
            "id_slot": 0,
            "stream": True,
            "return_progress": True,
        }
        stamped = _Stamped(started_ns=time.perf_counter_ns())
        with self._explained(), self._http.stream("POST", "/completion", json=body) as response:
            self._refuse_error(response)
            self._collect(response, stamped, on_progress)
        return _parse_native(stamped)

    def chat(
        self,
        user_text: str,
        *,
        max_tokens: int,
        reuse: bool,
        ignore_eos: bool = False,
        native: bool = True,
        on_progress: Progress | None = None,
        **template: Any,
    ) -> Exchange:
        """One streamed chat completion at temperature 0.

        `native` adds llama-server's own fields (slot, cache, progress, `ignore_eos`); other
        servers get the plain OpenAI request.
        """
        extra: dict[str, Any] = dict(template)
        if native:
            extra |= {"cache_prompt": reuse, "id_slot": 0, "return_progress": True}
        if ignore_eos:
            extra["ignore_eos"] = True
        stamped = _Stamped(started_ns=time.perf_counter_ns())
        with (
            self._explained(),
            self._openai.chat.completions.with_streaming_response.create(
                model=self.model,
                messages=[{"role": "user", "content": user_text}],
                temperature=0,
                max_tokens=max_tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=extra,
            ) as response,
        ):
            self._collect(response.http_response, stamped, on_progress)
        return _parse_chat(stamped)

    def _collect(
        self, response: httpx2.Response, stamped: _Stamped, on_progress: Progress | None
    ) -> None:
        clock, keep = time.perf_counter_ns, stamped.events.append
        if "text/event-stream" not in response.headers.get("content-type", ""):
            response.read()
            keep((clock(), response.text))
            stamped.ended_ns = clock()
            return
        for event in httpx2.EventSource(response):
            data = event.data
            keep((clock(), data))
            if on_progress is not None and '"prompt_progress"' in data:
                _report(data, on_progress)
        stamped.ended_ns = clock()

    def _refuse_error(self, response: httpx2.Response) -> None:
        if response.status_code != 200:
            response.read()
            _checked_body(response, self.base_url)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the client libraries' exceptions into ours, naming the limit that fired."""
        try:
            yield
        except openai.AuthenticationError as error:
            raise SetupError(_unauthorised(self.base_url)) from error
        except openai.APITimeoutError as error:
            raise self._stalled() from error
        except openai.APIStatusError as error:
            raise _status_error(error.status_code, error.body, self.base_url) from error
        except openai.APIConnectionError as error:
            raise self._unreachable(error) from error
        except openai.APIError as error:
            raise ServerError(f"the server sent an error: {error.message}") from error
        except httpx2.ReadTimeout as error:
            raise self._stalled() from error
        except httpx2.ConnectError as error:
            raise self._unreachable(error) from error
        except (httpx2.TransportError, httpx2.StreamError, httpx2.SSEError) as error:
            raise ServerError(
                f"the connection to {self.base_url} broke during a request ({error}); "
                "the server may have died or been stopped: see its log",
                cause="SERVER_DIED",
            ) from error

    def _stalled(self) -> ServerError:
        return ServerError(
            f"{self.base_url} sent nothing for {self.idle_limit_s:.0f} s (our idle limit); "
            "raise --idle-timeout if it may really be silent that long",
            cause="STALLED",
        )

    def _unreachable(self, error: Exception) -> ServerError:
        reason = str(error.__cause__ or error)
        return ServerError(
            f"nothing answers at {self.base_url} ({reason}); start the server or correct "
            "--server-url",
            cause="SERVER_DIED",
        )


def _blocks(texts: Sequence[str], limit_bytes: int = 1 << 20) -> Iterator[Sequence[str]]:
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= limit_bytes:
            yield texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield texts[start:]


def _report(data: str, on_progress: Progress) -> None:
    try:
        progress = json.loads(data)["prompt_progress"]
        on_progress(int(progress["processed"]), int(progress["total"]))
    except (ValueError, KeyError, TypeError):
        return


def _unauthorised(url: str) -> str:
    return (
        f"{url} refused our API key; put the right one into the environment variable "
        "HARNESS_API_KEY"
    )


def _checked_body(response: httpx2.Response, url: str) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = response.text[:500]
    if response.status_code != 200 or (isinstance(body, dict) and body.get("error")):
        raise _status_error(response.status_code, body, url)
    if not isinstance(body, dict):
        raise ServerError(f"{url} answered with something that is not a JSON object: {body!r:.120}")
    return body


def _status_error(status: int, body: object, url: str) -> Exception:
    error = body.get("error", body) if isinstance(body, dict) else body
    if status in (401, 403):
        return SetupError(_unauthorised(url))
    if isinstance(error, dict):
        if error.get("type") == "exceed_context_size_error":
            return ServerError(
                f"a prompt of {error.get('n_prompt_tokens')} tokens does not fit the server's "
                f"context of {error.get('n_ctx')}; lower --ctx or start the server with more",
                cause="TRUNCATED",
            )
        error = error.get("message", error)
    return ServerError(f"the server answered HTTP {status}: {str(error)[:300]}")


def _decoded(stamped: _Stamped) -> Iterator[tuple[int, dict[str, Any]]]:
    for at_ns, data in stamped.events:
        if not data or data == "[DONE]":
            continue
        try:
            body = json.loads(data)
        except ValueError as error:
            raise ServerError(
                f"the server sent an event that is not JSON: {data[:120]!r}"
            ) from error
        if not isinstance(body, dict):
            raise ServerError(f"the server sent an event that is not an object: {data[:120]!r}")
        if body.get("error"):
            raise _status_error(int(body.get("code", 200) or 200), body, "the server")
        yield at_ns, body


def _progress_point(raw: dict[str, Any], arrived_ms: float) -> ProgressPoint:
    return ProgressPoint(
        processed_tokens=int(raw["processed"]),
        total_tokens=int(raw["total"]),
        cached_tokens=int(raw.get("cache", 0)),
        server_ms=float(raw["time_ms"]),
        arrived_ms=arrived_ms,
    )


def _numbers(raw: object) -> dict[str, float]:
    if not isinstance(raw, dict):
        return {}
    return {str(k): float(v) for k, v in raw.items() if isinstance(v, int | float)}


def _parse_native(stamped: _Stamped) -> Exchange:
    progress: list[ProgressPoint] = []
    timings: dict[str, float] = {}
    prompt_tokens: int | None = None
    for at_ns, body in _decoded(stamped):
        if raw := body.get("prompt_progress"):
            progress.append(_progress_point(raw, (at_ns - stamped.started_ns) / 1e6))
        if body.get("timings"):
            timings = _numbers(body["timings"])
        if body.get("tokens_evaluated") is not None:
            prompt_tokens = int(body["tokens_evaluated"])
    return _exchange(stamped, progress=progress, timings=timings, prompt_tokens=prompt_tokens)


def _parse_chat(stamped: _Stamped) -> Exchange:
    texts: dict[str, list[str]] = {key: [] for key in _ANSWER_KEYS}
    progress: list[ProgressPoint] = []
    token_events: list[int] = []
    timings: dict[str, float] = {}
    usage: dict[str, Any] = {}
    finish: str | None = None
    for at_ns, body in _decoded(stamped):
        if raw := body.get("prompt_progress"):
            progress.append(_progress_point(raw, (at_ns - stamped.started_ns) / 1e6))
        if body.get("timings"):
            timings = _numbers(body["timings"])
        usage = body.get("usage") or usage
        for choice in body.get("choices") or ():
            delta = choice.get("delta") or choice.get("message") or {}
            carried = False
            for key in _ANSWER_KEYS:
                if text := delta.get(key):
                    texts[key].append(str(text))
                    carried = True
            if carried:
                token_events.append(at_ns)
            finish = choice.get("finish_reason") or finish
    details = usage.get("prompt_tokens_details") or {}
    return _exchange(
        stamped,
        content="".join(texts["content"]),
        reasoning="".join(texts["reasoning_content"]),
        finish_reason=finish,
        progress=progress,
        timings=timings,
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=details.get("cached_tokens"),
        predicted_tokens=usage.get("completion_tokens"),
        token_events=token_events,
    )


def _exchange(
    stamped: _Stamped,
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
    start = stamped.started_ns
    times = tuple((at - start) / 1e6 for at in token_events)
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
        wall_ms=(stamped.ended_ns - start) / 1e6,
        started_ns=start,
        ended_ns=stamped.ended_ns,
    )
