"""Servers that outlived their run: noted when they start, reaped by the next run.

A note names a server's process id and start time. Only a process with both is stopped: an id that
was given to another process since is left alone. Whoever reaps must hold the machine's lock, so
that no noted server can belong to a run that is still going.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.records.files import replace_whole

GRACE_S = 5.0
SAME_START_S = 1.0
"""Start times of one process read twice may differ so much (psutil adds the boot time)."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A server as its note has it: process id, start (seconds since the epoch), command."""

    pid: int
    create_time: float
    command: str


def reap(folder: Path) -> list[str]:
    """Stop every noted server that still runs; one sentence for each, and the notes are gone."""
    said = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if (noted := read_note(path)) is not None and still_runs(noted):
            stop_tree(noted.pid)
            left = " and could not be stopped" if still_runs(noted) else ""
            said.append(
                f"a server of an earlier run was still alive{left}: {noted.command} "
                f"(pid {noted.pid})" + ("" if left else "; stopped it")
            )
        path.unlink(missing_ok=True)
    return said


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


def write_note(path: Path, pid: int, create_time: float, argv: Sequence[str]) -> None:
    """Note a server; its arguments are left out, they are its run's affair."""
    facts = {"pid": pid, "create_time": create_time, "command": argv[0]}
    replace_whole(path, json.dumps(facts))


def read_note(path: Path) -> Noted | None:
    """A note; `None` if it cannot be read."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return Noted(int(facts["pid"]), float(facts["create_time"]), str(facts["command"]))
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
