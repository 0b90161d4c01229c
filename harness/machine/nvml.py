"""NVIDIA's management library behind one seam: memory, use, clocks, power and temperature.

`nvidia-ml-py` is an optional dependency (the extra `nvidia`). Any failure of the library is
answered with "nothing readable", never with an exception.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from harness.machine.load import GpuState

INSTALL = "install the extra 'nvidia' (nvidia-ml-py) to read NVIDIA GPUs"
REASONS = (
    (0x0001, "idle"),
    (0x0002, "clocks set by hand"),
    (0x0004, "power limit"),
    (0x0008, "hardware slowdown"),
    (0x0010, "sync boost"),
    (0x0060, "heat"),
    (0x0080, "power brake"),
    (0x0100, "display clocks"),
)
"""What holds a clock back, in words, by the bits of `nvmlClocksEventReason…`."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU's own memory, bytes, as `nvidia-smi` shows it."""

    name: str
    total_bytes: int
    used_bytes: int
    free_bytes: int


@dataclass(slots=True)
class Nvml:
    """An open library; `module` is `pynvml` or what stands in for it in a test."""

    module: Any
    _seen_us: dict[int, int] = field(default_factory=dict)

    def process_memory(self) -> dict[int, int]:
        """GPU memory by PID over all GPUs, bytes; processes whose share isn't told are left out."""
        used: dict[int, int] = {}
        for handle in self._handles():
            # A process that computes and draws is in both lists with the same number.
            here: dict[int, int] = {}
            for name in ("Compute", "Graphics"):
                listing = getattr(self.module, f"nvmlDeviceGet{name}RunningProcesses")
                for process in self._ask(listing, handle) or ():
                    if process.usedGpuMemory is not None:
                        here[process.pid] = int(process.usedGpuMemory)
            for pid, size in here.items():
                used[pid] = used.get(pid, 0) + size
        return used

    def memories(self) -> tuple[GpuMemory, ...]:
        """Memory of each GPU.

        The second version of the call leaves out what the driver keeps for itself, as `nvidia-smi`
        does; an old library has the first one only.
        """
        found = []
        version = getattr(self.module, "nvmlMemory_v2", None)
        for handle in self._handles():
            ask = self.module.nvmlDeviceGetMemoryInfo
            info = self._ask(ask, handle, version) if version is not None else None
            info = info or self._ask(ask, handle)
            if info is not None:
                found.append(
                    GpuMemory(self._name(handle), int(info.total), int(info.used), int(info.free))
                )
        return tuple(found)

    def used_bytes(self) -> int | None:
        """Memory in use on all GPUs by anybody, bytes."""
        sizes = [memory.used_bytes for memory in self.memories()]
        return sum(sizes) if sizes else None

    def states(self) -> tuple[GpuState, ...]:
        """What each GPU runs at now."""
        ask = self.module
        found = []
        for handle in self._handles():
            power_mw = self._ask(ask.nvmlDeviceGetPowerUsage, handle)
            rates = self._ask(ask.nvmlDeviceGetUtilizationRates, handle)
            found.append(
                GpuState(
                    name=self._name(handle),
                    counter="NVML",
                    core_mhz=self._ask(ask.nvmlDeviceGetClockInfo, handle, ask.NVML_CLOCK_SM),
                    memory_mhz=self._ask(ask.nvmlDeviceGetClockInfo, handle, ask.NVML_CLOCK_MEM),
                    power_w=power_mw / 1000 if power_mw is not None else None,
                    busy=rates.gpu / 100 if rates is not None else None,
                    held_by=self._held_by(handle),
                )
            )
        return tuple(found)

    def process_use(self) -> dict[int, float] | None:
        """Mean share of a GPU's compute units busy since the last call, by PID (1.0 = one GPU).

        `None` when the driver doesn't tell (some Windows driver models, virtual GPUs).
        """
        use: dict[int, float] = {}
        readable = False
        for index, handle in enumerate(self._handles()):
            since = self._seen_us.get(index, 0)
            try:
                samples = self.module.nvmlDeviceGetProcessUtilization(handle, since)
            except self.module.NVMLError_NotFound:  # its word for "no new sample"
                readable = True
                continue
            except self.module.NVMLError:
                continue
            readable = True
            by_pid: dict[int, list[int]] = {}
            for sample in samples:
                by_pid.setdefault(sample.pid, []).append(sample.smUtil)
                self._seen_us[index] = max(self._seen_us.get(index, 0), sample.timeStamp)
            for pid, shares in by_pid.items():
                use[pid] = use.get(pid, 0.0) + sum(shares) / len(shares) / 100
        return use if readable else None

    def temperature_c(self) -> float | None:
        """The hottest GPU's temperature, °C."""
        sensor = self.module.NVML_TEMPERATURE_GPU
        read = [
            self._ask(self.module.nvmlDeviceGetTemperature, handle, sensor)
            for handle in self._handles()
        ]
        return max((float(value) for value in read if value is not None), default=None)

    def _held_by(self, handle: Any) -> tuple[str, ...] | None:
        for kind in ("Event", "Throttle"):  # the newer and the older name of one call
            function = getattr(self.module, f"nvmlDeviceGetCurrentClocks{kind}Reasons", None)
            bits = self._ask(function, handle) if function is not None else None
            if bits is not None:
                return tuple(name for mask, name in REASONS if bits & mask)
        return None

    def _name(self, handle: Any) -> str:
        name = self._ask(self.module.nvmlDeviceGetName, handle) or "NVIDIA GPU"
        return name.decode() if isinstance(name, bytes) else str(name)

    def _handles(self) -> Iterator[Any]:
        for index in range(self._ask(self.module.nvmlDeviceGetCount) or 0):
            handle = self._ask(self.module.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                yield handle

    def _ask(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self.module.NVMLError:
            return None


def open_nvml() -> Nvml | None:
    """The library, when it is installed and a driver answers."""
    try:
        module: ModuleType = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return Nvml(module)
