"""Memory pressure of the whole machine: waiting for memory, swapping, what is still free."""

import contextlib
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Pressure:
    """Since boot: seconds in which some task waited for memory, bytes swapped in and out.

    `available_bytes` is what programs could still get now without swapping.
    """

    stall_s: float | None
    swapped_bytes: int | None
    available_bytes: int | None


@dataclass(frozen=True, slots=True)
class PressureProbe:
    """Reads `/proc` where there is one (pressure stall information, `vmstat`), else psutil."""

    proc: Path = Path("/proc")

    def read(self) -> Pressure:
        """The counters now; what isn't readable is `None`."""
        return Pressure(self._stall_s(), self._swapped_bytes(), self._available_bytes())

    def _available_bytes(self) -> int | None:
        with contextlib.suppress(OSError):
            text = (self.proc / "meminfo").read_text(encoding="ascii")
            found = re.search(r"^MemAvailable:\s*(\d+) kB$", text, flags=re.MULTILINE)
            if found:
                return int(found[1]) * 1024
        with contextlib.suppress(OSError, RuntimeError):
            return int(psutil.virtual_memory().available)
        return None

    def _stall_s(self) -> float | None:
        with contextlib.suppress(OSError):
            text = (self.proc / "pressure/memory").read_text(encoding="ascii")
            found = re.search(r"^some .*total=(\d+)", text, flags=re.MULTILINE)
            if found:
                return int(found[1]) / 1e6  # the file is in microseconds
        return None

    def _swapped_bytes(self) -> int | None:
        with contextlib.suppress(OSError):
            text = (self.proc / "vmstat").read_text(encoding="ascii")
            pages = re.findall(r"^pswp(?:in|out) (\d+)$", text, flags=re.MULTILINE)
            if pages:
                return sum(int(count) for count in pages) * mmap.PAGESIZE
        with contextlib.suppress(OSError, RuntimeError):
            swap = psutil.swap_memory()
            if not psutil.WINDOWS:  # there both counters are always 0
                return int(swap.sin + swap.sout)
        return None
