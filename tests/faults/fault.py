"""A row of the fault table: what a server does wrong, and what a run must make of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.fake_server import MEASURED, Change, FakeServer
from tests.faults.turn import Turn

REFUSED = "REFUSED"
"""The run ends before anything is measured, with one sentence."""

IDLE = {"idle_timeout_s": 0.6}
JAPANESE = "回答：以下の通り\n"
HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\x00\x08\u202e\r\n"
PAGE = b"<!doctype html><title>llama.cpp</title>"
FORBIDDEN = {"Content_Type": "text/html"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One row.

    `place` says which requests are changed (several: a blank between them), `nth` which of them
    (`None`: all). `outcome` is that of the cell (`metric`, `depth`), `code` its code, or the cause
    of the failure it names; `phrase` stands in its reason, or in the notes of a run that passes.
    `cases` are numbers of published reports of the same kind of fault.
    """

    name: str
    server: str
    place: str
    change: Change
    outcome: str
    code: str | None = None
    phrase: str = ""
    nth: int | tuple[int, ...] | None = None
    metric: str = "retrieval"
    depth: int = 4096
    cases: tuple[int, ...] = ()
    n_ctx: int = 4096
    options: Mapping[str, object] = field(default_factory=dict)

    def serve(self) -> FakeServer:
        """A server that does this."""
        places = MEASURED if self.place == "all" else tuple(self.place.split())
        numbers = self.nth if isinstance(self.nth, tuple) else (self.nth,)
        server = FakeServer(n_ctx=self.n_ctx)

        def change(turn: Turn) -> None:
            if turn.place in places and (self.nth is None or turn.nth in numbers):
                server.hit = True
                self.change(turn)

        server.change = change
        return server
