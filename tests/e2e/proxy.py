"""A proxy in front of a real llama-server that changes answers, and only answers.

Everything is forwarded as it is, the server's counts and times included; only the text of answers
to needle questions is exchanged for what a `Change` makes of it.
"""

import http.client
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_QUESTION = re.compile(
    r"^Q(\d+)(?:: (?P<en>.+?)(?: CODE)?\?|：(?P<ja>.+) のCODEを答える)$", re.MULTILINE
)
_LINE = re.compile(r"^Q(\d+)=(\S+)$", re.MULTILINE)
_CODE = re.compile(r"(?<==)[A-Z]+-\d+")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its questions by number, in the order asked, and whether it was read cold.

    `text` is the whole message, document and questions.
    """

    questions: dict[int, str]
    cold: bool
    text: str

    def before(self, first: str, second: str) -> bool:
        """Whether `first` was asked before `second`."""
        names = [label.rsplit(" ", 1)[-1] for label in self.questions.values()]
        return first in names and second in names and names.index(first) < names.index(second)


Change = Callable[[Asked, str], str | None]
"""The answer instead of the right one; `None` breaks the connection off."""


class Proxy:
    """Listens until closed. `change` may be exchanged between requests."""

    def __init__(self, upstream: str) -> None:
        self.change: Change = unchanged
        self.asked = 0
        self._target = urlsplit(upstream)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.proxy = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def forward(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body of the server's answer."""
        assert self._target.hostname is not None
        connection = http.client.HTTPConnection(self._target.hostname, self._target.port)
        try:
            connection.request(method, path, body or None, {"Content-Type": "application/json"})
            response = connection.getresponse()
            kind = response.headers.get("Content-Type", "text/plain")
            return response.status, kind, response.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        proxy: Proxy = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, kind, data = proxy.forward(method, self.path, body)
        asked = _asked(json.loads(body)) if self.path.endswith("/chat/completions") else None
        if asked is not None and status == 200:
            proxy.asked += 1
            changed = _exchanged(data.decode(), lambda text: proxy.change(asked, text))
            if changed is None:
                self.close_connection = True
                return
            data = changed.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _asked(body: dict[str, Any]) -> Asked | None:
    text = body["messages"][-1]["content"]
    found = {int(m[1]): m["en"] or m["ja"] for m in _QUESTION.finditer(text)}
    return Asked(found, cold=body.get("cache_prompt") is False, text=text) if found else None


def _exchanged(stream: str, change: Callable[[str], str | None]) -> str | None:
    """The stream with all text in its first text event, changed."""
    events = stream.split("\n\n")
    bodies: list[Any] = [
        json.loads(event.removeprefix("data: ")) if event.startswith("data: {") else None
        for event in events
    ]
    deltas = [
        choice["delta"]
        for body in bodies
        if body
        for choice in body.get("choices") or ()
        if choice.get("delta", {}).get("content")
    ]
    answer = change("".join(delta["content"] for delta in deltas))
    if answer is None:
        return None
    for delta, text in zip(deltas, [answer, *[""] * len(deltas)], strict=False):
        delta["content"] = text
    return "\n\n".join(
        event if body is None else f"data: {json.dumps(body)}"
        for event, body in zip(events, bodies, strict=True)
    )


# -- changes ----------------------------------------------------------------------------------


def unchanged(asked: Asked, answer: str) -> str:
    return answer


def swap_two(asked: Asked, answer: str) -> str:
    """The first two answers with each other's code."""
    codes = [code for _, code in _LINE.findall(answer)][:2][::-1]
    return _CODE.sub(lambda m: codes.pop(0) if codes else m[0], answer)


def cut_digits(asked: Asked, answer: str) -> str:
    """Every code without its last two digits."""
    return _CODE.sub(lambda m: m[0][:-2], answer)


def change_prefix(asked: Asked, answer: str) -> str:
    return _CODE.sub(lambda m: m[0].replace("MEM-", "KEY-"), answer)


def repeat_one(asked: Asked, answer: str) -> str:
    """The first answer's code for every question."""
    first = _CODE.search(answer)
    return answer if first is None else _CODE.sub(first[0], answer)


def drop_ids(asked: Asked, answer: str) -> str:
    """The codes alone, a list."""
    return _LINE.sub(lambda m: f"- {m[2]}", answer)


def drop_last(asked: Asked, answer: str) -> str:
    return answer.rsplit("\n", 1)[0]


def slashes(asked: Asked, answer: str) -> str:
    return "/" * 200


def nothing(asked: Asked, answer: str) -> str:
    return ""


def break_off(asked: Asked, answer: str) -> None:
    return None


def of_an_earlier_request() -> Change:
    """The first code of the request before instead of the own one."""
    earlier: list[str] = []

    def change(asked: Asked, answer: str) -> str:
        codes = [m[0] for m in _CODE.finditer(answer) if m[0].startswith("CTL")]
        before, earlier[:] = list(earlier), codes
        return answer.replace(codes[0], before[0]) if before and codes else answer

    return change


def solve(asked: Asked, answer: str) -> str:
    """What a model that can do the harder tests would say, from the document's own text."""
    return "\n".join(f"Q{n}={_solved(text, asked.text)}" for n, text in asked.questions.items())


def _solved(question: str, text: str) -> str:
    if found := re.fullmatch(r"What is the value of key (\S+)", question):
        return _found(rf"The value of key {found[1]} is (\S+)\.", text)
    if found := re.search(r"that crate (\S+) carries", question):
        seal = _found(rf"Crate {found[1]} carries seal (\S+)\.", text)
        return _found(rf"The code of seal {seal} is (\S+)\.", text)
    if found := re.fullmatch(r"How many barrels of (\w+) are listed.*", question):
        return f"COUNT-{text.count(f'one barrel of {found[1]}.')}"
    return _found(rf"<<< {re.escape(question)} >>>\nCODE=(\S+)", text)


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return found[1]


def only_when(holds: Callable[[Asked], bool], change: Change) -> Change:
    """A change that is made only where `holds`."""
    return lambda asked, answer: change(asked, answer) if holds(asked) else answer
