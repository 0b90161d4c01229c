"""The fake server as a program that the harness starts: `python -m tests.faults.launched NAME …`.

It takes llama-server's flags, writes a log, and dies of what a row of `LAUNCHED` says.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.fake_server import FakeServer
from tests.faults.fault import HOSTILE, REFUSED
from tests.faults.turn import Turn

HELP = "-m, --model FNAME\n--host HOST\n--port PORT\n-c, --ctx-size N\n-np, --parallel N\n"


@dataclass(frozen=True, slots=True)
class Launched:
    """One row: at the `nth` request of `place` (or while it is loading) it logs and dies.

    `exit_code` is a signal's number where it is negative; `None` leaves it alive. `orphaned`: what
    dies is its supervisor.
    """

    name: str
    server: str
    place: str
    outcome: str
    code: str = ""
    phrase: str = ""
    nth: int = 1
    log: str = ""
    exit_code: int | None = None
    orphaned: bool = False
    cases: tuple[int, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


LAUNCHED = (
    Launched(
        "started",
        "starts and does nothing wrong",
        "none",
        "NO_BASELINE",
        "no_baseline",
        "15 of 15 right",
    ),
    Launched(
        "dies-loading",
        "dies while loading its model",
        "loading",
        REFUSED,
        phrase="the server died while loading the model (exit code 1)",
        log="llama_model_load: error loading model: invalid magic",
        exit_code=1,
        options={"ready_timeout_s": 20.0},
    ),
    Launched(
        "dies-loading-hostile",
        "dies with terminal escapes in its log",
        "loading",
        REFUSED,
        phrase="the server died while loading the model (exit code 1)",
        log=f"error: {HOSTILE}",
        exit_code=1,
        options={"ready_timeout_s": 20.0},
    ),
    Launched(
        "never-ready",
        "loads for longer than --ready-timeout",
        "health",
        REFUSED,
        phrase="the server was not ready after 1 s; raise --ready-timeout",
        cases=(30,),
        options={"ready_timeout_s": 1.0},
    ),
    Launched(
        "dies-at-first-request",
        "says ok and dies at its first request",
        "warm-up",
        REFUSED,
        phrase="the server died while answering its first request (signal 11)",
        exit_code=-signal.SIGSEGV,
        cases=(30,),
    ),
    Launched(
        "killed",
        "is killed in the middle of the climb (out of memory, say)",
        "rung",
        "ERROR",
        "SERVER_DIED",
        "the server died while answering a request (signal 9)",
        nth=2,
        exit_code=-9,  # Windows has no signal.SIGKILL, and this is imported there, too
    ),
    Launched(
        "supervisor-killed",
        "loses its supervisor in the middle of the climb, and is killed by the system",
        "rung",
        "ERROR",
        "SERVER_DIED",
        "with its supervisor, harness.serving.supervise, which somebody killed); its log is empty",
        nth=2,
        orphaned=True,
    ),
    Launched(
        "device-lost",
        "loses its GPU at the second rung",
        "rung",
        "ERROR",
        "DEVICE_LOST",
        "the server died while answering a request (exit code 1)",
        nth=2,
        log="terminate called after throwing an instance of 'vk::DeviceLostError'\n"
        "  what():  vk::Device::waitForFences: ErrorDeviceLost",
        exit_code=1,
        cases=(24,),
    ),
    Launched(
        "allocation-fails",
        "cannot allocate a buffer at the second rung",
        "rung",
        "ERROR",
        "ALLOC_FAIL",
        "the server died while answering a request (exit code 1)",
        nth=2,
        log="ggml_vulkan: Device memory allocation of size 4294967296 failed.\n"
        "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: "
        "ErrorOutOfDeviceMemory",
        exit_code=1,
        cases=(23,),
    ),
)


def program(fault: Launched, folder: Path) -> Path:
    """An executable that behaves like `fault`."""
    path = folder / "llama-server"
    path.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m tests.faults.launched {fault.name} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def main(argv: list[str]) -> int:
    """`NAME` and llama-server's flags."""
    fault = next(row for row in LAUNCHED if row.name == argv[0])
    if "--help" in argv:
        print(HELP)
        return 0

    def die(turn: Turn) -> None:
        if turn.place == fault.place and turn.nth >= fault.nth:
            if fault.place == "health":
                turn.status, turn.reply = 503, {"error": {"code": 503, "message": "Loading model"}}
            if fault.orphaned:
                os.kill(os.getppid(), signal.SIGKILL)
                threading.Event().wait()
            if fault.exit_code is not None:
                _hang_up()
                _end(fault)

    if fault.place == "loading":
        _end(fault)
    server = FakeServer(die, port=int(argv[argv.index("--port") + 1]))
    server.gone.wait()
    return 0


def _hang_up() -> None:
    """End every connection a moment before the process: a real death is seen in this order."""
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
    time.sleep(0.3)


def _end(fault: Launched) -> None:
    print(fault.log, file=sys.stderr, flush=True)
    code = fault.exit_code or 0
    if code < 0:
        os.kill(os.getpid(), -code)
        threading.Event().wait()  # the signal may reach another thread first
    os._exit(code)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
