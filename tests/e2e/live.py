"""A real embedded server for a module of tests, a proxy before it, and interviews through both."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from harness.measuring.asking import Interview
from harness.measuring.script import Script
from harness.measuring.sitting import Sitting
from harness.records.lines import ProbeAsk
from harness.serving.client import Client
from harness.serving.launch import LaunchSpec, RunningServer, free_port, wait_until_ready
from harness.serving.packaged import reference_model
from harness.serving.session import Session, open_session
from harness.settings import Settings
from tests.e2e.proxy import Proxy, unchanged


@dataclass
class Live:
    """An open session through a proxy, with everything a probe needs."""

    proxy: Proxy
    session: Session
    script: Script
    settings: Settings
    asks: list[ProbeAsk] = field(default_factory=list)

    def interview(self, settings: Settings | None = None) -> Interview:
        """A probe's talk with the server; its asks are in `asks`."""
        self.proxy.change = unchanged
        self.proxy.asked = 0
        self.asks.clear()
        watching: Any = None
        sitting = Sitting(
            self.session,
            self.script,
            settings or self.settings,
            cast(Any, self.asks.append),
            cast(Any, SimpleNamespace(say=lambda text: None)),
            watching,
            watching,
        )
        return Interview(sitting, "fuzz")


@contextmanager
def live(folder: Path, *flags: str, n_ctx: int = 4096, model: Path | None = None) -> Iterator[Live]:
    """Start the embedded server with `flags` and open a session through a proxy."""
    port = free_port()
    argv = (
        *(
            sys.executable,
            "-m",
            "harness.serving.embedded",
            "--model",
            str(model or reference_model()),
        ),
        *("--port", str(port), "-c", str(n_ctx), "-np", "1", "--cache-ram", "0", "-b", "512"),
        *("-t", "1"),  # two threads that wait for each other starve on a busy machine
        *flags,
    )
    spec = LaunchSpec(argv, port, folder / "server.log")
    server = RunningServer(spec)
    try:
        client = Client(spec.base_url)
        wait_until_ready(server, client, limit_s=120.0)
        client.close()
        proxy = Proxy(spec.base_url)
        settings = Settings(
            server_url=proxy.url,
            ctx_tokens=n_ctx,
            depths=(1024,),
            fuzz_ctx=1536,
            results=folder / "results",
        )
        session = open_session(settings, folder / "unused.log", lambda text: None)
        try:
            yield Live(proxy, session, Script(session.client, settings, native=True), settings)
        finally:
            session.close()
            proxy.close()
    finally:
        server.stop()
