"""Which GPUs a machine has and which driver runs them, read without starting any tool.

Linux: DRM devices in sysfs (AMD names from libdrm's `amdgpu.ids`) and NVIDIA's `/proc/driver`.
Windows: the display adapters' class key of the registry. Elsewhere: nothing is read.
"""

import contextlib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

AMD, NVIDIA, INTEL = "0x1002", "0x10de", "0x8086"
DISPLAY_CLASS = (
    r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"  # display
)
AMDGPU_IDS = Path("/usr/share/libdrm/amdgpu.ids")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU by the name its maker gives it; `driver` is `None` where it can't be told."""

    name: str
    driver: str | None = None


def read_gpus() -> tuple[Gpu, ...]:
    """The machine's GPUs in a stable order; empty when there are none or they aren't readable."""
    found: tuple[Gpu, ...] = ()
    if sys.platform == "linux":
        found = linux_gpus(Path("/sys"), Path("/proc"), AMDGPU_IDS)
    elif sys.platform == "win32":
        found = windows_gpus(_display_adapters())
    return found


def linux_gpus(sys_root: Path, proc_root: Path, ids: Path) -> tuple[Gpu, ...]:
    """GPUs of AMD, NVIDIA and Intel; a server board's management display (ASPEED …) is none."""
    found = []
    for card in sorted(sys_root.glob("class/drm/card*")):
        if not re.fullmatch(r"card\d+", card.name):
            continue  # card0-DP-1 is a connector
        vendor = _read(card / "device/vendor")
        if vendor == AMD:
            found.append(Gpu(_amd_name(card / "device", ids), _amd_driver(sys_root)))
        elif vendor == INTEL:
            device = (_read(card / "device/device") or "").removeprefix("0x")
            found.append(Gpu(f"Intel GPU {device}".strip()))
    found.extend(_nvidia_gpus(proc_root))
    return tuple(sorted(found, key=lambda gpu: gpu.name))


def amd_name(ids_text: str, device: str, revision: str) -> str | None:
    """The marketing name in libdrm's `amdgpu.ids` (`device, revision, name`, hexadecimal)."""
    wanted = (device.removeprefix("0x").upper(), revision.removeprefix("0x").upper())
    for line in ids_text.splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and (parts[0].upper(), parts[1].upper()) == wanted:
            return parts[2]
    return None


def _amd_name(device: Path, ids: Path) -> str:
    product = _read(device / "product_name")
    if product:
        return product
    number, revision = _read(device / "device") or "", _read(device / "revision") or ""
    named = amd_name(_read(ids) or "", number, revision)
    return named or f"AMD GPU {number.removeprefix('0x')}".strip()


def _amd_driver(sys_root: Path) -> str:
    # Only the out-of-tree module has a version of its own; otherwise the kernel's is the driver's.
    version = _read(sys_root / "module/amdgpu/version")
    return f"amdgpu {version}" if version else "amdgpu of the kernel"


def _nvidia_gpus(proc_root: Path) -> list[Gpu]:
    version = re.search(r"\b\d+\.\d+(\.\d+)*\b", _read(proc_root / "driver/nvidia/version") or "")
    driver = f"NVIDIA {version[0]}" if version else None
    found = []
    for information in sorted(proc_root.glob("driver/nvidia/gpus/*/information")):
        model = re.search(r"Model:\s*(.+)", _read(information) or "")
        if model:
            found.append(Gpu(model[1].strip(), driver))
    return found


def windows_gpus(adapters: Iterable[Mapping[str, str]]) -> tuple[Gpu, ...]:
    """GPUs among the registry's display adapters: those on the PCI bus, so no virtual display.

    An entry of a card since taken out may remain in the registry; it is then named as well.
    """
    found = []
    for adapter in adapters:
        on_pci = adapter.get("MatchingDeviceId", "").lower().startswith("pci\\")
        name = adapter.get("DriverDesc", "")
        if on_pci and name:
            version = adapter.get("DriverVersion")
            found.append(Gpu(name, f"{name} {version}" if version else None))
    return tuple(sorted(found, key=lambda gpu: gpu.name))


if sys.platform == "win32":
    import winreg

    def _display_adapters() -> list[dict[str, str]]:
        found = []
        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, DISPLAY_CLASS) as display,
        ):
            for index in range(winreg.QueryInfoKey(display)[0]):
                name = winreg.EnumKey(display, index)
                if name.isdigit():
                    found.append(_values(display, name))
        return found

    def _values(display: winreg.HKEYType, name: str) -> dict[str, str]:
        values = {}
        with contextlib.suppress(OSError), winreg.OpenKey(display, name) as key:
            for field in ("MatchingDeviceId", "DriverDesc", "DriverVersion"):
                with contextlib.suppress(OSError):
                    values[field] = str(winreg.QueryValueEx(key, field)[0])
        return values


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
