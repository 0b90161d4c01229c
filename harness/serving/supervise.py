"""A supervisor that lets no server outlive its run: `python -m harness.serving.supervise`.

It starts the command after `--`, writes one JSON line with the child's pid, and then waits for the
child to die or for its own standard input to end. The run holds the other end of that pipe, so it
ends however the run ends (SIGKILL included); then the whole process tree is stopped. The system
also kills the child should the supervisor itself be killed: on Linux by a signal, on Windows by a
Job Object. Elsewhere `--note FILE` says which process the next run has to stop.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from harness.serving.orphans import MARK_VARIABLE, new_mark, stop_marked, stop_tree, write_note
from harness.serving.windows_job import calls, tie_to_me

_PASSED_OVER = ("SIGINT", "SIGHUP", "SIGTERM")
"""Signals that do not end the supervisor: it ends with its run. A server takes them as usual."""


def _prepare_child() -> None:
    """Signals as usual; on Linux, die when the supervisor does (prctl PR_SET_PDEATHSIG)."""
    for name in _PASSED_OVER:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _wait_for_end_of_input(child: "subprocess.Popen[bytes]", stopping: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stopping.set()
    stop_tree(child.pid)


def main(argv: list[str]) -> int:
    """`--log FILE [--note FILE] [--mark MARK] -- COMMAND…`; exits with the child's code."""
    at = argv.index("--") if "--" in argv else len(argv)
    options = dict(zip(argv[:at:2], argv[1:at:2], strict=False))
    command = argv[at + 1 :]
    if "--log" not in options or not command:
        print(
            "usage: supervise --log FILE [--note FILE] [--mark MARK] -- COMMAND [ARG …]",
            file=sys.stderr,
        )
        return 2
    for name in _PASSED_OVER:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    mark = options.get("--mark") or new_mark()
    try:
        with Path(options["--log"]).open("ab") as log:
            child = subprocess.Popen(  # noqa: S603 - the user's own server
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_prepare_child if os.name == "posix" else None,
                start_new_session=os.name == "posix",
                # Ctrl+C is for the run; a server in the console's group would take it, too.
                env={**os.environ, MARK_VARIABLE: mark},
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
    except OSError as error:
        where = f": {error.filename}" if error.filename == options["--log"] else ""
        _say({"error": f"{error.strerror or error}{where}"})
        return 127
    started = psutil.Process(child.pid).create_time() if psutil.pid_exists(child.pid) else None
    job = tie_to_me(child.pid, calls())
    note = Path(options["--note"]) if "--note" in options and started is not None else None
    if note is not None and started is not None:
        try:
            write_note(note, child.pid, started, command, mark)
        except OSError:  # a full disk
            note = None
    _say({"pid": child.pid, "create_time": started})
    stopping = threading.Event()
    watcher = threading.Thread(target=_wait_for_end_of_input, args=(child, stopping), daemon=True)
    watcher.start()
    code = child.wait()
    stop_marked(mark)  # a script died, its server not
    if note is not None:
        note.unlink(missing_ok=True)
    del job
    # Whoever stops the tree may be first to hear of its end, and then the code is lost.
    _say({"exit": code, "stopped": stopping.is_set()})
    return code & 0xFF


def _say(message: dict[str, object]) -> None:
    try:
        os.write(1, (json.dumps(message) + "\n").encode())
    except OSError:
        return


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
