"""The machine's memory by pool: RAM within the cgroup's limit, each GPU's own, and what it borrows.

An APU (Strix Halo and the like) has a carve-out of its own and borrows RAM beyond it: amdgpu's GTT,
Windows' shared memory. What a discrete card may borrow is not counted: it is there, and many times
slower.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.machine import windows_counters
from harness.machine.d3dkmt import Adapters, open_adapters
from harness.machine.hardware import cpu_brand
from harness.machine.nvml import Nvml, open_nvml
from harness.machine.windows_counters import Counters, open_counters

APU_METRICS = (2, 3)
"""Formats of amdgpu's `gpu_metrics` that only APUs have."""
NO_LIMIT = 1 << 62
"""cgroup v1 says "no limit" by a number near 2^63."""


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """Free memory of one pool, bytes. `gpu`: a GPU's; `borrowed`: a part of the machine's RAM."""

    name: str
    free_bytes: int
    source: str
    gpu: bool
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPools:
    """Reads the pools of this machine; whatever isn't told is left out."""

    nvml: Nvml | None = field(default_factory=open_nvml)
    adapters: Adapters | None = field(default_factory=open_adapters)
    windows: Counters | None = field(default_factory=open_counters)
    cpu: str = field(default_factory=cpu_brand)
    sys_root: Path = Path("/sys")
    proc: Path = Path("/proc")

    def read(self) -> tuple[MemoryPool, ...]:
        """RAM first, then the GPUs' pools."""
        gpus = [
            MemoryPool(memory.name, memory.free_bytes, "NVML", gpu=True)
            for memory in (self.nvml.memories() if self.nvml is not None else ())
        ]
        return (self.ram(), *gpus, *self._amdgpu(), *self._windows(known=bool(gpus)))

    def ram(self) -> MemoryPool:
        """What programs can still get of the machine's RAM, or of the cgroup's share of it."""
        free = psutil.virtual_memory().available
        left = cgroup_left_bytes(self.proc, self.sys_root)
        if left is not None and left < free:
            return MemoryPool("RAM", left, "the cgroup's limit", gpu=False)
        return MemoryPool("RAM", free, "the system", gpu=False)

    def _amdgpu(self) -> Iterator[MemoryPool]:
        for device in sorted(self.sys_root.glob("class/drm/card*/device")):
            if (vram := _left(device, "vram")) is None:
                continue
            card = device.parent.name
            yield MemoryPool(f"{card} VRAM", vram, "amdgpu", gpu=True)
            gtt = _left(device, "gtt")
            if gtt is not None and _is_apu(device):
                yield MemoryPool(f"{card} GTT", gtt, "amdgpu", gpu=True, borrowed=True)

    def _windows(self, *, known: bool) -> Iterator[MemoryPool]:
        """Adapters by the graphics kernel, of which an APU's is the one without much of its own."""
        if self.adapters is None or known:
            return
        used = windows_counters.adapter_use(self.windows) if self.windows is not None else {}
        for segments in self.adapters.segments():
            dedicated, shared = used.get(segments.luid, (0, 0))
            name, source = segments.name, "D3DKMT"
            own = max(0, segments.dedicated_bytes - dedicated)
            yield MemoryPool(f"{name}, dedicated", own, source, gpu=True)
            if segments.integrated or named_by_cpu(segments.name, self.cpu):
                lent = max(0, segments.shared_bytes - shared)
                yield MemoryPool(f"{name}, shared", lent, source, gpu=True, borrowed=True)


def named_by_cpu(adapter: str, cpu: str) -> bool:
    """Whether the CPU's brand names this GPU: `AMD Ryzen … w/ Radeon 8060S`."""
    model = re.sub(r"\(\w+\)|\bgraphics\b", " ", adapter, flags=re.IGNORECASE).split()
    return bool(model) and len(model[-1]) > 2 and model[-1].lower() in cpu.lower().split()


def cgroup_left_bytes(proc: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> int | None:
    """What the memory limits of this process's cgroups leave, bytes; `None` where there is none.

    The tightest counts, its own and those above it. Page cache that can be dropped is free.
    """
    left = [
        limit - used
        for folder, names in _cgroups(proc, sys_root)
        if (limit := _number(folder / names["limit"])) is not None
        and limit < NO_LIMIT
        and (used := _used(folder, names["used"])) is not None
    ]
    return max(0, min(left)) if left else None


_V2 = {"limit": "memory.max", "used": "memory.current"}
_V1 = {"limit": "memory.limit_in_bytes", "used": "memory.usage_in_bytes"}


def _cgroups(proc: Path, sys_root: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """The folders of this process's cgroup and of all above it, of either version."""
    for line in _text(proc / "self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            root, names = sys_root / "fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            root, names = sys_root / "fs/cgroup/memory", _V1
        else:
            continue
        folder = root / path.strip("/")
        while folder == root or root in folder.parents:
            yield folder, names
            folder = folder.parent


def _used(folder: Path, name: str) -> int | None:
    used = _number(folder / name)
    if used is None:
        return None
    cache = sum(
        int(line.split()[1])
        for line in _text(folder / "memory.stat").splitlines()
        if line.startswith(("inactive_file ", "active_file "))
    )
    return max(0, used - cache)


def _left(device: Path, region: str) -> int | None:
    total = _number(device / f"mem_info_{region}_total")
    used = _number(device / f"mem_info_{region}_used")
    return None if total is None or used is None else max(0, total - used)


def _is_apu(device: Path) -> bool:
    with contextlib.suppress(OSError):
        return (device / "gpu_metrics").read_bytes()[2:3] in [bytes([f]) for f in APU_METRICS]
    return False


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
