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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PREFILL_TOK_MS = 1000.0
GENERATE_TOK_MS = 10.0
HEAD, END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
BUILD = "b11549-fake"

_TOKEN = re.compile(r"[A-Za-z]+|[0-9]|\s|[^\sA-Za-z0-9]")
_NEEDLE = re.compile(r"<<< ([^\n]+) >>>\nCODE=(\S+)\n")
_QUESTION = re.compile(r"^Q(\d+): (.+) CODE\?$", re.MULTILINE)
MEASURED = ("rung", "warm-up", "control", "ask", "generation")


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


def _piece(token: str) -> list[Any]:
    if token.isascii():
        return [{"id": ord(token[0]), "piece": token}]
    return [{"id": byte, "piece": [byte]} for byte in token.encode()]


Change = Callable[[Turn], None]


class FakeServer:
    """Serves until closed. `change` sees every turn; `n_ctx` is what `/props` admits to."""

    def __init__(self, change: Change | None = None, *, n_ctx: int = 4096) -> None:
        self.change = change
        self.n_ctx = n_ctx
        self.seen: Counter[str] = Counter()
        self.turns: list[tuple[str, str]] = []
        self.hit = False
        self._cache: list[str] = []
        self._codes: list[str] = []
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._http = _Listener(("127.0.0.1", 0), _Handler, self)
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
        if place == "chat":
            text = body["messages"][-1]["content"]
            place = _chat_place(body, text)
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
            turn.reply = [{"id": 0, "n_ctx": self.n_ctx, "is_processing": False}]
        elif place == "models":
            meta = {"n_ctx_train": 131072, "n_params": 2164992, "size": 4334592, "ftype": "F16"}
            turn.reply = {"object": "list", "data": [{"id": "fake", "meta": meta}]}
        elif place == "tokenize":
            pieces = [p for token in tokens_of(body["content"]) for p in _piece(token)]
            with_pieces = body.get("with_pieces")
            turn.reply = {"tokens": pieces if with_pieces else [p["id"] for p in pieces]}
        elif place == "template":
            turn.reply = {"prompt": HEAD + body["messages"][-1]["content"] + END}
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
        needles = {name: code for name, code in _NEEDLE.findall(text)}
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
        self._stream(turn, HEAD + text + END, pieces)

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
        set_counts(turn, len(tokens) - cached, cached, len(pieces))


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
