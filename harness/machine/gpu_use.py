"""How much of the GPUs other processes use, by process."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.machine import drm, windows_counters
from harness.machine.load import GpuUse
from harness.machine.nvml import Nvml, open_nvml
from harness.machine.windows_counters import Counters, open_counters

RESCAN_S = 30.0  # GPU devices may be opened by processes that were there before


@dataclass(slots=True)
class DrmEngines:
    """Engine time of DRM clients between two calls (`drm-engine-*` of fdinfo)."""

    proc: Path = Path("/proc")
    denied: bool = False
    """True once a process of another user could not be looked at."""
    _files: dict[int, tuple[Path, ...]] = field(default_factory=dict)
    _before: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    _at_ns: int | None = None
    _scanned_ns: int | None = None

    def read(self, pids: set[int], now_ns: int) -> dict[int, float] | None:
        """Share of time the busiest engine worked for each of `pids`; `None` the first time."""
        self._scan(pids, now_ns)
        used: dict[int, float] = {}
        seen: dict[tuple[str, str], dict[str, int]] = {}
        span = now_ns - self._at_ns if self._at_ns is not None else 0
        for pid, files in self._files.items():
            for client in drm.read_clients(files):
                if client.key in seen:
                    continue  # a shared descriptor: its first holder stands for it
                seen[client.key] = client.engine_ns
                before = self._before.get(client.key)
                if before is None or span <= 0:
                    continue
                grown = (ns - before.get(name, ns) for name, ns in client.engine_ns.items())
                used[pid] = used.get(pid, 0.0) + max(0, *grown, 0) / span
        first = self._at_ns is None
        self._before, self._at_ns = seen, now_ns
        return None if first else used

    def _scan(self, pids: set[int], now_ns: int) -> None:
        self._files = {pid: files for pid, files in self._files.items() if pid in pids}
        due = self._scanned_ns is None or now_ns - self._scanned_ns > RESCAN_S * 1e9
        for pid in pids if due else pids - self._files.keys():
            try:
                self._files[pid] = drm.drm_descriptors(pid, self.proc)
            except PermissionError:
                self.denied = True
                self._files[pid] = ()
            except OSError:
                self._files.pop(pid, None)
        if due:
            self._scanned_ns = now_ns


@dataclass(slots=True)
class GpuWatch:
    """The machine's counters of GPU use by process: DRM, NVML or Windows' GPU Engine."""

    nvml: Nvml | None = field(default_factory=open_nvml)
    windows: Counters | None = field(default_factory=open_counters)
    engines: DrmEngines | None = field(default_factory=lambda: _drm_engines())
    clock_ns: Callable[[], int] = time.perf_counter_ns

    @property
    def every_s(self) -> float:
        """How long to wait between two readings, so that they stay cheap.

        Windows lists every engine of every process, and NVML's answer took 3.6 ms of CPU (H200,
        driver 580); both tell the mean since the last call, so nothing in between is lost.
        """
        return 5.0 if self.windows is not None or self.nvml is not None else 0.0

    def read(
        self, alive: set[int], ours: frozenset[int], name: Callable[[int], str]
    ) -> tuple[GpuUse, ...] | None:
        """Use by processes that aren't ours since the last call; `None` when nothing tells."""
        use: dict[int, float] = {}
        sources = (
            self.engines.read(alive, self.clock_ns()) if self.engines else None,
            self.nvml.process_use() if self.nvml else None,
            windows_counters.process_use(self.windows) if self.windows else None,
        )
        for source in sources:
            for pid, share in (source or {}).items():
                if pid not in ours and share > 0:
                    use[pid] = max(use.get(pid, 0.0), share)
        if all(source is None for source in sources):
            return None
        return tuple(
            GpuUse(pid, name(pid), share)
            for pid, share in sorted(use.items(), key=lambda item: -item[1])
        )

    def watched(self) -> tuple[str, ...]:
        """Which counters are read."""
        names = {
            "GPU use by process (DRM fdinfo engine time)": self.engines,
            "GPU use by process (NVML)": self.nvml,
            "GPU use by process (Windows GPU Engine)": self.windows,
        }
        return tuple(name for name, source in names.items() if source is not None)

    def not_watched(self) -> tuple[str, ...]:
        """What these counters can't see."""
        said = []
        if not self.watched():
            said.append("GPU use by other processes: no GPU with a readable counter here")
        if self.engines is not None:
            said.append("GPU compute through ROCm: its queues are not in DRM fdinfo")
            if self.engines.denied:
                said.append("GPU use of other users' processes: not permitted without root")
        return tuple(said)


def _drm_engines() -> DrmEngines | None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if any(Path("/dev/dri").glob("renderD*")):
                return DrmEngines()
    return None
