"""The readings of a window of time: sums and shares of what lies within it.

A reading that overlaps the window in part counts by that part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from harness.machine.load import ProcessUse, Reading

Key = TypeVar("Key", str, int)
GRAIN_S = 0.02  # a difference of two CPU counters of 10 ms grain is off by up to this much


@dataclass(slots=True)
class Window:
    """The readings that overlap a window, each with the share of it that lies within."""

    readings: Sequence[Reading]
    start_ns: int
    end_ns: int
    parts: list[tuple[Reading, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = []
        for reading in self.readings:
            inside = overlap(reading.start_ns, reading.end_ns, self.start_ns, self.end_ns)
            if inside > 0:
                self.parts.append((reading, inside / (reading.end_ns - reading.start_ns)))

    def amount(self, read: Callable[[Reading], float | None]) -> tuple[float, float] | None:
        """Sum of a quantity in the window and the seconds in which it was readable."""
        known = [(read(r), r, part) for r, part in self.parts]
        amounts = [(value * part, r.span_s * part) for value, r, part in known if value is not None]
        if not amounts:
            return None
        return sum(a for a, _ in amounts), sum(span for _, span in amounts)

    def beyond_grain(self, read: Callable[[Reading], float | None], limit: float) -> bool:
        """Whether the readings as wholes exceed `limit` per second by more than their grain.

        As wholes: a window of 0.1 s in the middle of a reading of 1 s is judged by all of it.
        """
        known = [(value, r.span_s) for r, _ in self.parts if (value := read(r)) is not None]
        return sum(value - limit * span for value, span in known) > GRAIN_S

    def processes(self, by: Callable[[ProcessUse], Key]) -> dict[Key, float]:
        """CPU seconds of the named processes, summed by PID or by name."""
        used: dict[Key, float] = {}
        for reading, part in self.parts:
            for use in reading.processes:
                used[by(use)] = used.get(by(use), 0.0) + use.cpu_s * part
        return used

    def gpu(self) -> dict[tuple[int, str], float] | None:
        """Mean share of a GPU by process over the readings that could tell."""
        known = [(r, r.span_s * part) for r, part in self.parts if r.gpu is not None]
        seconds = sum(span for _, span in known)
        if not known or seconds <= 0:
            return None
        used: dict[tuple[int, str], float] = {}
        for reading, span in known:
            for use in reading.gpu or ():
                who = (use.pid, use.name)
                used[who] = used.get(who, 0.0) + use.share * span / seconds
        return used

    @property
    def cpus(self) -> int:
        return self.parts[-1][0].cpus


def overlap(start: int, end: int, other_start: int, other_end: int) -> int:
    """How much two spans of time share, 0 where they are apart."""
    return max(0, min(end, other_end) - max(start, other_start))
