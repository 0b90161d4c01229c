"""Was the machine shared while we measured: sampler readings against a measurement's window.

A sampler hands in `load.Reading`s; nothing here reads the machine. CPU use is counted in
CPUs (1.0 = one logical CPU busy all the time).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.machine.load import GpuState, Reading
from harness.machine.window import Window, overlap
from harness.quantities import share as share_text

Kind = Literal["cpu", "steal", "rival", "gpu", "memory", "swap", "power"]
UNNAMED_SHARE = 0.1  # below this part of the others, even the largest named process isn't the cause
LISTED_CAUSES = 4  # a build that starts fifty programs is one disturbance, not fifty lines
NAMED_SHARE = 0.8  # one process makes up this much of the others: it alone is named


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on load counts as contention, averaged over a measurement's window.

    Half the ±10 % noise band must not be eaten unseen, and the idle load of a desktop must pass.
    A server that computes on every core waits for its slowest thread, so what counts is the part
    of *one* core that others take. Measured on 2 CPUs (embedded server on both, reference model,
    generation; `bench/intruder.py` does it again): others at 0.05, 0.1, 0.2, 0.5, 1 CPU cost 6,
    10, 17, 28, 67 % of the speed. Hence `cpu_share` of all CPUs is allowed, 0.08 on two. A large
    machine has more room to step aside, but others never get more than `cpu_max` CPUs. Stolen
    time is like others' load, except that nobody can step aside.
    """

    cpu_share: float = 0.04
    cpu_max: float = 0.5
    steal_share: float = 0.03
    gpu_share: float = 0.05
    memory_stall_share: float = 0.05
    swap_bytes_per_s: float = 4 * 2**20
    rival_cpus: float = 0.05

    def others_cpus(self, cpus: int) -> float:
        """CPUs that others may use on a machine of `cpus` logical CPUs."""
        return min(self.cpu_share * cpus, self.cpu_max)


@dataclass(frozen=True, slots=True)
class Cause:
    """One kind of contention: how much, as a multiple of its threshold, who, and in words."""

    kind: Kind
    excess: float
    message: str
    process: str | None = None


@dataclass(frozen=True, slots=True)
class Contention:
    """What disturbed one measurement, worst cause first; never empty."""

    causes: tuple[Cause, ...]
    start_ns: int
    end_ns: int

    def message(self, during: str = "") -> str:
        """One line, for example `contention: firefox used 38 % of the CPU … during prefill`."""
        return f"contention: {_listed(self.causes)}" + (f" during {during}" if during else "")


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's readings in numbers; shares are of all CPUs, `None` where nothing was readable."""

    watched_s: float
    contended_s: float
    worst: Contention | None
    others_mean_share: float | None
    others_peak_share: float | None
    steal_mean_share: float | None
    steal_peak_share: float | None
    swapped_bytes: int | None
    available_min_bytes: int | None
    rivals: tuple[str, ...]
    cpu_mhz: tuple[float, float] | None
    gpu_mhz: tuple[float, float] | None
    cpu_peak_c: float | None
    gpu_peak_c: float | None
    power_profiles: tuple[str, ...]
    on_battery: bool | None

    def message(self) -> str:
        """One sentence for a person."""
        if self.watched_s == 0:
            return "the machine's other load was not watched"
        if self.worst is None:
            return f"no contention in {self.watched_s:.0f} s watched"
        return (
            f"{self.contended_s:.0f} of {self.watched_s:.0f} s contended, "
            f"at worst: {_listed(self.worst.causes)}"
        )


DEFAULT = Thresholds()


def find(
    readings: Sequence[Reading],
    start_ns: int,
    end_ns: int,
    thresholds: Thresholds = DEFAULT,
) -> Contention | None:
    """The contention in the window, `None` when there was none (or nothing was watched: see
    `coverage`).

    `readings` are a run's, in order and from its start: a power profile that differs from the
    first one's counts. A reading that overlaps the window in part counts by that part.
    """
    if not readings:
        return None
    first = bisect_right(readings, start_ns, key=lambda r: r.end_ns)
    last = bisect_left(readings, end_ns, key=lambda r: r.start_ns)
    return _judge(readings[first:last], readings[0], start_ns, end_ns, thresholds)


def coverage(readings: Iterable[Reading], start_ns: int, end_ns: int) -> float:
    """Share of the window that readings cover, 0.0 to 1.0; an empty window is covered."""
    if end_ns <= start_ns:
        return 1.0
    covered = sum(overlap(r.start_ns, r.end_ns, start_ns, end_ns) for r in readings)
    return min(1.0, covered / (end_ns - start_ns))


