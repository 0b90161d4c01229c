"""A child of a night: a command whose whole tree ends with the night, and what it says."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.report.publish import STEP_SUMMARY

_LOOK_EVERY_S = 0.2
_END_WITHIN_S = 60.0

Say = Callable[[str], None]


@contextmanager
def _supervised(
    command: Sequence[str], log: Path, root: Path, environ: Mapping[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    """A child whose whole tree is stopped when this block, or this process, ends."""
    supervisor = [sys.executable, "-m", "harness.serving.supervise", "--log", str(log), "--"]
    own = {k: v for k, v in environ.items() if k != STEP_SUMMARY}
    child = subprocess.Popen(  # noqa: S603 - our own command
        [*supervisor, *command],
        cwd=root,
        env={**own, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.stdin is not None and not child.stdin.closed:
            child.stdin.close()
        child.wait(timeout=_END_WITHIN_S)
        if child.stdout is not None:
            child.stdout.close()


@dataclass(frozen=True, slots=True)
class Sitting:
    """What the children of one sitting share: folder, environment, listener, and its end."""

    root: Path
    environ: Mapping[str, str]
    say: Say
    until_s: float | None

    @property
    def over(self) -> bool:
        """Whether its time is up."""
        return self.until_s is not None and time.monotonic() >= self.until_s

    def ended(self, command: Sequence[str], log: Path) -> int | None:
        """The exit code of a command that was followed to its end; `None` if it was stopped."""
        with _supervised(command, log, self.root, self.environ) as child:
            _follow(child, log, self)
            return _exit_code(child)


def _follow(child: "subprocess.Popen[bytes]", log: Path, sitting: Sitting) -> None:
    """Say what the child writes until it ends or its time is over."""
    at = log.stat().st_size if log.is_file() else 0
    running = True
    while running:
        running = child.poll() is None and not sitting.over
        at = _say_from(log, at, sitting.say)
        if running:
            time.sleep(_LOOK_EVERY_S)
    if child.poll() is None and child.stdin is not None:
        sitting.say("the night's time is over: stopping; what was measured is kept")
        child.stdin.close()
        child.wait(timeout=_END_WITHIN_S)
        _say_from(log, at, sitting.say)


def _say_from(log: Path, at: int, say: Say) -> int:
    if not log.is_file():
        return at
    with log.open("rb") as file:
        file.seek(at)
        whole, newline, _ = file.read().rpartition(b"\n")
    if not newline:
        return at
    for line in whole.decode("utf-8", "replace").splitlines():
        say(f"  {line}")
    return at + len(whole) + 1


def _exit_code(child: "subprocess.Popen[bytes]") -> int | None:
    """The child's code; `None` if it was stopped, or the supervisor told nothing."""
    assert child.stdout is not None
    for line in reversed(child.stdout.read().splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("exit"), int):
            return None if told.get("stopped") else int(told["exit"])
    return None
