"""Talking to one server: the OpenAI-compatible endpoint through `openai`, native ones beside it.

Every request is sent once (`max_retries=0`). While a request is timed, this side only stamps and
keeps what arrives; it is parsed afterwards, so that on a CPU-only machine the harness does not
compete with the server for the cores it measures.
"""

import json
import math
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from harness.errors import HarnessError, ServerError, SetupError
from harness.serving.bounded import SMALL_BYTES, bounded, compressed
from harness.serving.pieces import blocks, counted
from harness.serving.shapes import (
    Templated,
    TokenIds,
    TokenPieces,
    inert,
    json_object,
    json_or_text,
    missing,
    not_listed,
    shaped,
    status_error,
)
from harness.serving.streams import (
    Paced,
    Progress,
    Watched,
    is_compressed,
    is_event_stream,
    report_progress,
)
from harness.serving.wire import Exchange, ProgressPoint, chat_exchange, native_exchange

__all__ = ["Client", "Exchange", "Progress", "ProgressPoint"]

_ABSENT = (404, 405, 501)
"""Statuses by which a server says that it has no such endpoint."""
_CONNECT_LIMIT_S = 10.0
_SMALL_LIMIT_S = 30.0
_BASE_ANSWER_BYTES = 1 << 20
_TOKEN_BYTES = 4096
"""Room for one token's event; whoever sends more than this for each token asked for runs wild."""
_ESCAPED_BYTES = 6
"""A prefill's last event repeats the prompt, of which JSON makes up to six bytes a character."""
_PROGRESS_BYTES = 4
"""Progress for each character of a prompt: an event of 512 bytes for each batch of 32 tokens."""
_COUNTED_BYTES = 64
"""The JSON of a token, which may be one byte of what was sent to be counted."""


@dataclass(slots=True)
class _Stamped:
    started_ns: int
    events: list[tuple[int, str]] = field(default_factory=list)
    ended_ns: int = 0