def busy(readings: Sequence[Reading], thresholds: Thresholds = DEFAULT) -> str | None:
    """Why the machine is too busy to measure on, in words; `None` when it is quiet.

    `readings` were taken while neither the harness nor its server worked. Every rival counts
    that computes; one that merely waits doesn't.
    """
    if not readings:
        return None
    found = find(readings, readings[0].start_ns, readings[-1].end_ns, thresholds)
    if found is None:
        return None
    return f"the machine is busy: {_listed(found.causes)}"


def summarise(readings: Sequence[Reading], thresholds: Thresholds = DEFAULT) -> Summary:
    """All readings of a run in one summary; `worst` is the worst single reading's contention."""
    watched = sum(r.end_ns - r.start_ns for r in readings)
    found = [(r, _judge((r,), readings[0], r.start_ns, r.end_ns, thresholds)) for r in readings]
    marked = [(r, contention) for r, contention in found if contention is not None]
    others = [(r.others_cpu_s, _capacity_s(r)) for r in readings if r.others_cpu_s is not None]
    steal = [(r.steal_s, _capacity_s(r)) for r in readings if r.steal_s is not None]
    swapped = [r.swapped_bytes for r in readings if r.swapped_bytes is not None]
    states = [r.conditions for r in readings]
    battery = [c.on_battery for c in states if c.on_battery is not None]
    return Summary(
        watched_s=watched / 1e9,
        contended_s=sum(r.end_ns - r.start_ns for r, _ in marked) / 1e9,
        worst=max((c for _, c in marked), key=lambda c: c.causes[0].excess, default=None),
        others_mean_share=_mean_share(others),
        others_peak_share=_peak_share(others),
        steal_mean_share=_mean_share(steal),
        steal_peak_share=_peak_share(steal),
        swapped_bytes=sum(swapped) if swapped else None,
        available_min_bytes=min(
            (r.available_bytes for r in readings if r.available_bytes is not None), default=None
        ),
        rivals=tuple(dict.fromkeys(rival.name for r in readings for rival in r.rivals)),
        cpu_mhz=_range([c.cpu_mhz for c in states if c.cpu_mhz is not None]),
        gpu_mhz=_range([g.core_mhz for g in busiest_gpu(readings) if g and g.core_mhz is not None]),
        cpu_peak_c=max((c.cpu_c for c in states if c.cpu_c is not None), default=None),
        gpu_peak_c=max((c.gpu_c for c in states if c.gpu_c is not None), default=None),
        power_profiles=tuple(
            dict.fromkeys(c.power_profile for c in states if c.power_profile is not None)
        ),
        on_battery=any(battery) if battery else None,
    )


def busiest_gpu(readings: Sequence[Reading]) -> tuple[GpuState | None, ...]:
    """Of each reading the state of the GPU that works most over them all: the server's."""
    work: dict[int, float] = {}
    for reading in readings:
        for index, state in enumerate(reading.gpu_states):
            work[index] = work.get(index, 0.0) + (state.busy or 0.0)
    busiest = max(work, key=lambda index: work[index], default=0)
    return tuple(r.gpu_states[busiest] if busiest < len(r.gpu_states) else None for r in readings)


def _judge(
    readings: Sequence[Reading],
    first: Reading,
    start_ns: int,
    end_ns: int,
    thresholds: Thresholds,
) -> Contention | None:
    window = Window(readings, start_ns, end_ns)
    if not window.parts:
        return None
    causes = [
        cause
        for cause in (
            _cpu(window, thresholds),
            _steal(window, thresholds),
            *_rivals(window, thresholds),
            _gpu(window, thresholds),
            _memory(window, thresholds),
            _swap(window, thresholds),
            _power(window, first),
        )
        if cause is not None
    ]
    causes.sort(key=lambda cause: -cause.excess)
    return Contention(tuple(causes), start_ns, end_ns) if causes else None


def _cpu(window: Window, thresholds: Thresholds) -> Cause | None:
    found = window.amount(lambda r: r.others_cpu_s)
    allowed = thresholds.others_cpus(window.cpus)
    if found is None or not window.beyond_grain(lambda r: r.others_cpu_s, allowed):
        return None
    cpu_s, seconds = found
    used = min(cpu_s / seconds, window.cpus)
    if used <= allowed:
        return None
    by_name = window.processes(by=lambda use: use.name)
    top = max(by_name, key=lambda name: by_name[name], default=None)
    if top is None or by_name[top] < UNNAMED_SHARE * cpu_s:
        who = f"other processes used {_of_cpus(used, window.cpus)}, most of them too short-lived"
        top, who = None, f"{who} to name"
    elif by_name[top] >= NAMED_SHARE * cpu_s:
        who = f"{top} used {_of_cpus(used, window.cpus)}"
    else:
        most = by_name[top] / seconds
        who = (
            f"other processes used {_of_cpus(used, window.cpus)}, "
            f"first of them {top} with {_of_cpus(most, window.cpus)}"
        )
    return Cause("cpu", used / allowed, who, top)


