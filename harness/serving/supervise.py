"""A supervisor that lets no server outlive its run: `python -m harness.serving.supervise`.

It starts the command after `--`, writes one JSON line with the child's pid, and then waits for the
child to die or for its own standard input to end. The run holds the other end of that pipe, so it
ends however the run ends (SIGKILL included); then the whole process tree is stopped. On Linux the
kernel also kills the child should the supervisor itself be killed.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

GRACE_S = 5.0


_PASSED_OVER = ("SIGINT", "SIGHUP", "SIGTERM")
"""Signals that do not end the supervisor: it ends with its run. A server takes them as usual."""


def _prepare_child() -> None:
    """Signals as usual; on Linux, die when the supervisor does (prctl PR_SET_PDEATHSIG)."""
    for name in _PASSED_OVER:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def stop_tree(pid: int, grace_s: float = GRACE_S) -> None:
    """Terminate `pid` and all its descendants, then kill whatever is left after `grace_s`."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        _quietly(process.terminate)
    _, alive = psutil.wait_procs(tree, timeout=grace_s)
    for process in alive:
        _quietly(process.kill)
    psutil.wait_procs(alive, timeout=grace_s)


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except psutil.Error:
        return


def _wait_for_end_of_input(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    stop_tree(child.pid)


def main(argv: list[str]) -> int:
    """`--log FILE -- COMMAND…`; exits with the child's code."""
    if len(argv) < 4 or argv[0] != "--log" or argv[2] != "--":
        print("usage: supervise --log FILE -- COMMAND [ARG …]", file=sys.stderr)
        return 2
    for name in _PASSED_OVER:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with Path(argv[1]).open("ab") as log:
        try:
            child = subprocess.Popen(  # noqa: S603 - the user's own server
                argv[3:],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_prepare_child if os.name == "posix" else None,
                start_new_session=os.name == "posix",
            )
        except OSError as error:
            _say({"error": f"{error.strerror or error}"})
            return 127
    started = psutil.Process(child.pid).create_time() if psutil.pid_exists(child.pid) else None
    _say({"pid": child.pid, "create_time": started})
    watcher = threading.Thread(target=_wait_for_end_of_input, args=(child,), daemon=True)
    watcher.start()
    code = child.wait()
    _say({"exit": code})
    return code & 0xFF


def _say(message: dict[str, object]) -> None:
    try:
        os.write(1, (json.dumps(message) + "\n").encode())
    except OSError:
        return


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
