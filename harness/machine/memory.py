"""Memory of the server's process tree: resident, anonymous, swapped, committed and on the GPU."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.machine import drm, nvml, windows_counters
from harness.machine.nvml import Nvml, open_nvml
from harness.machine.windows_counters import Counters, open_counters
from harness.records.lines import MemorySample

FDINFO = "DRM fdinfo, vram + gtt"
COMPUTE = "KFD vram"
NVML = "NVML per process"
PDH = "GPU Process Memory, dedicated + shared"
STATUS_FIELDS = ("VmRSS", "RssAnon", "VmSwap")


@dataclass(slots=True)
class DeviceMemory:
    """The counters of device memory that this machine has, each behind its own module."""

    nvml: Nvml | None = field(default_factory=open_nvml)
    windows: Counters | None = field(default_factory=open_counters)
    proc: Path = Path("/proc")
    sys_root: Path = Path("/sys")

    def of_processes(self, pids: frozenset[int]) -> dict[str, int]:
        """Device memory of the processes by each counter that sees any of them, bytes."""
        found: dict[str, int] = {}
        for name, value in (
            (FDINFO, drm.process_memory(pids, self.proc)),
            (COMPUTE, drm.compute_memory(pids, self.sys_root)),
            (NVML, _share(self.nvml.process_memory() if self.nvml else None, pids)),
            (PDH, _share(windows_counters.process_memory(self.windows), pids))
            if self.windows
            else (PDH, None),
        ):
            if value is not None:
                found[name] = value
        return found

    def of_whole_gpus(self) -> dict[str, int]:
        """Memory in use on the GPUs by anybody, bytes, by counter."""
        used = drm.whole_gpu_memory(self.sys_root)
        found = {f"whole GPU, amdgpu {region}": size for region, size in used.items()}
        everybody = self.nvml.used_bytes() if self.nvml else None
        if everybody is not None:
            found["whole GPU, NVML"] = everybody
        return found

    def why_not(self) -> str:
        """Why no counter told the server's device memory."""
        if self.nvml is None and (self.proc / "driver/nvidia/version").exists():
            return f"device memory of the server not read: {nvml.INSTALL}"
        if self.windows is None and sys.platform == "win32":
            return f"device memory of the server not read: {windows_counters.INSTALL}"
        has_drm = any(self.sys_root.glob("class/drm/card*"))
        if not (self.nvml or self.windows or has_drm):
            return "device memory of the server not read: no GPU with a readable counter here"
        return "device memory of the server not read: no GPU counter lists its processes"


class MemoryProbe:
    """Reads the memory of the process `pid` and of all its descendants.

    `pid` is `None` for a server on another machine or whose process isn't known: then only the
    host's free memory and the whole GPU's counters are read. Nothing here raises when the
    process is gone or may not be read; what wasn't readable is `None` and `unreadable()` says why.
    """

    def __init__(self, pid: int | None, device: DeviceMemory | None = None) -> None:
        self.pid = pid
        self._device = device or DeviceMemory()
        self._reasons: dict[str, None] = {}
        self._sampled = False

    def sample(self) -> MemorySample:
        """Memory now, bytes."""
        self._sampled = True
        pids = process_tree(self.pid) if self.pid is not None else frozenset()
        if self.pid is None:
            self._say("server memory not read: the server's process isn't known from here")
        elif not pids:
            self._say(f"server memory not read: process {self.pid} is gone")
        sizes = _linux_sizes(pids) if sys.platform == "linux" else _psutil_sizes(pids)
        if pids and sizes.get("rss") is None:
            self._say(f"server memory not read: process {self.pid} belongs to another user")
        if pids and sizes.get("swap") is None:
            self._say("swap of the server not read: this system doesn't tell it per process")
        own = self._device.of_processes(pids) if pids else {}
        # Several counters see overlapping parts of the same memory and each may miss some
        # (Strix Halo's GTT counter does): the largest is nearest the truth, never their sum.
        counter = max(own, key=lambda name: own[name]) if own else None
        whole = self._device.of_whole_gpus()
        if pids and counter is None:
            self._say(self._device.why_not())
        return MemorySample(
            rss_bytes=sizes.get("rss"),
            rss_anon_bytes=sizes.get("anon"),
            swap_bytes=sizes.get("swap"),
            commit_bytes=sizes.get("commit"),
            device_bytes=own[counter] if counter else None,
            device_counter=counter,
            device_counters=own | whole,
            host_available_bytes=psutil.virtual_memory().available,
        )

    def unreadable(self) -> tuple[str, ...]:
        """What could not be read so far, one sentence each; samples once if nothing was yet."""
        if not self._sampled:
            self.sample()
        return tuple(self._reasons)

    def _say(self, sentence: str) -> None:
        self._reasons[sentence] = None


def process_tree(pid: int) -> frozenset[int]:
    """`pid` and its living descendants; empty when it is gone."""
    try:
        root = psutil.Process(pid)
        if root.status() == psutil.STATUS_ZOMBIE:
            return frozenset()
        return frozenset({pid, *(child.pid for child in root.children(recursive=True))})
    except psutil.AccessDenied:
        return frozenset({pid})
    except psutil.Error:
        return frozenset()


def parse_status(text: str) -> dict[str, int]:
    """`VmRSS`, `RssAnon` and `VmSwap` of a `/proc/PID/status`, bytes (the file says kB = KiB)."""
    return {
        name: int(size) * 1024
        for name, size in re.findall(r"^(\w+):\s*(\d+) kB$", text, flags=re.MULTILINE)
        if name in STATUS_FIELDS
    }


def _linux_sizes(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[str, int]:
    found: dict[str, int] = {}
    names = dict(zip(STATUS_FIELDS, ("rss", "anon", "swap"), strict=True))
    for pid in pids:
        try:
            status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for name, size in parse_status(status).items():
            found[names[name]] = found.get(names[name], 0) + size
    return found


def _psutil_sizes(pids: Iterable[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pid in pids:
        try:
            info = psutil.Process(pid).memory_info()
        except psutil.Error:
            continue
        found["rss"] = found.get("rss", 0) + info.rss
        private = getattr(info, "private", None)  # Windows only: the process's commit
        if private is not None:
            found["commit"] = found.get("commit", 0) + private
    return found


def _share(by_pid: dict[int, int] | None, pids: frozenset[int]) -> int | None:
    own = [size for pid, size in (by_pid or {}).items() if pid in pids]
    return sum(own) if own else None