def _steal(window: Window, thresholds: Thresholds) -> Cause | None:
    found = window.amount(lambda r: r.steal_s)
    allowed = thresholds.steal_share * window.cpus
    if found is None or not window.beyond_grain(lambda r: r.steal_s, allowed):
        return None
    share = found[0] / found[1] / window.cpus
    if share <= thresholds.steal_share:
        return None
    message = f"the hypervisor took {share_text(share)} of the CPU away (steal time)"
    return Cause("steal", share / thresholds.steal_share, message)


def _rivals(window: Window, thresholds: Thresholds) -> list[Cause]:
    seen = {rival for reading, _ in window.parts for rival in reading.rivals}
    used = window.processes(by=lambda use: use.pid)
    seconds = sum(r.span_s * part for r, part in window.parts)
    causes = []
    for rival in sorted(seen, key=lambda r: r.pid):
        cpus = used.get(rival.pid, 0.0) / seconds
        since = rival.since_ns
        if since is not None and any(r.start_ns <= since < r.end_ns for r, _ in window.parts):
            text = f"{rival.name} (PID {rival.pid}) was started"
        elif cpus > thresholds.rival_cpus:
            text = f"{rival.name} (PID {rival.pid}) was computing"
        else:
            continue  # one that waits for requests disturbs nobody
        causes.append(Cause("rival", max(1.0, cpus / thresholds.rival_cpus), text, rival.name))
    return causes


def _gpu(window: Window, thresholds: Thresholds) -> Cause | None:
    used = window.gpu()
    if not used:
        return None
    share = sum(used.values())
    if share <= thresholds.gpu_share:
        return None
    (_, top), most = max(used.items(), key=lambda item: item[1])
    message = f"{top} used {share_text(most)} of the GPU"
    if most < NAMED_SHARE * share:
        message = f"other processes used {share_text(share)} of the GPU, first of them {top}"
    return Cause("gpu", share / thresholds.gpu_share, message, top)


def _memory(window: Window, thresholds: Thresholds) -> Cause | None:
    found = window.amount(lambda r: r.memory_stall_s)
    if found is None or found[0] / found[1] <= thresholds.memory_stall_share:
        return None
    share = found[0] / found[1]
    message = f"tasks waited for memory {share_text(share)} of the time (memory pressure)"
    return Cause("memory", share / thresholds.memory_stall_share, message)


def _swap(window: Window, thresholds: Thresholds) -> Cause | None:
    found = window.amount(lambda r: r.swapped_bytes)
    if found is None or found[0] / found[1] <= thresholds.swap_bytes_per_s:
        return None
    message = f"the machine swapped {found[0] / 2**20:.0f} MiB in and out"
    return Cause("swap", found[0] / found[1] / thresholds.swap_bytes_per_s, message)


def _power(window: Window, first: Reading) -> Cause | None:
    was = first.conditions
    for reading, _ in window.parts:
        now = reading.conditions
        if now.on_battery and was.on_battery is False:
            return Cause("power", 1.0, "the machine went on battery")
        known = None not in (was.power_profile, now.power_profile)
        if known and was.power_profile != now.power_profile:
            text = f"the power profile changed from {was.power_profile} to {now.power_profile}"
            return Cause("power", 1.0, text)
    return None


def _listed(causes: Sequence[Cause]) -> str:
    """The worst few in words, and how many more there were."""
    said = [cause.message for cause in causes[:LISTED_CAUSES]]
    more = len(causes) - len(said)
    return "; ".join([*said, *([f"and {more} more"] if more else [])])


def _of_cpus(cpus: float, of: int) -> str:
    return f"{share_text(cpus / of)} of the CPU ({cpus:.2f} of {of} cores)"


def _capacity_s(reading: Reading) -> float:
    return reading.span_s * reading.cpus


def _mean_share(pairs: Sequence[tuple[float, float]]) -> float | None:
    capacity = sum(c for _, c in pairs)
    return sum(amount for amount, _ in pairs) / capacity if capacity > 0 else None


def _peak_share(pairs: Sequence[tuple[float, float]]) -> float | None:
    return max((amount / c for amount, c in pairs if c > 0), default=None)


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
