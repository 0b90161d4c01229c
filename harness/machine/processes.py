"""The processes of the machine and the CPU time they and the whole machine used.

Linux reads `/proc` itself, a few microseconds a process; elsewhere psutil does the reading.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PureWindowsPath
from typing import Protocol

import psutil


@dataclass(frozen=True, slots=True)
class CpuTotals:
    """CPU seconds since boot over all CPUs: at work (interrupts and stolen time apart), stolen."""

    busy_s: float
    steal_s: float | None


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """CPU seconds of a process; `reaped_s` is the part of its ended and waited-for children."""

    pid: int
    parent: int | None
    name: str
    own_s: float
    reaped_s: float


class ProcessTable(Protocol):
    """How the sampler reads processes. No method raises because a process is gone."""

    sees_everyone: bool
    """False where CPU times of other users' processes can't be read."""
    sums_children: bool
    """True where a process's `reaped_s` takes over the time of children it waited for."""
    walk_s: float
    """How long to wait between two readings of every process, so that they stay cheap."""

    def totals(self) -> CpuTotals:
        """CPU time of the whole machine."""

    def pids(self) -> set[int]:
        """Every process alive."""

    def read(self, pid: int) -> ProcessTimes | None:
        """One process, `None` when it is gone or not readable."""

    def descendants(self, pids: set[int]) -> set[int]:
        """The processes themselves and all below them that are alive."""

    def command(self, pid: int) -> tuple[str, ...]:
        """A process's command line, empty when not readable."""


@dataclass(slots=True)
class LinuxProc:
    """`/proc` (or a folder that looks like it)."""

    root: str = "/proc"
    sees_everyone: bool = True
    sums_children: bool = True
    walk_s: float = 10.0
    _tick_s: float = field(init=False, default=0.01)

    def __post_init__(self) -> None:
        if sys.platform == "linux":
            self._tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def totals(self) -> CpuTotals:
        """From the first line of `stat`; `guest` is part of `user` and not counted twice."""
        first = self._bytes("stat").split(b"\n", 1)[0].split()
        user, nice, system = (int(field) for field in first[1:4])
        steal = int(first[8]) * self._tick_s if len(first) > 8 else None
        return CpuTotals((user + nice + system) * self._tick_s, steal)

    def pids(self) -> set[int]:
        """See `ProcessTable`."""
        # A Path object for every process would cost more than reading the process.
        return {int(name) for name in os.listdir(self.root) if name.isdigit()}  # noqa: PTH208

    def read(self, pid: int) -> ProcessTimes | None:
        """From `PID/stat`; the name may hold spaces and brackets and has at most 15 characters."""
        try:
            text = self._bytes(f"{pid}/stat")
            end = text.rindex(b")")
            fields = text[end + 2 :].split()
            own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        except (OSError, ValueError, IndexError):
            return None
        name = text[text.index(b"(") + 1 : end].decode(errors="replace")
        return ProcessTimes(pid, int(fields[1]), name, own * self._tick_s, reaped * self._tick_s)

    def descendants(self, pids: set[int]) -> set[int]:
        """See `ProcessTable`."""
        parents = {t.pid: t.parent for t in map(self.read, self.pids()) if t is not None}
        return below(parents, pids)

    def command(self, pid: int) -> tuple[str, ...]:
        """See `ProcessTable`."""
        try:
            text = self._bytes(f"{pid}/cmdline")
        except OSError:
            return ()
        return tuple(part.decode(errors="replace") for part in text.split(b"\0") if part)

    def _bytes(self, name: str) -> bytes:
        # Unbuffered calls: a third of the cost of open(), and this runs for every process.
        descriptor = os.open(f"{self.root}/{name}", os.O_RDONLY)
        try:
            return os.read(descriptor, 65536)
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class PsutilTable:
    """psutil, for Windows and macOS. macOS shows other users' CPU times to root only."""

    sees_everyone: bool = sys.platform != "darwin"
    sums_children: bool = False
    walk_s: float = 30.0
    # A parent's PID and a name cost a snapshot of all processes each: asked once.
    _known: dict[int, tuple[psutil.Process, int | None, str]] = field(default_factory=dict)

    def totals(self) -> CpuTotals:
        """See `ProcessTable`; Windows counts interrupts within `system`."""
        times = psutil.cpu_times()
        interrupts = getattr(times, "interrupt", 0.0) + getattr(times, "dpc", 0.0)
        busy = times.user + times.system + getattr(times, "nice", 0.0) - interrupts
        return CpuTotals(busy, getattr(times, "steal", None))

    def pids(self) -> set[int]:
        """See `ProcessTable`."""
        alive = set(psutil.pids())
        for gone in self._known.keys() - alive:
            del self._known[gone]
        return alive

    def read(self, pid: int) -> ProcessTimes | None:
        """See `ProcessTable`."""
        try:
            if pid not in self._known:
                process = psutil.Process(pid)
                self._known[pid] = (process, process.ppid(), process.name())
            process, parent, name = self._known[pid]
            times = process.cpu_times()
        except (psutil.Error, OSError):
            return None
        return ProcessTimes(pid, parent, name, times.user + times.system, 0.0)

    def descendants(self, pids: set[int]) -> set[int]:
        """See `ProcessTable`."""
        found = set()
        for pid in pids:
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                found |= {pid, *(child.pid for child in process.children(recursive=True))}
        return found

    def command(self, pid: int) -> tuple[str, ...]:
        """See `ProcessTable`."""
        with contextlib.suppress(psutil.Error, OSError):
            return tuple(psutil.Process(pid).cmdline())
        return ()