class Client:
    """One endpoint. `idle_limit_s` bounds silence, not length: any byte resets it.

    From a llama-server, which sends progress, only an event does while an answer is streamed.

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
        self._api_key = api_key
        timeout = httpx2.Timeout(idle_limit_s, connect=_CONNECT_LIMIT_S)
        # A fresh connection per request: a kept one may have been closed by the server just then
        # (llama-server closes idle ones after 5 s), and a measured request is never sent twice.
        # No compression: a compressor holds tokens back.
        headers = {"Connection": "close", "Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx2.Client(
            base_url=self.base_url,
            timeout=timeout,
            headers=headers,
            transport=transport,
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=_certificates(),
            follow_redirects=False,
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

    def health(self, timeout_s: float = 5.0) -> bool:
        """Whether `/health` says ok; False while loading or unreachable."""
        try:
            return self._http.get("/health", timeout=timeout_s).status_code == 200
        except httpx2.HTTPError:
            return False

    def get(self, path: str) -> dict[str, Any] | None:
        """JSON object (or list, as `data`) of a native endpoint; `None` when there is none.

        Servers of other kinds answer unknown paths with a page or an `error` under HTTP 200, too.

        Raises:
            ServerError: unreachable, unauthorised, still loading, or failing.
        """
        with self._explained(_SMALL_LIMIT_S):
            status, text = bounded(self._http, "GET", path, limit_s=_SMALL_LIMIT_S)
            if status in _ABSENT:
                return None
            body = json_or_text(text)
            if status != 200:
                raise status_error(status, body, self.base_url)
        found = {"data": body} if isinstance(body, list) else body
        return found if isinstance(found, dict) and not found.get("error") else None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """JSON object answered to an untimed native request."""
        with self._explained(self.idle_limit_s):
            sent = json.dumps(body).encode()
            room, limit_s = SMALL_BYTES + _COUNTED_BYTES * len(sent), self.idle_limit_s
            status, text = bounded(self._http, "POST", path, sent, limit_s=limit_s, room_bytes=room)
            if status in _ABSENT:
                raise missing(self.base_url, path, status)
            answer = json_or_text(text)
            if status != 200 or (isinstance(answer, dict) and answer.get("error")):
                raise status_error(status, answer, self.base_url)
            return json_object(text, f"the answer of {self.base_url} to {path}")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Token count of each text by the server's tokenizer; texts end in a newline each.

        One request counts many lines: pieces are summed up to the newline that ends each text.
        """
        counts: list[int] = []
        for block in blocks(texts):
            sent = {"content": "".join(block), "with_pieces": True}
            body = self.post("/tokenize", sent)
            counts.extend(counted(block, shaped(TokenPieces, body, "/tokenize's answer")))
        return counts

    def token_total(self, text: str) -> int:
        """Token count of one text."""
        body = self.post("/tokenize", {"content": text})
        return len(shaped(TokenIds, body, "/tokenize's answer").tokens)

    def templated(self, user_text: str, **template: Any) -> str:
        """The prompt as the chat template renders one user message."""
        messages = [{"role": "user", "content": user_text}]
        body = self.post("/apply-template", {"messages": messages, **template})
        return shaped(Templated, body, "/apply-template's answer").prompt

    def listed_model(self, named: str | None = None) -> dict[str, Any] | None:
        """The entry of `/v1/models` that is `named` (else the first), whose id requests name.

        Raises:
            SetupError: the server lists models, but none of that name.
        """
        data = (self.get("/v1/models") or {}).get("data")
        listed = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        found = [m for m in listed if named is None or m.get("id") == named]
        if listed and not found:
            raise not_listed(self.base_url, named, [m.get("id") for m in listed])
        if not found:
            return None
        self.model = str(found[0].get("id", self.model))
        return found[0]

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
        with self._explained(self.idle_limit_s, stamped):
            with self._http.stream("POST", "/completion", json=body) as response:
                size = (_ESCAPED_BYTES + _PROGRESS_BYTES) * len(prompt)
                limit_s = self.idle_limit_s
                self._collect(response, stamped, size, on_progress, limit_s)
            return native_exchange(stamped.events, stamped.started_ns, stamped.ended_ns)

    def chat(
        self,
        user_text: str,
        *,
        max_tokens: int,
        reuse: bool,
        ignore_eos: bool = False,
        native: bool = True,
        pause_s: float = 0.0,
        on_progress: Progress | None = None,
        **template: Any,
    ) -> Exchange:
        """One streamed chat completion at temperature 0.

        `native` adds llama-server's own fields (slot, cache, progress, `ignore_eos`); other
        servers get the plain OpenAI request. `pause_s` is a rest after each read of the stream:
        a CPU server that makes thousands of tokens a second is then not interrupted for each of
        them (our own times get that much coarser, the server's do not).
        """
        extra: dict[str, Any] = dict(template)
        if native:
            extra |= {"cache_prompt": reuse, "id_slot": 0, "return_progress": True}
        if ignore_eos:
            extra["ignore_eos"] = True
        stamped = _Stamped(started_ns=time.perf_counter_ns())
        with self._explained(self.idle_limit_s, stamped):
            with self._openai.chat.completions.with_streaming_response.create(
                model=self.model,
                messages=[{"role": "user", "content": user_text}],
                temperature=0,
                max_tokens=max_tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=extra,
            ) as response:
                http = response.http_response
                if pause_s:
                    http.stream = Paced(http.stream, pause_s)
                limit_s = self.idle_limit_s if native else None
                size = _TOKEN_BYTES * max_tokens + _PROGRESS_BYTES * len(user_text)
                self._collect(http, stamped, size, on_progress, limit_s)
            return chat_exchange(stamped.events, stamped.started_ns, stamped.ended_ns, timed=native)

    def _collect(
        self,
        response: httpx2.Response,
        stamped: _Stamped,
        answer_bytes: int,
        on_progress: Progress | None,
        event_limit_s: float | None,
    ) -> None:
        """Stamp and keep the events; `event_limit_s` bounds the time without one, if given.

        A server without progress events may be silent but for pings while it reads.
        """
        clock, keep = time.perf_counter_ns, stamped.events.append
        limit = room = _BASE_ANSWER_BYTES + answer_bytes
        if not is_event_stream(response):
            raise self._not_a_stream(response)
        response.encoding = "utf-8"  # an event stream has no other, whatever its header says
        response.stream = watched = Watched(response.stream, event_limit_s or math.inf)
        for event in httpx2.EventSource(response, 2 * limit):
            data = event.data
            keep((clock(), data))
            watched.heard(data)
            if on_progress is not None and '"prompt_progress"' in data:
                report_progress(data, on_progress)
            room -= len(data)
            if room < 0:
                raise ServerError(
                    f"the server sent more than {limit / 2**20:.1f} MiB in answer to one request; "
                    "it does not keep to the number of tokens asked for: report its build"
                )
        stamped.ended_ns = clock()

    def _not_a_stream(self, response: httpx2.Response) -> Exception:
        """What to say of an answer that is no event stream: its error, else what it is."""
        if is_compressed(response):
            return compressed(self.base_url)
        head = bytearray()
        for part in response.iter_raw():
            head += part
            if len(head) > _BASE_ANSWER_BYTES:
                break
        text = bytes(head).decode("utf-8", "replace")
        body = json_or_text(text)
        if response.status_code != 200 or (isinstance(body, dict) and body.get("error")):
            return status_error(response.status_code, body, self.base_url)
        kind = inert(response.headers.get("content-type", "nothing"), 60)
        return ServerError(
            f"a stream of events was asked for, but {self.base_url} answered with {kind}: "
            f"{inert(text, 120)}; nothing in it can be timed. A proxy in between may collect "
            "answers: measure without it"
        )

    @contextmanager
    def _explained(self, limit_s: float, stamped: _Stamped | None = None) -> Iterator[None]:
        """Turn the client libraries' exceptions into ours, naming the limit that fired.

        An error never shows our API key, also when the server sends it back.
        """
        try:
            yield
        except HarnessError as error:
            if self._api_key and self._api_key in str(error):
                said = str(error).replace(self._api_key, "[API key]")
                raise ServerError(said, getattr(error, "cause", "SETUP")) from None
            raise
        except openai.APIStatusError as error:
            raise self._of_status(error) from None
        except openai.APIConnectionError as error:
            raise self._of_transport(error.__cause__ or error, limit_s, stamped) from error
        except openai.APIError as error:
            raise ServerError(f"the server sent an error: {inert(error.message)}") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise self._of_transport(error, limit_s, stamped) from error
        except httpx2.HTTPError as error:
            raise ServerError(f"{self.base_url}: {inert(str(error))}") from error

    def _of_status(self, error: openai.APIStatusError) -> ServerError:
        body = error.body if error.body is not None else inert(error.response.text)
        found = status_error(error.status_code, body, self.base_url)
        key = self._api_key or ""
        said = str(found).replace(key, "[API key]") if key else str(found)
        return ServerError(said, found.cause)

    def _of_transport(
        self, error: BaseException, limit_s: float, stamped: _Stamped | None
    ) -> ServerError:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                return ServerError(
                    f"{self.base_url} shows a certificate that is not trusted here "
                    f"({inert(str(error))}); name its authority's file in the environment variable "
                    "SSL_CERT_FILE",
                    cause="SETUP",
                )
            said = inert(str(error)) or f"no connection within {_CONNECT_LIMIT_S:.0f} s"
            return ServerError(
                f"nothing answers at {self.base_url} ({said}); start the server or correct "
                "--server-url",
                cause="SERVER_DIED",
            )
        if isinstance(error, httpx2.TimeoutException):
            return self._stalled(limit_s)
        if isinstance(error, httpx2.SSEError):
            return ServerError(f"the server's stream of events is broken: {inert(str(error))}")
        after = ""
        if stamped is not None:
            elapsed_s = (time.perf_counter_ns() - stamped.started_ns) / 1e9
            after = f" after {elapsed_s:.1f} s and {len(stamped.events)} events"
        return ServerError(
            f"the connection to {self.base_url} broke during a request{after} "
            f"({inert(str(error) or type(error).__name__)}); the server may have died or been "
            "stopped (see its log), or its --timeout or a proxy's limit cut the request",
            cause="SERVER_DIED",
        )

    def _stalled(self, limit_s: float) -> ServerError:
        said = f"{self.base_url} sent nothing for {limit_s:g} s"
        if limit_s != self.idle_limit_s:
            return ServerError(
                f"{said} (our limit for small requests); see the server's log", cause="STALLED"
            )
        return ServerError(
            f"{said} (our idle limit); raise --idle-timeout if it may really be silent that long",
            cause="STALLED",
        )


def _certificates() -> ssl.SSLContext | bool:
    """Those of `SSL_CERT_FILE`, if it is set: a server's own may be signed by itself."""
    named = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=named) if named else True
    except OSError as error:
        raise SetupError(f"SSL_CERT_FILE={named} holds no certificates ({error})") from error
