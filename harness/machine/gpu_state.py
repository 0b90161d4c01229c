"""What each GPU runs at: clocks, power, use, and what holds its clock back (NVML, amdgpu).

amdgpu's `gpu_metrics` is a binary file in versions: the layouts are those of the kernel's
`kgd_pp_interface.h`. Only what several versions have in common is read from it.
"""

import contextlib
import re
import statistics
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.machine.d3dkmt import Adapters, open_adapters
from harness.machine.load import GpuState
from harness.machine.nvml import Nvml, open_nvml

_INDEPENDENT_THROTTLE_AT = {(1, 3): 112, (2, 2): 120, (2, 3): 120, (2, 4): 120}
"""Offset of `indep_throttle_status`: bits below 32 are power and current, from 32 on heat."""
_RESIDENCIES_AT = {(3, 0): 228}
"""Offset of seven counters of throttled time: PROCHOT, three power limits, three of heat."""
_GFX_MHZ_AT = {(1, 3): 40, (2, 2): 64, (2, 3): 64, (2, 4): 64, (3, 0): 174}
_ABSENT = 0xFFFF


@dataclass(slots=True)
class GpuStates:
    """The GPUs of this machine behind the counters that it has; nothing here raises."""

    nvml: Nvml | None = field(default_factory=open_nvml)
    adapters: Adapters | None = field(default_factory=open_adapters)
    sys_root: Path = Path("/sys")
    _residencies: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def read(self) -> tuple[GpuState, ...]:
        """The state of every GPU now; empty where nothing tells."""
        found = list(self.nvml.states()) if self.nvml is not None else []
        found += self._amdgpu()
        if self.adapters is not None and not found:
            found += self.adapters.states()
        return tuple(found)

    def _amdgpu(self) -> Iterator[GpuState]:
        for card in sorted(self.sys_root.glob("class/drm/card*")):
            device = card / "device"
            if (
                not re.fullmatch(r"card\d+", card.name)
                or not (device / "gpu_busy_percent").exists()
            ):
                continue
            hwmon = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "none")
            metrics = _bytes(device / "gpu_metrics")
            core_hz, memory_hz = _number(hwmon / "freq1_input"), _number(hwmon / "freq2_input")
            power_uw = _number(hwmon / "power1_average") or _number(hwmon / "power1_input")
            busy = _number(device / "gpu_busy_percent")
            yield GpuState(
                name=card.name,
                counter="amdgpu",
                core_mhz=core_hz / 1e6 if core_hz else gfx_mhz(metrics),
                memory_mhz=memory_hz / 1e6 if memory_hz else _dpm_mhz(device / "pp_dpm_mclk"),
                power_w=power_uw / 1e6 if power_uw else None,
                busy=busy / 100 if busy is not None else None,
                held_by=self._held_by(card.name, metrics),
            )

    def _held_by(self, card: str, metrics: bytes) -> tuple[str, ...] | None:
        now = residencies(metrics)
        if now is None:
            return throttled(metrics)
        before = self._residencies.get(card, now)
        self._residencies[card] = now
        names = ("PROCHOT", *["power limit"] * 3, *["heat"] * 3)
        grown = (name for name, a, b in zip(names, before, now, strict=True) if b > a)
        return tuple(dict.fromkeys(grown))


def together(looks: Sequence[tuple[GpuState, ...]]) -> tuple[GpuState, ...]:
    """Several looks at the same GPUs as one: medians, and what held a clock in a third of them."""
    return tuple(_one(states) for states in zip(*looks, strict=False))


def _one(states: tuple[GpuState, ...]) -> GpuState:
    told = [state.held_by for state in states if state.held_by is not None]
    reasons = dict.fromkeys(reason for held_by in told for reason in held_by)
    often = (r for r in reasons if 3 * sum(r in held_by for held_by in told) >= len(told))

    def middle(name: str) -> float | None:
        return _median([getattr(state, name) for state in states])

    return GpuState(
        name=states[-1].name,
        counter=states[-1].counter,
        core_mhz=middle("core_mhz"),
        memory_mhz=middle("memory_mhz"),
        power_w=middle("power_w"),
        busy=middle("busy"),
        held_by=tuple(often) if told else None,
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def gfx_mhz(metrics: bytes) -> float | None:
    """The graphics clock in a `gpu_metrics`, MHz: the firmware's own mean."""
    return _u16(metrics, _GFX_MHZ_AT)


def throttled(metrics: bytes) -> tuple[str, ...] | None:
    """What throttles by a `gpu_metrics` of a version with `indep_throttle_status`."""
    at = _INDEPENDENT_THROTTLE_AT.get(_version(metrics))
    if at is None or len(metrics) < at + 8:
        return None
    (bits,) = struct.unpack_from("<Q", metrics, at)
    if bits == 0xFFFF_FFFF_FFFF_FFFF:
        return None
    return (*(["power limit"] if bits & 0xFFFF_FFFF else []), *(["heat"] if bits >> 32 else []))


def residencies(metrics: bytes) -> tuple[int, ...] | None:
    """Seven growing counters of throttled time in a `gpu_metrics` of version 3.0 (APUs)."""
    at = _RESIDENCIES_AT.get(_version(metrics))
    if at is None or len(metrics) < at + 28:
        return None
    return struct.unpack_from("<7I", metrics, at)


def _version(metrics: bytes) -> tuple[int, int]:
    return (metrics[2], metrics[3]) if len(metrics) >= 4 else (0, 0)


def _u16(metrics: bytes, offsets: dict[tuple[int, int], int]) -> float | None:
    at = offsets.get(_version(metrics))
    if at is None or len(metrics) < at + 2:
        return None
    (value,) = struct.unpack_from("<H", metrics, at)
    return None if value == _ABSENT else float(value)


def _dpm_mhz(file: Path) -> float | None:
    """The level marked `*` in a `pp_dpm_*` table."""
    found = re.search(r"(\d+)Mhz\s*\*", _bytes(file).decode("ascii", "replace"), re.IGNORECASE)
    return float(found[1]) if found else None


def _number(file: Path) -> int | None:
    text = _bytes(file).strip()
    return int(text) if text.isdigit() else None


def _bytes(file: Path) -> bytes:
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""
