"""A scripted llama-server: its real wire on a real socket, with one thing wrong where a fault says.

It tokenizes, wraps messages into a chat template, keeps a cache of one slot, and answers needle
questions by reading the prompt. Its speeds are fixed numbers, and it takes the time it reports. A
`Turn` is one request with the answer it is about to get; a fault changes turns before they are
sent.
"""

import contextlib
import hashlib
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.faults.turn import Cut, Die, Pause, Raw, Turn, set_counts, tokens_of, too_long

HEAD, END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
BUILD = "b11549-fake"

_NEEDLE = re.compile(r"<<< ([^\n]+) >>>\nCODE=(\S+)\n")
_QUESTION = re.compile(r"^Q(\d+): (.+) CODE\?$", re.MULTILINE)
WARM_UP_CHARS = 800
"""A control is shorter, a warm-up longer."""
MEASURED = ("rung", "warm-up", "control", "ask", "generation")


def _piece(token: str) -> list[Any]:
    if token.isascii():
        return [{"id": ord(token[0]), "piece": token}]
    return [{"id": byte, "piece": [byte]} for byte in token.encode()]


@lru_cache
def _tokenized(text: str, with_pieces: bool) -> list[Any]:
    pieces = [piece for token in tokens_of(text) for piece in _piece(token)]
    return pieces if with_pieces else [piece["id"] for piece in pieces]


Change = Callable[[Turn], None]


