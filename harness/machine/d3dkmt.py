"""Windows' graphics kernel behind one seam: memory segments and clocks of each adapter.

`gdi32`'s D3DKMT calls, as Task Manager uses them; structures are those of `d3dkmthk.h`. A test
puts its own functions in place of the library. Anything refused is "not readable".
"""

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.machine.load import GpuState

_SEGMENT_SIZE, _REGISTRY_INFO, _ADAPTER_TYPE, _NODE_PERF, _ADAPTER_PERF = 3, 8, 15, 61, 62
_SOFTWARE, _INTEGRATED = 0x4, 0x20  # the second is set in machines with two kinds of GPU
_MOST_ADAPTERS = 16


class _AdapterInfo(ctypes.Structure):
    _fields_ = (
        ("handle", ctypes.c_uint32),
        ("luid_low", ctypes.c_uint32),
        ("luid_high", ctypes.c_int32),
        ("sources", ctypes.c_uint32),
        ("precise", ctypes.c_int32),
    )


class _EnumAdapters(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint32), ("adapters", ctypes.POINTER(_AdapterInfo)))


class _Query(ctypes.Structure):
    _fields_ = (
        ("handle", ctypes.c_uint32),
        ("type", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint32),
    )


class _Segments(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_uint64) for n in ("dedicated", "dedicated_system", "shared"))


class _Type(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_uint32),)


class _Registry(ctypes.Structure):
    _fields_ = tuple((n, ctypes.c_uint16 * 260) for n in ("name", "bios", "dac", "chip"))


class _Node(ctypes.Structure):
    _fields_ = (
        ("node", ctypes.c_uint32),
        ("adapter", ctypes.c_uint32),
        ("hz", ctypes.c_uint64),
        ("max_hz", ctypes.c_uint64),
        ("max_oc_hz", ctypes.c_uint64),
        *((n, ctypes.c_uint32) for n in ("voltage", "voltage_max", "voltage_max_oc")),
        ("latency", ctypes.c_uint64),
    )


class _Perf(ctypes.Structure):
    _fields_ = (
        ("adapter", ctypes.c_uint32),
        *((n, ctypes.c_uint64) for n in ("memory_hz", "max_hz", "max_oc_hz", "memory", "pcie")),
        *((n, ctypes.c_uint32) for n in ("fan_rpm", "power_per_mille", "deci_c")),
        ("override", ctypes.c_ubyte),
    )


@dataclass(frozen=True, slots=True)
class Segments:
    """An adapter's memory, bytes: its own, and what it may borrow of the machine's.

    `luid` names it in the performance counters, `luid_0x00000000_0x0000FAD4`; `integrated` says
    that it is a part of the processor.
    """

    name: str
    dedicated_bytes: int
    shared_bytes: int
    luid: str = ""
    integrated: bool = False


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters that compute; `library` is `gdi32` or what stands in for it in a test."""

    library: Any

    def segments(self) -> tuple[Segments, ...]:
        """Memory of each adapter, in the system's order."""
        return tuple(
            Segments(name, sizes.dedicated, sizes.shared, luid, integrated)
            for handle, name, luid, integrated in self._opened()
            if (sizes := self._ask(handle, _SEGMENT_SIZE, _Segments())) is not None
        )

    def states(self) -> list[GpuState]:
        """Clocks of each adapter; an adapter that tells none is left out."""
        found = []
        for handle, name, _, _ in self._opened():
            node = self._ask(handle, _NODE_PERF, _Node())
            perf = self._ask(handle, _ADAPTER_PERF, _Perf())
            core_mhz = node.hz / 1e6 if node is not None and node.hz else None
            memory_mhz = perf.memory_hz / 1e6 if perf is not None and perf.memory_hz else None
            if core_mhz or memory_mhz:
                found.append(GpuState(name, "D3DKMT", core_mhz=core_mhz, memory_mhz=memory_mhz))
        return found

    def _opened(self) -> Iterator[tuple[int, str, str, bool]]:
        """Handle, name, LUID and whether it is integrated, of each adapter that is no software.

        It is closed afterwards.
        """
        infos = (_AdapterInfo * _MOST_ADAPTERS)()
        wanted = _EnumAdapters(_MOST_ADAPTERS, infos)
        if self.library.D3DKMTEnumAdapters2(ctypes.byref(wanted)) != 0:
            return
        for info in infos[: min(wanted.count, _MOST_ADAPTERS)]:
            handle = ctypes.c_uint32(info.handle)
            try:
                kind = self._ask(info.handle, _ADAPTER_TYPE, _Type())
                registry = self._ask(info.handle, _REGISTRY_INFO, _Registry())
                if kind is not None and not kind.bits & _SOFTWARE:
                    raw = bytes(registry.name) if registry is not None else b""
                    name = raw.decode("utf-16-le", "replace").partition("\0")[0]
                    luid = f"luid_0x{info.luid_high & 0xFFFFFFFF:08X}_0x{info.luid_low:08X}"
                    integrated = bool(kind.bits & _INTEGRATED)
                    yield info.handle, name or luid, luid, integrated
            finally:
                self.library.D3DKMTCloseAdapter(ctypes.byref(handle))

    def _ask(self, handle: int, kind: int, answer: Any) -> Any:
        query = _Query(
            handle,
            kind,
            ctypes.cast(ctypes.pointer(answer), ctypes.c_void_p),
            ctypes.sizeof(answer),
        )
        return answer if self.library.D3DKMTQueryAdapterInfo(ctypes.byref(query)) == 0 else None


def open_adapters() -> Adapters | None:
    """The adapters of this machine; `None` elsewhere than on Windows."""
    if sys.platform == "win32":
        return Adapters(ctypes.WinDLL("gdi32"))
    return None
