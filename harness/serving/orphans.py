"""Servers that outlived their run: noted when they start, reaped by the next run.

A note names a server's process id and start time. Only a process with both is stopped: an id that
was given to another process since is left alone. A script that starts the server and dies leaves
it to nobody: what it started still has the note's mark in its environment. Whoever reaps must hold
the machine's lock, so that no noted server can belong to a run that is still going. Notes of other
users, and what is no file, are not read.
"""

import json
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.records.files import replace_whole

GRACE_S = 5.0
MARK_VARIABLE = "LONGCTX_HARNESS_SERVER"
SAME_START_S = 1.0
"""Start times of one process read twice may differ so much (psutil adds the boot time)."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A server as its note has it: process id, start (seconds since the epoch), command, mark."""

    pid: int
    create_time: float
    command: str
    mark: str | None = None


def reap(folder: Path) -> list[str]:
    """Stop every noted server that still runs; one sentence for each, and the notes are gone."""
    said = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        noted = read_note(path)
        if noted is None:
            path.unlink(missing_ok=True)
            continue
        alive = [noted] if still_runs(noted) else marked(noted)
        for one in alive:
            stop_tree(one.pid)
            left = " and could not be stopped" if still_runs(one) else ""
            said.append(
                f"a server of an earlier run was still alive{left}: {noted.command} "
                f"(pid {one.pid})" + ("" if left else "; stopped it")
            )
        path.unlink(missing_ok=True)
    return said


def marked(noted: Noted) -> list[Noted]:
    """Processes that a noted one started and left behind."""
    found = []
    for process in psutil.process_iter() if noted.mark else ():
        try:
            if process.environ().get(MARK_VARIABLE) == noted.mark:
                found.append(Noted(process.pid, process.create_time(), noted.command))
        except (psutil.Error, OSError):  # another user's, or gone
            continue
    return found


def stop_marked(mark: str) -> None:
    """Stop what was started under a mark and was left behind."""
    for left in marked(Noted(0, 0.0, "", mark)):
        stop_tree(left.pid)


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


def new_mark() -> str:
    """What a server's environment has in `MARK_VARIABLE`."""
    return secrets.token_hex(8)


def write_note(
    path: Path, pid: int, create_time: float, argv: Sequence[str], mark: str | None = None
) -> None:
    """Note a server; its arguments are left out, they are its run's affair."""
    facts = {"pid": pid, "create_time": create_time, "command": argv[0], "mark": mark}
    replace_whole(path, json.dumps(facts))


def read_note(path: Path) -> Noted | None:
    """A note; `None` if it cannot be read or is not ours."""
    try:
        seen = path.lstat()
        if not stat.S_ISREG(seen.st_mode) or (hasattr(os, "getuid") and seen.st_uid != os.getuid()):
            return None
        facts = json.loads(path.read_text(encoding="utf-8"))
        return Noted(
            int(facts["pid"]), float(facts["create_time"]), str(facts["command"]), facts.get("mark")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def still_runs(noted: Noted) -> bool:
    """Whether this very process runs, not another that has its id now."""
    try:
        process = psutil.Process(noted.pid)
        same = abs(process.create_time() - noted.create_time) <= SAME_START_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
