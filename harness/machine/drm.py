"""What Linux' DRM drivers tell per process: GPU memory and engine time (`/proc/PID/fdinfo`).

Source of the format: the kernel's `Documentation/gpu/drm-usage-stats.rst`; AMD's compute driver
adds `/sys/class/kfd/kfd/proc/PID`. Only processes of the same user can be read without root.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DRM_FD = re.compile(r"/dev/dri/(card|renderD)\d+$")
OWN_REGIONS = ("vram", "gtt", "system", "local")  # the region `cpu` is memory that was moved out


@dataclass(frozen=True, slots=True)
class Client:
    """One DRM client of a process: memory it holds resident and time its work kept engines busy.

    `key` tells clients apart (device and client id): duplicated descriptors share it.
    """

    key: tuple[str, str]
    memory_bytes: int
    engine_ns: dict[str, int]


def parse_fdinfo(text: str) -> Client | None:
    """The client in the text of one fdinfo file, `None` when it isn't a DRM descriptor's."""
    fields = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.startswith("drm-"):
            fields[name] = value.strip()
    if "drm-client-id" not in fields:
        return None
    engines = {
        name.removeprefix("drm-engine-"): int(value.split()[0])
        for name, value in fields.items()
        if name.startswith("drm-engine-") and value.endswith(" ns")
    }
    return Client(
        (fields.get("drm-pdev", fields.get("drm-driver", "")), fields["drm-client-id"]),
        _resident_bytes(fields),
        engines,
    )


def _resident_bytes(fields: dict[str, str]) -> int:
    # `drm-memory-X` is the older name of `drm-resident-X`; a driver may give both.
    regions: dict[str, int] = {}
    for prefix in ("drm-memory-", "drm-resident-"):
        for name, value in fields.items():
            region = name.removeprefix(prefix)
            if name.startswith(prefix) and region.startswith(OWN_REGIONS):
                regions[region] = _bytes(value)
    return sum(regions.values())


def _bytes(value: str) -> int:
    number, _, unit = value.partition(" ")
    return int(number) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit.strip()]


def drm_descriptors(pid: int, proc: Path = Path("/proc")) -> tuple[Path, ...]:
    """The fdinfo files of a process's open GPU devices.

    Raises `PermissionError` for a process of another user and `OSError` for one that is gone.
    """
    folder = f"{proc}/{pid}/fd"
    found = []
    for name in os.listdir(folder):  # noqa: PTH208  (thousands of them: no Path object for each)
        with contextlib.suppress(OSError):
            if DRM_FD.search(os.readlink(f"{folder}/{name}")):  # noqa: PTH115
                found.append(proc / str(pid) / "fdinfo" / name)
    return tuple(found)


def read_clients(files: Iterable[Path]) -> Iterator[Client]:
    """The clients behind fdinfo files; a file that is gone or not understood is left out."""
    for file in files:
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            client = parse_fdinfo(file.read_text(encoding="utf-8", errors="replace"))
            if client is not None:
                yield client


def process_memory(pids: Iterable[int], proc: Path = Path("/proc")) -> int | None:
    """GPU memory the processes hold, bytes, each client counted once; `None` with no GPU open."""
    clients: dict[tuple[str, str], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for client in read_clients(drm_descriptors(pid, proc)):
                clients[client.key] = client.memory_bytes
    return sum(clients.values()) if clients else None


def compute_memory(pids: Iterable[int], sys_root: Path = Path("/sys")) -> int | None:
    """VRAM of the processes as AMD's compute driver (ROCm) counts it, bytes."""
    found: list[int] = []
    for pid in pids:
        for file in sys_root.glob(f"class/kfd/kfd/proc/{pid}/vram_*"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int(file.read_text(encoding="ascii")))
    return sum(found) if found else None


def whole_gpu_memory(sys_root: Path = Path("/sys")) -> dict[str, int]:
    """Memory in use on all AMD GPUs by anybody, bytes, by counter (`vram`, `gtt`)."""
    used: dict[str, int] = {}
    for region in ("vram", "gtt"):
        for file in sys_root.glob(f"class/drm/card*/device/mem_info_{region}_used"):
            with contextlib.suppress(OSError, ValueError):
                used[region] = used.get(region, 0) + int(file.read_text(encoding="ascii"))
    return used
