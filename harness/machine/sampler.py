"""The sampler: a thread that watches the machine's other load while the harness measures."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from harness.machine import rivals
from harness.machine.conditions import ConditionsProbe
from harness.machine.contention import DEFAULT, Thresholds
from harness.machine.gpu_state import GpuStates, together
from harness.machine.gpu_use import GpuWatch
from harness.machine.load import Conditions, GpuState, GpuUse, ProcessUse, Reading, Rival
from harness.machine.pressure import Pressure, PressureProbe
from harness.machine.processes import (
    CpuTotals,
    ProcessTable,
    ProcessTimes,
    Tree,
    open_table,
    title,
)

Number = TypeVar("Number", int, float)

INTERVAL_S = 1.0
LOOK_EVERY_S = 0.2  # at the GPUs' clocks, which move faster than anything else; cheap to read
CONDITIONS_EVERY_S = 10.0
MIN_READING_S = 0.25  # shorter ones drown in the 10 ms grain of the kernels' CPU counters
NAMED = 5  # processes named in a reading
LOUD = 0.5  # part of the threshold from where on the others are looked up by name
EXPLAINED = 0.5  # part of the others' CPU time that the named processes should make up
FUTILE_S = 5.0
FAILURES = 5  # in a row, after which the sampler gives up


@dataclass(slots=True)
class Host:
    """Everything the sampler reads; a test puts its own parts in place."""

    table: ProcessTable = field(default_factory=open_table)
    gpu: GpuWatch = field(default_factory=GpuWatch)
    conditions: ConditionsProbe = field(default_factory=ConditionsProbe)
    pressure: PressureProbe = field(default_factory=PressureProbe)
    clock_ns: Callable[[], int] = time.perf_counter_ns
    cpus: int = field(default_factory=lambda: os.cpu_count() or 1)
    gpu_states: GpuStates = field(default_factory=GpuStates)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Counters at one moment."""

    at_ns: int
    totals: CpuTotals
    ours_s: float
    pressure: Pressure