def title(name: str, command: Sequence[str]) -> str:
    """A name that tells interpreters apart: `python train.py`, `python -m pytest`."""
    words = list(command[1:3])
    if not words or words[0] == "-c":
        return name
    if words[0] == "-m" and len(words) == 2:
        return f"{name} -m {words[1]}"
    script = next((word for word in words if not word.startswith("-")), None)
    return f"{name} {PureWindowsPath(script).name}" if script else name


def below(parents: Mapping[int, int | None], pids: set[int]) -> set[int]:
    """Those of `pids` that are keys of `parents` (child to parent), and all below them."""
    found = pids & parents.keys()
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return found


def open_table() -> ProcessTable:
    """The cheapest table this system has."""
    return LinuxProc() if sys.platform == "linux" else PsutilTable()


@dataclass(slots=True)
class Tree:
    """CPU time of the harness's and the server's processes, children that come later included."""

    table: ProcessTable
    newcomers: tuple[ProcessTimes, ...] = ()
    """Processes outside the tree that began between the last two readings."""
    _roots: set[int] = field(default_factory=set)
    _members: dict[int, ProcessTimes] = field(default_factory=dict)
    _offset_s: float = 0.0
    _seen: set[int] = field(default_factory=set)
    _pending: set[int] = field(default_factory=set)

    def add(self, pids: Iterable[int]) -> None:
        """Count these processes and all below them, from the next reading on."""
        self._pending |= set(pids)

    def members(self) -> frozenset[int]:
        """The tree's processes as of the last reading."""
        return frozenset(self._members)

    def cpu_s(self, alive: set[int]) -> float:
        """CPU seconds of the tree; only the difference of two readings means anything."""
        if self._pending:
            self._join(self.table.descendants(self._pending))
            self._roots |= self._pending
            self._pending = set()
        self._grow(alive)
        while self._read():
            pass  # a member ended meanwhile: its parent, read before, may have taken its time over
        return sum(t.own_s + t.reaped_s for t in self._members.values()) + self._offset_s

    def _join(self, pids: set[int]) -> None:
        """Take in processes that ran before: what they used so far isn't of the last interval."""
        for pid in pids - self._members.keys():
            times = self.table.read(pid)
            if times is not None:
                self._members[pid] = times
                self._offset_s -= times.own_s + times.reaped_s

    def _grow(self, alive: set[int]) -> None:
        """Take in processes begun since the last reading whose parent is a member."""
        others = []
        for pid in sorted(alive - self._seen - self._members.keys()) if self._seen else ():
            times = self.table.read(pid)  # ascending: a parent is nearly always the smaller PID
            if times is None:
                continue
            if pid in self._roots or times.parent in self._members:
                self._members[pid] = times
            else:
                others.append(times)
        self.newcomers = tuple(others)
        self._seen = set(alive)

    def _read(self) -> bool:
        """Read every member anew; True when one had ended and its parent's time may be stale."""
        ended = False
        for pid, before in tuple(self._members.items()):
            now = self.table.read(pid)
            if now is not None:
                self._members[pid] = now
                continue
            del self._members[pid]
            if self.table.sums_children and before.parent in self._members:
                ended = True
            else:
                self._offset_s += before.own_s + before.reaped_s
        return ended
