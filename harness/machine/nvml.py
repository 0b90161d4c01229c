"""NVIDIA's management library behind one seam: memory, use, clocks and temperature.

`nvidia-ml-py` is an optional dependency (the extra `nvidia`). Any failure of the library is
answered with "nothing readable", never with an exception.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

INSTALL = "install the extra 'nvidia' (nvidia-ml-py) to read NVIDIA GPUs"


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

    def used_bytes(self) -> int | None:
        """Memory in use on all GPUs by anybody, bytes."""
        infos = [self._ask(self.module.nvmlDeviceGetMemoryInfo, h) for h in self._handles()]
        sizes = [int(info.used) for info in infos if info is not None]
        return sum(sizes) if sizes else None

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

    def clock_mhz(self) -> float | None:
        """The first GPU's shader clock, MHz."""
        for handle in self._handles():
            clock = self._ask(self.module.nvmlDeviceGetClockInfo, handle, self.module.NVML_CLOCK_SM)
            return None if clock is None else float(clock)
        return None

    def temperature_c(self) -> float | None:
        """The hottest GPU's temperature, °C."""
        sensor = self.module.NVML_TEMPERATURE_GPU
        read = [
            self._ask(self.module.nvmlDeviceGetTemperature, handle, sensor)
            for handle in self._handles()
        ]
        return max((float(value) for value in read if value is not None), default=None)

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
