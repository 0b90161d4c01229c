"""What the hardware runs at: clocks, temperatures, power profile and battery, where readable."""

import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.machine.load import Conditions
from harness.machine.nvml import Nvml, open_nvml

CPU_SENSORS = ("k10temp", "zenpower", "coretemp", "cpu_thermal", "acpitz")
GPU_SENSORS = ("amdgpu", "xe", "i915", "nouveau")
POWER_SCHEMES = r"SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes"
SCHEME_NAMES = {
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
    "961cc777-2547-4f9d-8174-7d86181b8a7a": "best power efficiency",
    "ded574b5-45a0-4f42-8737-46345c09c238": "best performance",
}
NO_OVERLAY = "00000000-0000-0000-0000-000000000000"


@dataclass(slots=True)
class ConditionsProbe:
    """Reads `Conditions`; whatever the machine doesn't tell stays `None`."""

    nvml: Nvml | None = field(default_factory=open_nvml)
    sys_root: Path = Path("/sys")

    def read(self) -> Conditions:
        """The conditions now. MHz, °C; never raises."""
        cpu_c, gpu_c = _temperatures()
        if gpu_c is None and self.nvml is not None:
            gpu_c = self.nvml.temperature_c()
        return Conditions(
            cpu_mhz=_cpu_mhz(),
            cpu_c=cpu_c,
            gpu_c=gpu_c,
            power_profile=self._power_profile(),
            on_battery=_on_battery(),
        )

    def _power_profile(self) -> str | None:
        found = scheme_text(*_windows_schemes())
        return found if found is not None else self._linux_profile()

    def _linux_profile(self) -> str | None:
        parts = {
            "profile": "firmware/acpi/platform_profile",
            "governor": "devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "preference": "devices/system/cpu/cpu0/cpufreq/energy_performance_preference",
        }
        read = {name: _text(self.sys_root / path) for name, path in parts.items()}
        for card in sorted(self.sys_root.glob("class/drm/card*/device")):
            read["GPU level"] = _text(card / "power_dpm_force_performance_level")
        return ", ".join(f"{name} {text}" for name, text in read.items() if text) or None


def scheme_text(scheme: str | None, overlay: str | None) -> str | None:
    """A Windows power scheme and its overlay (the slider) by GUID, in words."""
    names = [
        SCHEME_NAMES.get(guid.lower(), guid.lower())
        for guid in (scheme, overlay)
        if guid and guid != NO_OVERLAY
    ]
    return " + ".join(names) or None


def _cpu_mhz() -> float | None:
    # psutil reads cpufreq, or /proc/cpuinfo where there is none; some systems have neither.
    with contextlib.suppress(OSError, NotImplementedError, AttributeError, RuntimeError):
        frequency = psutil.cpu_freq()
        if frequency is not None and frequency.current > 0:
            return float(frequency.current)
    return None


def _temperatures() -> tuple[float | None, float | None]:
    sensors: dict[str, list[float]] = {}
    if sys.platform == "linux":
        with contextlib.suppress(OSError, RuntimeError):
            for chip, readings in psutil.sensors_temperatures().items():
                sensors[chip] = [r.current for r in readings if r.current is not None]
    return _hottest(sensors, CPU_SENSORS), _hottest(sensors, GPU_SENSORS)


def _hottest(sensors: dict[str, list[float]], chips: tuple[str, ...]) -> float | None:
    for chip in chips:
        if sensors.get(chip):
            return float(max(sensors[chip]))
    return None


def _on_battery() -> bool | None:
    with contextlib.suppress(OSError, AttributeError, RuntimeError, ValueError):
        battery = psutil.sensors_battery()
        if battery is not None and battery.power_plugged is not None:
            return not battery.power_plugged
    return None


def _windows_schemes() -> tuple[str | None, str | None]:
    found: list[str | None] = [None, None]
    if sys.platform == "win32":
        import winreg

        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, POWER_SCHEMES) as key,
        ):
            for index, name in enumerate(("ActivePowerScheme", "ActiveOverlayAcPowerScheme")):
                with contextlib.suppress(OSError):
                    found[index] = str(winreg.QueryValueEx(key, name)[0])
    return found[0], found[1]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
