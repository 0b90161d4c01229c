"""Untimed requests: their answers are bounded in size and time, whatever the server does."""

import queue
import threading
import time

import httpx2

from harness.errors import ServerError
from harness.serving.streams import is_compressed

SMALL_BYTES = 8 << 20
_MARGIN_S = 10.0
"""For connecting, and for a request that ends by a limit of its own."""


def bounded(
    http: httpx2.Client,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    limit_s: float,
    room_bytes: int = SMALL_BYTES,
) -> tuple[int, str]:
    """Status and text of an answer that is there, whole, within `limit_s` and `room_bytes`.

    A thread of its own asks: a server that sends a header line a second is never silent.

    Raises:
        ServerError: it is too large, too slow, or compressed.
        httpx2.HTTPError: as the client says.
    """
    done: queue.SimpleQueue[tuple[int, str] | BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            done.put(_answer(http, method, path, body, limit_s, room_bytes))
        except BaseException as error:
            done.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        found = done.get(timeout=limit_s + _MARGIN_S)
    except queue.Empty:
        raise _late(http, path, limit_s) from None
    if isinstance(found, BaseException):
        raise found
    return found


def _answer(
    http: httpx2.Client, method: str, path: str, body: bytes | None, limit_s: float, room_bytes: int
) -> tuple[int, str]:
    until_s = time.monotonic() + limit_s
    headers = {} if body is None else {"Content-Type": "application/json"}
    text = bytearray()
    with http.stream(method, path, content=body, headers=headers, timeout=limit_s) as response:
        if is_compressed(response):
            raise compressed(_root(http))
        for part in response.iter_raw():
            text += part
            if len(text) > room_bytes:
                raise ServerError(
                    f"{_root(http)} sent more than {room_bytes / 2**20:.0f} MiB in answer to "
                    f"{path}; is it a llama-server?"
                )
            if time.monotonic() > until_s:
                raise _late(http, path, limit_s)
        return response.status_code, text.decode("utf-8", "replace")


def compressed(url: str) -> ServerError:
    """The error of an answer that would have to be unpacked."""
    return ServerError(
        f"{url} compresses its answer, which was not asked for; measure without the proxy in "
        "between"
    )


def _late(http: httpx2.Client, path: str, limit_s: float) -> ServerError:
    return ServerError(
        f"{_root(http)} did not finish an answer to {path} within {limit_s:g} s (our limit for "
        "it); see the server's log",
        cause="STALLED",
    )


def _root(http: httpx2.Client) -> str:
    return str(http.base_url).rstrip("/")
