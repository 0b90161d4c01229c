"""The sampler as a run uses it: what disturbed a measurement, and an account for the record."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from harness.machine.computing import Computing
from harness.machine.contention import busiest_gpu, busy, coverage, find, summarise
from harness.machine.gpu_state import together
from harness.machine.load import GpuState, Reading
from harness.machine.pace import measure_pace
from harness.machine.sampler import Sampler
from harness.records.lines import GpuAt

SERIES_POINTS = 240
READING_S = 0.3
"""Counters of the kernel have a grain of 10 ms: a shorter reading says nothing."""
MIN_COVERAGE = 0.5
"""A sample of which less was watched cannot be called undisturbed."""


def series(readings: Sequence[Reading]) -> list[dict[str, object]]:
    """Load and conditions over the run, at most `SERIES_POINTS` points.

    `at_s` counts from the first reading; shares are of all CPUs, averaged over a point's readings;
    what is said of a GPU is said of the busiest.
    """
    if not readings:
        return []
    step = -(-len(readings) // SERIES_POINTS)
    gpus = busiest_gpu(readings)
    return [
        _point(readings[i : i + step], gpus[i : i + step], readings[0])
        for i in range(0, len(readings), step)
    ]


def _point(
    group: Sequence[Reading], gpus: Sequence[GpuState | None], first: Reading
) -> dict[str, object]:
    capacity_s = sum((r.end_ns - r.start_ns) / 1e9 * r.cpus for r in group)
    others = [r.others_cpu_s for r in group if r.others_cpu_s is not None]
    steal = [r.steal_s for r in group if r.steal_s is not None]
    last = group[-1].conditions
    gpu = next(iter(together([(gpu,) for gpu in gpus if gpu is not None])), None)
    return {
        "at_s": round((group[-1].end_ns - first.start_ns) / 1e9, 2),
        "others_share": round(sum(others) / capacity_s, 4) if others else None,
        "steal_share": round(sum(steal) / capacity_s, 4) if steal else None,
        "cpu_mhz": last.cpu_mhz,
        "gpu_mhz": gpu.core_mhz if gpu else None,
        "gpu_memory_mhz": gpu.memory_mhz if gpu else None,
        "gpu_power_w": gpu.power_w if gpu else None,
        "gpu_busy": gpu.busy if gpu else None,
        "gpu_held_by": list(gpu.held_by) if gpu and gpu.held_by is not None else None,
        "cpu_c": last.cpu_c,
        "gpu_c": last.gpu_c,
    }


PAUSE_S = 2.0
"""A machine that stood still for less is not told from clocks that are read one after the other."""


def _boot_ns() -> int:
    """A clock that goes on while the machine is suspended, when `perf_counter_ns` may not."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time_ns() if boot is None else time.clock_gettime_ns(boot)


class Pauses:
    """Whether the machine was suspended: a clock that went on against one that stood still."""

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        boot_ns: Callable[[], int] = _boot_ns,
    ) -> None:
        self._clocks = clock_ns, boot_ns
        self._looks: list[tuple[int, int]] = []

    def look(self) -> None:
        """Read both clocks."""
        at_ns, boot_ns = (clock() for clock in self._clocks)
        self._looks.append((at_ns, boot_ns - at_ns))

    def within(self, start_ns: int, end_ns: int) -> str | None:
        """How long the machine stood still in a window, as one sentence; `None`: it did not."""
        before = [ahead for at, ahead in self._looks if at <= start_ns][-1:]
        inside = [ahead for at, ahead in self._looks if start_ns < at < end_ns]
        after = [ahead for at, ahead in self._looks if at >= end_ns][:1]
        seen = [*before, *inside, *after]
        stood_s = (max(seen) - min(seen)) / 1e9 if seen else 0.0
        if stood_s < PAUSE_S:
            return None
        return f"contention: the machine was suspended, or its clock was set, for {stood_s:,.0f} s"


class MachineWatcher:
    """Watches all processes but this one and the server's tree.

    Where a server of this machine could not be told from the others, they are not judged.
    """

    rest_s = 0.01
    """Reading each token of a fast generation at once takes a CPU server's cores from it (3.6 %
    spread between runs and a sixth of the speed, 2 cores)."""

    def __init__(self, server: Computing, sampler: Sampler | None = None) -> None:
        exclude = () if server.pid is None else (server.pid,)
        self._sampler = sampler or Sampler(exclude, server_known=server.known)
        self.start: Callable[[], None] = self._sampler.start
        self.stop: Callable[[], None] = self._sampler.stop
        self._pauses = Pauses()

    def mark(self) -> None:
        """Take a reading now: called at a measurement's start and end."""
        self._pauses.look()
        self._sampler.mark()

    def settle(self) -> None:
        """Wait until readings cover everything up to now."""
        time.sleep(READING_S)
        self.mark()

    def contention(self, start_ns: int, end_ns: int) -> str | None:
        """What disturbed a window of `time.perf_counter_ns`, as one sentence."""
        self._pauses.look()
        if paused := self._pauses.within(start_ns, end_ns):
            return paused
        readings = self._sampler.readings()
        found = find(readings, start_ns, end_ns)
        if found is not None:
            return found.message()
        covered = coverage(readings, start_ns, end_ns)
        if covered < MIN_COVERAGE:
            return f"contention: not known, the machine was watched for {covered:.0%} of it"
        return None

    def gpu_at(self, start_ns: int, end_ns: int) -> GpuAt | None:
        """What the busiest GPU ran at in a window; `None` where nothing tells."""
        readings = self._sampler.readings()
        within = [
            (gpu,)
            for reading, gpu in zip(readings, busiest_gpu(readings), strict=True)
            if gpu is not None and reading.start_ns < end_ns and reading.end_ns > start_ns
        ]
        gpu = next(iter(together(within)), None)
        if gpu is None or gpu.core_mhz is None:
            return None
        return GpuAt(counter=gpu.counter, core_mhz=gpu.core_mhz, held_by=gpu.held_by)

    def pace(self, bursts: int) -> dict[str, tuple[float, ...]]:
        """The machine's own pace now; to be asked while the server is idle."""
        return measure_pace(bursts)

    def account(self) -> dict[str, object]:
        """What was and was not watched, and the run's load and conditions in numbers."""
        whole = summarise(self._sampler.readings())
        numbers = {k: v for k, v in asdict(whole).items() if k != "worst"}
        return {
            "summary": whole.message(),
            "watched": list(self._sampler.watched()),
            "not_watched": list(self._sampler.not_watched()),
            "sampler_cpu_s": self._sampler.cost_s,
            "series": series(self._sampler.readings()),
            **numbers,
        }


def busy_now(exclude: Iterable[int] = (), seconds: float = 2.0) -> str | None:
    """Why the machine is too busy to measure on, after watching it for `seconds`; `None`: quiet.

    To be called while neither the harness nor its server works.
    """
    sampler = Sampler(exclude)
    sampler.mark()
    time.sleep(seconds)
    sampler.mark()
    return busy(sampler.readings())


def wait_quiet(
    timeout_s: float,
    exclude: Iterable[int] = (),
    *,
    seconds: float = 2.0,
    say: Callable[[str], None] = lambda _: None,
) -> str | None:
    """Wait until the machine is quiet; the reason it still isn't after `timeout_s`, or `None`.

    `say` gets every reason that differs from the one before.
    """
    deadline = time.monotonic() + timeout_s
    pids = tuple(exclude)
    said: str | None = None
    while True:
        reason = busy_now(pids, seconds)
        if reason is None or time.monotonic() >= deadline:
            return reason
        if reason != said:
            say(reason)
            said = reason
