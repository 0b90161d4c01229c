"""Event streams: whether one came, its progress, reading it at rest, telling a hang from work."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from harness.errors import ServerError

Progress = Callable[[int, int], None]
"""Called with (tokens read so far, total tokens of the prompt) as a prefill proceeds."""

_WAITED_S = 0.0003
_PROCESSED = re.compile(r'"processed"\s*:\s*(\d+)')
_TEXT = re.compile(r'"(?:content|reasoning_content|reasoning)"\s*:\s*"[^"]|"finish_reason"\s*:\s*"')


def is_compressed(response: httpx2.Response) -> bool:
    """Whether a response would have to be unpacked, to whatever size."""
    return bool(response.headers.get("content-encoding", "identity") != "identity")


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether a response is what can be timed."""
    if is_compressed(response):
        return False
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status_code == 200 and kind == "text/event-stream"


def report_progress(data: str, on_progress: Progress) -> None:
    """Tell of the progress that an event's data hold; odd data tell nothing."""
    try:
        progress = json.loads(data)["prompt_progress"]
        on_progress(int(progress["processed"]), int(progress["total"]))
    except (ValueError, KeyError, TypeError):
        return


class Paced(httpx2.SyncByteStream):
    """A stream that rests after each read that had to wait; what was already there flows on."""

    def __init__(self, stream: Any, pause_s: float) -> None:
        self._stream = stream
        self._pause_s = pause_s

    def __iter__(self) -> Iterator[bytes]:
        asked_s = time.perf_counter()
        for part in self._stream:
            waited = time.perf_counter() - asked_s > _WAITED_S
            yield part
            if waited:
                time.sleep(self._pause_s)
            asked_s = time.perf_counter()

    def close(self) -> None:
        self._stream.close()


class Watched(httpx2.SyncByteStream):
    """A stream on which only work is a sign of life: text, or progress that grows.

    llama-server pings from another thread than the one that computes, so a hung one goes on
    pinging. A prefill that works sends a progress event for each batch.
    """

    def __init__(self, stream: Any, limit_s: float) -> None:
        self._stream = stream
        self._limit_s = limit_s
        self._worked_s = time.monotonic()
        self._processed = -1

    def heard(self, data: str) -> None:
        """An event came with these data."""
        if '"prompt_progress"' in data:
            found = _PROCESSED.search(data)
            processed = int(found[1]) if found is not None else -1
            if processed <= self._processed:
                return
            self._processed = processed
        elif _TEXT.search(data) is None:
            return
        self._worked_s = time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            yield part  # and whoever takes it tells us of the events in it
            if time.monotonic() - self._worked_s > self._limit_s:
                raise ServerError(
                    f"the server sent neither text nor progress for {self._limit_s:g} s (our idle "
                    "limit), only pings or the like: it answers and does not work; see its log, or "
                    "raise --idle-timeout if one batch may really take that long",
                    cause="STALLED",
                )

    def close(self) -> None:
        self._stream.close()
