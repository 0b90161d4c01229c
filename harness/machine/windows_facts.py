"""What Windows' registry tells of settings that change speed or end a server's work."""

import contextlib
import sys
from collections.abc import Callable, Mapping

from harness.machine.graphics import DISPLAY_CLASS

_CONTROL = r"SYSTEM\CurrentControlSet\Control"
_MACHINE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "BIOS": (
        r"HARDWARE\DESCRIPTION\System\BIOS",
        ("SystemProductName", "BIOSVersion", "BIOSReleaseDate"),
    ),
    "Windows": (
        r"SOFTWARE\Microsoft\Windows NT\CurrentVersion",
        ("DisplayVersion", "CurrentBuild", "UBR"),
    ),
    "Visual C++ runtime": (r"SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\x64", ("Version",)),
    "GPU scheduling by hardware": (rf"{_CONTROL}\GraphicsDrivers", ("HwSchMode",)),
    "GPU timeout (TdrDelay), s": (rf"{_CONTROL}\GraphicsDrivers", ("TdrDelay",)),
    "memory integrity": (
        rf"{_CONTROL}\DeviceGuard\Scenarios\HypervisorEnforcedCodeIntegrity",
        ("Enabled",),
    ),
    "long paths": (rf"{_CONTROL}\FileSystem", ("LongPathsEnabled",)),
    "page file": (rf"{_CONTROL}\Session Manager\Memory Management", ("PagingFiles",)),
    "virus scanner": (
        r"SOFTWARE\Microsoft\Windows Defender\Real-Time Protection",
        ("DisableRealtimeMonitoring",),
    ),
}
_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "GPU scheduling by hardware": {"1": "off", "2": "on"},
    "memory integrity": {"0": "off", "1": "on"},
    "long paths": {"0": "off", "1": "on"},
    "virus scanner": {"0": "Defender, real-time protection on", "1": "real-time protection off"},
}
EXCLUSIONS = r"SOFTWARE\Microsoft\Windows Defender\Exclusions\Paths"

Value = Callable[[str, str], object]


def registry_facts(value: Value, gpus: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Facts from `value(key, name)`, which gives `None` for what is not there."""
    facts: dict[str, str | None] = {}
    for fact, (key, names) in _MACHINE.items():
        read = (_plain(value(key, name)) for name in names)
        text = " ".join(part for part in read if part)
        facts[fact] = _MEANINGS.get(fact, {}).get(text, text) or None
    maker = facts["BIOS"] or ""
    facts["virtual machine"] = next(
        (n for n in ("VMware", "VirtualBox", "Virtual Machine", "QEMU", "KVM") if n in maker), None
    )
    keys = [rf"{DISPLAY_CLASS}\{gpu}" for gpu in gpus]
    sizes = [value(key, "HardwareInformation.qwMemorySize") for key in keys]
    told = [f"{size / 2**30:.4g} GiB set apart" for size in sizes if isinstance(size, int) and size]
    facts["GPU memory"] = "; ".join(told) or None
    software = (_plain(value(key, "RadeonSoftwareVersion")) for key in keys)
    facts["Radeon software"] = ", ".join(dict.fromkeys(text for text in software if text)) or None
    return facts


def _plain(value: object) -> str:
    parts = value if isinstance(value, list) else [value]
    return " ".join(str(part).strip() for part in parts if part is not None)


def read_registry() -> dict[str, str | None]:
    """The same of this machine; what is missing or denied is left out."""
    facts = registry_facts(_value, tuple(_numbered(DISPLAY_CLASS)))
    exclusions = _exclusions()
    facts["virus scanner's exclusions"] = None if exclusions is None else exclusions or "none"
    return facts


def _value(key: str, name: str) -> object:
    if sys.platform == "win32":
        import winreg

        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened,
        ):
            return winreg.QueryValueEx(opened, name)[0]
    return None


def _numbered(key: str) -> list[str]:
    found: list[str] = []
    if sys.platform == "win32":
        import winreg

        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened,
        ):
            names = (winreg.EnumKey(opened, i) for i in range(winreg.QueryInfoKey(opened)[0]))
            found += [name for name in names if name.isdigit()]
    return found


def _exclusions() -> str | None:
    """Defender's excluded folders; `None` where one may not look (only administrators may)."""
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, EXCLUSIONS) as opened:
                count = winreg.QueryInfoKey(opened)[1]
                return ", ".join(winreg.EnumValue(opened, i)[0] for i in range(count))
        except OSError:
            return None
    return None
