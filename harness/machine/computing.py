"""Which process computes our requests: behind a proxy it is not the one that listens.

Asked by working: every process's CPU time over a rest and over a request of ours. A server keeps a
core busy while it answers, also when a GPU does the arithmetic.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.machine import rivals
from harness.machine.processes import ProcessTable, open_table, title

LEAST_CPUS = 0.3
"""What the process that computes uses at least while it answers."""
RESTING_SHARE = 0.2
"""Of that, what it may use while nobody asks."""
MOST_SHARE = 0.6
"""Of all CPU time that the request called forth, what one process must have used to be the one."""


@dataclass(frozen=True, slots=True)
class Computing:
    """The process that computes, or `None` with the reason why that can't be told.

    `sentence` says what was found where it is not simply the process that listens.
    """

    pid: int | None
    sentence: str | None = None

    @property
    def known(self) -> bool:
        """Whether it can be told from the machine's other processes (one elsewhere can)."""
        return self.pid is not None or self.sentence is None


Find = Callable[[int | None, Callable[[], object]], Computing]
"""From the PID that listens and a request to the process that computes."""


def find_computing(listener: int | None, ask: Callable[[], object]) -> Computing:
    """As `computing`; a listener that is an inference server by its name needs no request."""
    table = open_table()
    times = table.read(listener) if listener is not None else None
    if times is not None and listener is not None:
        by_command = rivals.by_command(table.command(listener))
        if rivals.by_name(times.name) or (rivals.runs_a_script(times.name) and by_command):
            return Computing(listener)
    return computing(listener, ask, table=table, own=os.getpid())


def computing(
    listener: int | None,
    ask: Callable[[], object],
    *,
    rest_s: float = 0.5,
    table: ProcessTable | None = None,
    own: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Computing:
    """Find the process that answers `ask`, a request of some tenths of a second at least.

    `listener` is the process that listens, if that is known; `own` this one, left out.
    """
    table = table or open_table()
    before_s, first = clock(), _used(table)
    sleep(rest_s)
    rested_s, second = clock(), _used(table)
    ask()
    asked_s, third = clock(), _used(table)
    span_s, idle_s = asked_s - rested_s, max(rested_s - before_s, 1e-6)
    resting = {pid: (second[pid] - first.get(pid, 0.0)) / idle_s for pid in second}
    caused = {
        pid: max(0.0, (used - second.get(pid, 0.0)) - resting.get(pid, 0.0) * span_s)
        for pid, used in third.items()
        if pid != own
    }
    ours = table.descendants({listener}) if listener is not None else set()
    whole_s = sum(caused.values())
    ours_s = sum(caused.get(pid, 0.0) for pid in ours)
    if listener is not None and ours_s >= 0.5 * whole_s and ours_s >= LEAST_CPUS * span_s:
        return Computing(listener)
    best = max(caused, key=lambda pid: caused[pid], default=None)
    if best is None or caused[best] < LEAST_CPUS * span_s or caused[best] < MOST_SHARE * whole_s:
        return Computing(
            None,
            "the process that computes could not be told from outside (behind a proxy, of another "
            "user, or in a container): the server's memory is not read, and others' CPU use, which "
            "holds its own, is not judged",
        )
    if resting.get(best, 0.0) * span_s > RESTING_SHARE * caused[best]:
        return Computing(None, f"PID {best} computed while we asked, and while nobody did")
    times = table.read(best)
    name = title(times.name, table.command(best)) if times is not None else "gone"
    return Computing(best, f"what answers is computed by {name} (PID {best}), behind what listens")


def _used(table: ProcessTable) -> dict[int, float]:
    read = ((pid, table.read(pid)) for pid in table.pids())
    return {pid: times.own_s for pid, times in read if times is not None}
