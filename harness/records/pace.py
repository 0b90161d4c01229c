"""The machine's own pace as a record keeps it: each time it was taken, by sitting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.records.lines import RESUMED, RunRecord

Pace = Mapping[str, Sequence[float]]
"""Samples by what was timed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The pace, taken once: in which sitting, and `before` or `after` its climb.

    Taken behind a `rung` it has that one's `depth`, and says nothing of other rungs.
    """

    sitting: int
    position: str
    pace: Pace
    depth: int | None = None


def paces_of(record: RunRecord) -> tuple[Taken, ...]:
    """Each time the pace was taken in a run, in order."""
    found, sitting = [], 1
    for event in record.events:
        sitting += event.code == RESUMED
        if event.code == "pace":
            data = dict(event.data)
            position, depth = str(data.pop("position", None)), data.pop("depth", None)
            found.append(Taken(sitting, position, data, depth))
    return tuple(found)


def pooled_pace(record: RunRecord) -> dict[str, tuple[float, ...]]:
    """All samples of a run, by what was timed (units as in the record)."""
    paces = [taken.pace for taken in paces_of(record)]
    names = sorted({name for pace in paces for name in pace})
    return {name: tuple(v for pace in paces for v in pace.get(name, ())) for name in names}


def on_cpu(record: RunRecord) -> bool:
    """Whether the server's log says that it computed on the CPU."""
    return record.event_data("server_log").get("on_gpu") is False
