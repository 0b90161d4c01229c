"""The machine's other load as a sampler saw it: one `Reading` per interval.

"Others" are all processes but the harness and the server's tree. Times are perf_counter
nanoseconds; `None` means not readable on this machine.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """CPU seconds another process used during one reading."""

    pid: int
    name: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Rival:
    """Another inference server or benchmark.

    `since_ns` is the start of the reading in which it appeared, `None` if it was there before.
    """

    pid: int
    name: str
    since_ns: int | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Share of a GPU's time that another process kept busy (1.0 = one GPU or engine)."""

    pid: int
    name: str
    share: float


@dataclass(frozen=True, slots=True)
class GpuState:
    """What one GPU ran at, by `counter` (`NVML`, `amdgpu`, `D3DKMT`); `None` = not told.

    `busy` is the share of time it worked (1.0 = always), `held_by` what kept its clock below its
    best, in words (`idle`, `power limit`, `heat`); empty: nothing did.
    """

    name: str
    counter: str
    core_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    busy: float | None = None
    held_by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the hardware ran at. `on_battery` and the rest are `None` where not readable."""

    cpu_mhz: float | None = None
    cpu_c: float | None = None
    gpu_c: float | None = None
    power_profile: str | None = None
    on_battery: bool | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What others did from `start_ns` to `end_ns` (perf_counter); `None` = not readable here.

    `processes` names the largest of the others, once their sum is worth a look (else empty).
    `steal_s` is CPU time the hypervisor gave to other machines, summed over CPUs;
    `memory_stall_s` time in which some task waited for memory; `swapped_bytes` paged in and out;
    `available_bytes` what programs could still get at the end without swapping; `gpu_states` what
    each GPU ran at, looked at several times and put together.
    """

    start_ns: int
    end_ns: int
    cpus: int
    others_cpu_s: float | None = None
    steal_s: float | None = None
    processes: tuple[ProcessUse, ...] = ()
    rivals: tuple[Rival, ...] = ()
    gpu: tuple[GpuUse, ...] | None = None
    memory_stall_s: float | None = None
    swapped_bytes: int | None = None
    available_bytes: int | None = None
    gpu_states: tuple[GpuState, ...] = ()
    conditions: Conditions = Conditions()

    @property
    def span_s(self) -> float:
        """How long it looked, seconds."""
        return (self.end_ns - self.start_ns) / 1e9
