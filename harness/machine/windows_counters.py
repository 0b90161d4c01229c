"""Windows' performance counters of GPUs behind one seam: `GPU Engine` and `GPU Process Memory`.

The counters name a process in the instance, `pid_1234_luid_0x…_phys_0_eng_3_engtype_Compute`.
They are read through `pywin32`; a test puts recorded instances in place of it.
"""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

ENGINE_USE = r"\GPU Engine(*)\Utilization Percentage"
DEDICATED = r"\GPU Process Memory(*)\Dedicated Usage"
SHARED = r"\GPU Process Memory(*)\Shared Usage"
ADAPTER_DEDICATED = r"\GPU Adapter Memory(*)\Dedicated Usage"
ADAPTER_SHARED = r"\GPU Adapter Memory(*)\Shared Usage"
INSTALL = "install pywin32 to read Windows' GPU counters"


class Counters(Protocol):
    """Where counter values come from."""

    def read(self, path: str) -> Mapping[str, float] | None:
        """Value by instance of one wildcard path; `None` when Windows doesn't have the counter."""


def process_memory(counters: Counters) -> dict[int, int] | None:
    """Dedicated and shared GPU memory by PID, bytes."""
    used: dict[int, int] = {}
    readable = False
    for path in (DEDICATED, SHARED):
        values = counters.read(path)
        if values is None:
            continue
        readable = True
        for instance, value in values.items():
            pid = instance_pid(instance)
            if pid is not None:
                used[pid] = used.get(pid, 0) + int(value)
    return used if readable else None


def adapter_use(counters: Counters) -> dict[str, tuple[int, int]]:
    """Dedicated and shared memory in use by anybody, bytes, by the adapter's LUID."""
    used: dict[str, tuple[int, int]] = {}
    for index, path in enumerate((ADAPTER_DEDICATED, ADAPTER_SHARED)):
        for instance, value in (counters.read(path) or {}).items():
            luid = instance.partition("_phys_")[0]
            both = [*used.get(luid, (0, 0))]
            both[index] += int(value)
            used[luid] = (both[0], both[1])
    return used


def process_use(counters: Counters) -> dict[int, float] | None:
    """Share of the busiest GPU engine that each process keeps busy, by PID (1.0 = one engine)."""
    values = counters.read(ENGINE_USE)
    if values is None:
        return None
    use: dict[int, float] = {}
    for instance, percent in values.items():
        pid = instance_pid(instance)
        if pid is not None:
            use[pid] = max(use.get(pid, 0.0), percent / 100)
    return use


def instance_pid(instance: str) -> int | None:
    """The PID in an instance name."""
    found = re.match(r"pid_(\d+)_", instance)
    return int(found[1]) if found else None


@dataclass(slots=True)
class PdhCounters:
    """`Counters` over `win32pdh`. A rate counter has no value at its first reading."""

    pdh: Any
    _queries: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def read(self, path: str) -> Mapping[str, float] | None:
        """See `Counters`."""
        try:
            if path not in self._queries:
                query = self.pdh.OpenQuery()
                # The English name: the plain call wants names in Windows' own language.
                self._queries[path] = (query, self.pdh.AddEnglishCounter(query, path))
            query, counter = self._queries[path]
            self.pdh.CollectQueryData(query)
            found = self.pdh.GetFormattedCounterArray(counter, self.pdh.PDH_FMT_DOUBLE)
        except self.pdh.error:
            return None
        return {str(name): float(value) for name, value in found.items()}


def open_counters() -> Counters | None:
    """The counters of this machine; `None` elsewhere than on Windows or without pywin32."""
    try:
        pdh = importlib.import_module("win32pdh")
    except ImportError:  # everywhere but on Windows
        return None
    return PdhCounters(pdh)
