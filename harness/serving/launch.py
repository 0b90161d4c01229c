"""Starting a server, knowing that it is ready, noticing its death, stopping its whole tree."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from harness.errors import ServerError, SetupError
from harness.serving.exit_code import ending
from harness.serving.orphans import GRACE_S, new_mark, stop_marked
from harness.serving.shapes import inert

if TYPE_CHECKING:
    from harness.serving.client import Client

LOOPBACK = "127.0.0.1"
_TAIL_LINES = 40
_LINE_CHARS = 500
_FULL_BELOW_BYTES = 64 * 1024
_DEATH_NOTICE_S = 5.0
"""A server's connections break a moment before its death can be seen."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A server to start: its command line, where its output goes, variables added to ours.

    `notes` is the folder where it is noted, so that the next run can stop it should it outlive us.
    """

    argv: tuple[str, ...]
    port: int
    log_path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    notes: Path | None = None
    host: str = LOOPBACK

    @property
    def base_url(self) -> str:
        """The server's root URL; one that listens everywhere is asked here."""
        host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


class RunningServer:
    """A started server. `pid` is the server's own, not its supervisor's."""

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._unattended = False
        self._mark = new_mark()
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._supervisor = subprocess.Popen(  # noqa: S603
            [
                *(sys.executable, "-m", "harness.serving.supervise"),
                *("--log", str(spec.log_path), "--mark", self._mark),
                *(*_note(spec), "--", *spec.argv),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**inherited(), **spec.env},
        )
        self._watcher = threading.Thread(target=self._await_exit, daemon=True)
        first = self._message()
        if "pid" not in first:
            self.stop()
            stop_marked(self._mark)
            reason = first.get("error", "no reason given")
            raise SetupError(f"cannot start {spec.argv[0]}: {reason}; check --server-bin")
        self.pid = int(str(first["pid"]))
        self._watcher.start()

    def _message(self) -> dict[str, object]:
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        try:
            message = json.loads(line)
        except ValueError:
            return {}
        return message if isinstance(message, dict) else {}

    def _await_exit(self) -> None:
        code = self._message().get("exit")
        self._unattended = code is None
        self.exit_code = int(str(code)) if code is not None else None
        if self._unattended:  # the system stops its child, but not what a script started
            stop_marked(self._mark)

    @property
    def alive(self) -> bool:
        """Whether the server still runs."""
        ended = self.exit_code is not None or self._unattended
        return not ended and self._supervisor.poll() is None

    def dies_at_once(self) -> bool:
        """Whether the server is dead, or is so within moments (a connection of it has broken)."""
        self._watcher.join(timeout=_DEATH_NOTICE_S)
        return not self.alive

    def log_tail(self, lines: int = _TAIL_LINES) -> tuple[str, ...]:
        """The last lines of the server's output."""
        try:
            with self.spec.log_path.open("rb") as log:
                log.seek(max(0, self.spec.log_path.stat().st_size - 64 * 1024))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ()
        return tuple(inert(line, _LINE_CHARS) for line in text.splitlines()[-lines:])

    def log_lines(self) -> Iterator[str]:
        """The server's whole output so far, line by line."""
        try:
            with self.spec.log_path.open(encoding="utf-8", errors="replace") as log:
                yield from log
        except OSError:
            return

    def death(self, doing: str) -> ServerError:
        """The error for a server that died while `doing` something."""
        code, tail = self.exit_code, self.log_tail()
        how, step = "with its supervisor, harness.serving.supervise, which somebody killed", None
        if code is not None:
            how, step = (ended := ending(code)).how, ended.next_step
        log = f"its whole log is {self.spec.log_path}"
        where = f"its last lines are below, {log}" if any(tail) else f"its log is empty ({log})"
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.spec.log_path.parent).free < _FULL_BELOW_BYTES:
                where += "; the disk of its log is full: make room there"
        return ServerError(
            f"the server died while {doing} ({how}){': ' + step if step else ''}; {where}",
            cause="SERVER_DIED",
            log_tail=tail,
        )

    def stop(self) -> None:
        """Stop the server and everything it started; safe to call twice."""
        if self._supervisor.stdin is not None and not self._supervisor.stdin.closed:
            self._supervisor.stdin.close()
        try:
            self._supervisor.wait(timeout=15.0)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        if self._watcher.ident is not None:
            self._watcher.join(timeout=3 * GRACE_S)
        if self._supervisor.stdout is not None:
            self._supervisor.stdout.close()


def inherited() -> dict[str, str]:
    """Our environment without settings for llama-server: those of a run are in its settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}


def _note(spec: LaunchSpec) -> tuple[str, ...]:
    if spec.notes is None:
        return ()
    return "--note", str(spec.notes / f"{os.getpid()}-{spec.port}.json")


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def refuse_taken_port(port: int) -> None:
    """Say who holds `port` before a server is started on it.

    Raises:
        SetupError: somebody listens there.
    """
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex((LOOPBACK, port)) != 0:
            return
    raise SetupError(
        f"port {port} is already in use{_holder(port)}; stop that process, give another --port in "
        f"--server-args, or measure it with --server-url http://{LOOPBACK}:{port}"
    )


def listener_pid(port: int) -> int | None:
    """Process id of whoever listens on a local `port`; `None` when it cannot be told."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,):
            return connection.pid
    return None


def _holder(port: int) -> str:
    pid = listener_pid(port)
    if pid is None:
        return ""
    try:
        return f" by {psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f" by pid {pid}"


def wait_until_ready(server: RunningServer, client: "Client", *, limit_s: float) -> None:
    """Ready = `/health` says ok **and** one small completion is answered.

    Raises:
        ServerError: the server died or was not ready within `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    while not client.health():
        if not server.alive:
            raise server.death("loading the model")
        if time.monotonic() > deadline:
            raise ServerError(
                f"the server was not ready after {limit_s:.0f} s; raise --ready-timeout or see "
                f"{server.spec.log_path}",
                cause="SETUP",
                log_tail=server.log_tail(),
            )
        time.sleep(0.05)
    try:
        client.chat("Hello.", max_tokens=1, reuse=False)
    except ServerError as error:
        if error.cause == "SERVER_DIED" and server.dies_at_once():
            raise server.death("answering its first request") from error
        raise


def supported_flags(binary: str) -> str:
    """The `--help` text of a llama-server binary.

    Raises:
        SetupError: it cannot be run.
    """
    return _output(binary, "--help")


def _output(binary: str, argument: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            [binary, argument], capture_output=True, timeout=60, check=False
        )
    except OSError as error:
        raise SetupError(
            f"cannot run {binary}: {error.strerror or error}; give the path of a llama-server "
            "binary with --server-bin"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"{binary} {argument} did not end within 60 s; is it a llama-server?"
        ) from error
    return (done.stdout + done.stderr).decode("utf-8", "replace")