class FakeServer:
    """Serves until closed. `change` sees every turn; `n_ctx` is what `/props` admits to."""

    def __init__(self, change: Change | None = None, *, n_ctx: int = 4096, port: int = 0) -> None:
        self.change = change
        self.n_ctx = n_ctx
        self.seen: Counter[str] = Counter()
        self.turns: list[tuple[str, str]] = []
        self.hit = False
        self.head = HEAD
        self._cache: list[str] = []
        self._slot = {"id": 0, "n_ctx": n_ctx, "is_processing": False, "id_task": -1}
        self._codes: list[str] = []
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._http = _Listener(("127.0.0.1", port), _Handler, self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and let go of all that wait."""
        if not self.gone.is_set():
            self.gone.set()
            self._http.shutdown()
            self._http.server_close()

    def turn(self, method: str, path: str, body: dict[str, Any]) -> Turn:
        """What one request gets, changes included."""
        with self._lock:
            turn = self._healthy(method, path, body)
            if turn.place in MEASURED:
                digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
                self.turns.append((turn.place, digest))
            if self.change is not None:
                self.change(turn)
            return turn

    def _healthy(self, method: str, path: str, body: dict[str, Any]) -> Turn:
        place = {
            "/health": "health",
            "/props": "props",
            "/slots": "slots",
            "/v1/models": "models",
            "/tokenize": "tokenize",
            "/apply-template": "template",
            "/completion": "rung",
            "/v1/chat/completions": "chat",
        }.get(path, "unknown")
        text = ""
        if "n_probs" in body or body.get("logprobs"):
            place = "numbers"
        elif place == "chat":
            text = body["messages"][-1]["content"]
            place = _chat_place(body, text)
            if place == "control" and len(text) > WARM_UP_CHARS:
                place = "warm-up"
        self.seen[place] += 1
        turn = Turn(place, self.seen[place], body)
        if place == "health":
            turn.reply = {"status": "ok"}
        elif place == "props":
            turn.reply = {
                "default_generation_settings": {"n_ctx": self.n_ctx},
                "total_slots": 1,
                "model_path": "/models/fake.gguf",
                "build_info": BUILD,
            }
        elif place == "slots":
            turn.reply = [self._slot]
        elif place == "models":
            meta = {"n_ctx_train": 131072, "n_params": 2164992, "size": 4334592, "ftype": "F16"}
            turn.reply = {"object": "list", "data": [{"id": "fake", "meta": meta}]}
        elif place == "tokenize":
            turn.reply = {"tokens": _tokenized(body["content"], bool(body.get("with_pieces")))}
        elif place == "template":
            turn.reply = {"prompt": self.head + body["messages"][-1]["content"] + END}
        elif place == "numbers":
            turn.reply = _numbers(body)
        elif place == "unknown":
            turn.status = 404
            turn.reply = {"error": {"code": 404, "message": "File Not Found"}}
        elif place == "rung":
            self._stream(turn, str(body["prompt"]), [])
        else:
            self._chat(turn, text)
        return turn

    def _chat(self, turn: Turn, text: str) -> None:
        budget = int(turn.body["max_tokens"])
        needles = dict(_NEEDLE.findall(text))
        turn.asked = {int(n): needles.get(label, "?") for n, label in _QUESTION.findall(text)}
        turn.earlier_codes = tuple(self._codes)
        if turn.body.get("ignore_eos"):
            pieces = ["x "] * budget
            turn.finish = "length"
        else:
            answer = "\n".join(f"Q{n}={code}" for n, code in turn.asked.items()) or "Noted."
            pieces = tokens_of(answer)
            if len(pieces) > budget:
                pieces, turn.finish = pieces[:budget], "length"
        self._codes += [c for c in turn.asked.values() if c.startswith("CTL")]
        self._stream(turn, self.head + text + END, pieces)

    def _stream(self, turn: Turn, prompt: str, pieces: list[str]) -> None:
        tokens = tokens_of(prompt)
        turn.stream, turn.native, turn.pieces = True, turn.place == "rung", pieces
        if len(tokens) + len(pieces) > self.n_ctx:
            turn.stream, turn.status = False, 400
            turn.reply = too_long(len(tokens), self.n_ctx)
            return
        cached = 0
        if turn.body.get("cache_prompt", True):
            while cached < min(len(tokens) - 1, len(self._cache)):
                if tokens[cached] != self._cache[cached]:
                    break
                cached += 1
        self._cache = tokens
        self._slot = {**self._slot, "id_task": len(self.turns)}
        set_counts(turn, len(tokens) - cached, cached, len(pieces))


def _numbers(body: dict[str, Any]) -> dict[str, Any]:
    """The same distribution for each token asked for, as either endpoint sends it."""
    top = [{"id": n, "token": f"t{n}", "logprob": -0.5 - n} for n in range(10)]
    if "n_probs" in body:
        steps = [{"id": 0, "top_logprobs": top}] * int(body["n_predict"])
        return {"completion_probabilities": steps, "timings": {"prompt_n": 9}}
    top = [{"token": one["token"], "logprob": one["logprob"]} for one in top]
    steps = [{"token": "t0", "top_logprobs": top}] * int(body["max_tokens"])
    return {"choices": [{"logprobs": {"content": steps}}]}


def _chat_place(body: dict[str, Any], text: str) -> str:
    asked = _QUESTION.search(text) is not None
    if body.get("ignore_eos"):
        return "generation" if asked else "control"
    return "ask" if asked else "warm-up"


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type, fake: FakeServer) -> None:
        self.fake = fake
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of the fake's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(json.loads(raw))

    def _answer(self, body: dict[str, Any]) -> None:
        self.close_connection = True
        turn = self.server.fake.turn(self.command, self.path, body)
        with contextlib.suppress(OSError):
            if turn.stream:
                self._send_stream(turn)
            else:
                self._send_reply(turn)

    def _head(self, turn: Turn, defaults: dict[str, str]) -> None:
        self.send_response(turn.status)
        for name, value in {**defaults, **turn.headers, "Connection": "close"}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def _send_reply(self, turn: Turn) -> None:
        reply = turn.reply
        data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        kind = "application/json; charset=utf-8"
        self._head(turn, {"Content-Type": kind, "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _send_stream(self, turn: Turn) -> None:
        steps = turn.steps()
        while steps and isinstance(steps[0], Pause | Cut | Die):
            if not self._halted(steps.pop(0)):
                return
        defaults = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        self._head(turn, defaults)
        chunked = turn.headers.get("Transfer-Encoding", "chunked") == "chunked"
        for step in steps:
            if isinstance(step, Raw):
                self.wfile.write(step.data)
            elif isinstance(step, bytes):
                frame = b"%x\r\n%b\r\n" % (len(step), step) if chunked else step
                self.wfile.write(frame)
            elif not self._halted(step):
                return
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _halted(self, step: Pause | Cut | Die | Raw | bytes) -> bool:
        """Do a step that sends nothing; False when the connection is over."""
        if isinstance(step, Pause):
            return not self.server.fake.gone.wait(step.s)
        if isinstance(step, Die):
            threading.Thread(target=self.server.fake.close, daemon=True).start()
            self.server.fake.gone.wait(5.0)
        if isinstance(step, Die) or (isinstance(step, Cut) and not step.clean):
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif isinstance(step, Cut):
            self.wfile.write(b"0\r\n\r\n")
        return False