class Sampler:
    """Watches the load of all processes but this one, `exclude` and all their descendants.

    `start` and `stop` may be called in any order and number; the thread is a daemon and neither
    it nor any method raises because something can't be read. `mark()` takes a reading on the
    spot: called at a measurement's start and end, it makes readings and measurement coincide.
    """

    def __init__(
        self,
        exclude: Iterable[int] = (),
        interval_s: float = INTERVAL_S,
        *,
        host: Host | None = None,
        thresholds: Thresholds = DEFAULT,
        server_known: bool = True,
    ) -> None:
        self._server_known = server_known
        self._host = host or Host()
        self.interval_s = interval_s
        self._thresholds = thresholds
        self._tree = Tree(self._host.table)
        self._tree.add({os.getpid(), *exclude})
        self._readings: list[Reading] = []
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._failures = 0
        self._cost_s = 0.0
        self._last: _Snapshot | None = None
        self._walked: dict[int, float] = {}
        self._walked_ns: int | None = None
        self._futile_ns: int | None = None
        self._active: set[int] = set()
        self._rivals: dict[int, Rival] = {}
        self._titles: dict[tuple[int, str], str] = {}
        self._young: tuple[int, ...] = ()
        self._conditions = Conditions()
        self._conditions_ns: int | None = None
        self._gpu: tuple[GpuUse, ...] | None = None
        self._gpu_ns: int | None = None
        self._looks: list[tuple[GpuState, ...]] = []
        self._gpus_tell = True

    def start(self) -> None:
        """Begin to watch."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._wake.clear()
        self._thread = threading.Thread(target=self._run, name="machine-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last reading and end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._wake.set()
        thread.join(timeout=5)
        self.mark()

    def exclude(self, pid: int) -> None:
        """Count `pid` and all below it as ours from now on."""
        with self._lock:
            self._tree.add({pid})

    def look(self) -> None:
        """Look at the GPUs' clocks; the next reading puts its looks together."""
        with self._lock:
            before = time.thread_time()
            if self._gpus_tell:
                states = self._host.gpu_states.read()
                self._gpus_tell = bool(states)
                self._looks += [states] if states else []
            self._cost_s += time.thread_time() - before

    def mark(self) -> None:
        """Take a reading now, unless the last one is less than 0.25 s old."""
        self.look()
        with self._lock:
            before = time.thread_time()
            last = self._last
            if last is None or self._host.clock_ns() - last.at_ns >= MIN_READING_S * 1e9:
                self._guarded_tick()
            self._cost_s += time.thread_time() - before

    def readings(self) -> tuple[Reading, ...]:
        """All readings so far, in order; `contention` judges them."""
        with self._lock:
            return tuple(self._readings)

    @property
    def cost_s(self) -> float:
        """CPU seconds the sampler itself has used."""
        return self._cost_s

    def watched(self) -> tuple[str, ...]:
        """What was watched, for the record."""
        state = self._conditions
        said = ["CPU time of all processes but the harness and the server", "other servers by name"]
        if self._last is not None and self._last.totals.steal_s is not None:
            said.append("steal time")
        if self._last is not None and self._last.pressure.stall_s is not None:
            said.append("memory stalls (PSI)")
        if self._last is not None and self._last.pressure.swapped_bytes is not None:
            said.append("swap traffic")
        said += self._host.gpu.watched()
        said += [name for name, value in _condition_values(state) if value is not None]
        said += [f"GPU clocks, power and what holds them back ({c})" for c in self._gpu_counters()]
        return tuple(said)

    def not_watched(self) -> tuple[str, ...]:
        """What could not be watched, and so may have disturbed unseen."""
        said = ["memory bandwidth used by others: no counter is read"]
        if not self._server_known:
            said.append("CPU and GPU use of others: the server could not be told from them")
        if not self._host.table.sees_everyone:
            said.append("names of other users' processes: not permitted without root")
        last = self._last
        if last is None or last.totals.steal_s is None:
            said.append("steal time: not told by this system")
        if last is None or last.pressure.stall_s is None:
            said.append("memory stalls: this kernel has no pressure information")
        if last is None or last.pressure.swapped_bytes is None:
            said.append("swap traffic: not told by this system")
        said += self._host.gpu.not_watched()
        if not self._gpu_counters():
            said.append("GPU clocks: no GPU with a readable counter here")
        said += [
            f"{name}: not readable"
            for name, value in _condition_values(self._conditions)
            if value is None
        ]
        if self._failure is not None:
            gave_up = self._failures >= FAILURES
            when = "anything since the sampler gave up" if gave_up else "some intervals"
            said.append(f"{when}: {self._failure}")
        return tuple(said)

    def _run(self) -> None:
        while True:
            self.mark()
            looks = round(self.interval_s / LOOK_EVERY_S) if self._gpus_tell else 1
            for _ in range(looks):
                if self._wake.wait(self.interval_s / looks) or self._failures >= FAILURES:
                    return
                self.look()

    def _guarded_tick(self) -> None:
        try:
            self._tick()
            self._failures = 0
        except Exception as error:  # a run of hours must not end because a counter looked odd
            self._failures += 1
            self._failure = f"{type(error).__name__}: {error}"
            self._last = None

    def _tick(self) -> None:
        host = self._host
        alive = host.table.pids()
        now = _Snapshot(
            host.clock_ns(), host.table.totals(), self._tree.cpu_s(alive), host.pressure.read()
        )
        self._read_conditions(now.at_ns)
        self._read_gpu(alive, now.at_ns)
        last, self._last = self._last, now
        if last is None:
            self._walk(alive, now.at_ns, None)
            return
        self._look_for_rivals(last.at_ns)
        span_s = (now.at_ns - last.at_ns) / 1e9
        others_s = _others_s(last, now) if self._server_known else None
        allowed_s = self._thresholds.others_cpus(host.cpus) * span_s
        uses: tuple[ProcessUse, ...] = ()
        if others_s is not None and others_s > LOUD * allowed_s:
            uses = self._named(self._look(alive, now.at_ns, last.at_ns, others_s), others_s)
        elif _due(self._walked_ns, now.at_ns, host.table.walk_s):
            self._walk(alive, now.at_ns, last.at_ns)
        self._rivals = {pid: rival for pid, rival in self._rivals.items() if pid in alive}
        self._readings.append(
            Reading(
                start_ns=last.at_ns,
                end_ns=now.at_ns,
                cpus=host.cpus,
                others_cpu_s=others_s,
                steal_s=_grown(last.totals.steal_s, now.totals.steal_s),
                processes=uses,
                rivals=tuple(self._rivals.values()),
                gpu=self._gpu,
                memory_stall_s=_grown(last.pressure.stall_s, now.pressure.stall_s),
                swapped_bytes=_grown(last.pressure.swapped_bytes, now.pressure.swapped_bytes),
                available_bytes=now.pressure.available_bytes,
                gpu_states=together(self._looks),
                conditions=self._conditions,
            )
        )
        self._looks.clear()

    def _look(
        self, alive: set[int], now_ns: int, since_ns: int, others_s: float
    ) -> list[ProcessUse]:
        """Who the others are: first among the usual suspects and newcomers, then among all.

        Reading every process costs too much to be done at every reading; a search that explained
        little (the load was of processes gone since) isn't repeated for a while.
        """
        suspects = (self._active | (alive - self._walked.keys())) & alive
        found = self._used(suspects - self._tree.members(), since_ns)
        explained = sum(use.cpu_s for use in found) >= EXPLAINED * others_s
        if explained or not _due(self._futile_ns, now_ns, FUTILE_S):
            return found
        everyone = {use.pid: use for use in self._walk(alive, now_ns, since_ns)}
        for use in found:  # read a moment ago: the walk saw only what came after
            more = everyone.get(use.pid)
            everyone[use.pid] = ProcessUse(
                use.pid, use.name, use.cpu_s + (more.cpu_s if more else 0.0)
            )
        if sum(use.cpu_s for use in everyone.values()) < EXPLAINED * others_s:
            self._futile_ns = now_ns
        return list(everyone.values())

    def _walk(self, alive: set[int], now_ns: int, since_ns: int | None) -> list[ProcessUse]:
        """Read every process; what each used since it was last read."""
        self._walked = {pid: used for pid, used in self._walked.items() if pid in alive}
        found = self._used(alive - self._tree.members(), since_ns)
        self._walked_ns = now_ns
        self._active = {use.pid for use in found}
        return found

    def _used(self, pids: set[int], since_ns: int | None) -> list[ProcessUse]:
        """What each of the processes used since it was last read."""
        found = []
        for pid in pids:
            times = self._host.table.read(pid)
            if times is None:
                continue
            used = times.own_s - self._walked.get(pid, 0.0)
            self._walked[pid] = times.own_s
            if used > 0:
                found.append(ProcessUse(pid, times.name, used))
            self._check_rival(times, since_ns, named_only=since_ns is not None)
        return found

    def _named(self, found: list[ProcessUse], others_s: float) -> tuple[ProcessUse, ...]:
        """The largest and every rival; scaled down when they were last read before this reading.

        Processes of one name stand as one, under the PID of the largest: fourteen `sh` loops are
        one cause. What an interpreter runs and rivals are told apart.
        """
        total = sum(use.cpu_s for use in found)
        scale = min(1.0, others_s / total) if total > 0 else 1.0
        grouped: dict[tuple[str, int | None], ProcessUse] = {}
        for use in sorted(found, key=lambda use: -use.cpu_s):
            alone = rivals.runs_a_script(use.name) or use.pid in self._rivals
            first = grouped.get((use.name, use.pid if alone else None), replace(use, cpu_s=0.0))
            grouped[use.name, use.pid if alone else None] = replace(
                first, cpu_s=first.cpu_s + use.cpu_s
            )
        ranked = sorted(grouped.values(), key=lambda use: -use.cpu_s)
        kept = ranked[:NAMED] + [use for use in ranked[NAMED:] if use.pid in self._rivals]
        return tuple(
            ProcessUse(use.pid, self._title(use.pid, use.name), use.cpu_s * scale) for use in kept
        )

    def _title(self, pid: int, name: str) -> str:
        if not rivals.runs_a_script(name):
            return name
        if (pid, name) not in self._titles:
            self._titles[pid, name] = title(name, self._host.table.command(pid))
        return self._titles[pid, name]

    def _look_for_rivals(self, since_ns: int) -> None:
        # One caught between fork and exec still bears its parent's name: look twice.
        again = [self._host.table.read(pid) for pid in self._young]
        for times in (*self._tree.newcomers, *(t for t in again if t is not None)):
            self._check_rival(times, since_ns, named_only=False)
        self._young = tuple(times.pid for times in self._tree.newcomers)

    def _check_rival(self, times: ProcessTimes, since_ns: int | None, *, named_only: bool) -> None:
        if times.pid in self._rivals:
            return
        name = rivals.by_name(times.name)
        if name is None and not named_only and rivals.runs_a_script(times.name):
            name = rivals.by_command(self._host.table.command(times.pid))
        if name is not None:
            self._rivals[times.pid] = Rival(times.pid, name, since_ns)

    def _read_conditions(self, now_ns: int) -> None:
        if _due(self._conditions_ns, now_ns, CONDITIONS_EVERY_S):
            self._conditions, self._conditions_ns = self._host.conditions.read(), now_ns

    def _read_gpu(self, alive: set[int], now_ns: int) -> None:
        if self._server_known and _due(self._gpu_ns, now_ns, self._host.gpu.every_s):
            self._gpu = self._host.gpu.read(alive, self._tree.members(), self._name)
            self._gpu_ns = now_ns

    def _gpu_counters(self) -> tuple[str, ...]:
        states = self._readings[-1].gpu_states if self._readings else ()
        return tuple(dict.fromkeys(state.counter for state in states))

    def _name(self, pid: int) -> str:
        times = self._host.table.read(pid)
        return self._title(pid, times.name) if times is not None else f"PID {pid}"


def _others_s(last: _Snapshot, now: _Snapshot) -> float | None:
    """CPU seconds of others; `None` when our own fell (an ended child that nobody waited for)."""
    ours = now.ours_s - last.ours_s
    if ours < -0.02:
        return None
    return max(0.0, now.totals.busy_s - last.totals.busy_s - ours)


def _due(last_ns: int | None, now_ns: int, every_s: float) -> bool:
    return last_ns is None or now_ns - last_ns >= every_s * 1e9


def _grown(before: Number | None, after: Number | None) -> Number | None:
    return None if before is None or after is None else max(after, before) - before


def _condition_values(state: Conditions) -> tuple[tuple[str, object], ...]:
    return (
        ("CPU clock", state.cpu_mhz),
        ("CPU temperature", state.cpu_c),
        ("GPU temperature", state.gpu_c),
        ("power profile", state.power_profile),
        ("battery", state.on_battery),
    )
