"""The machine's own pace, timed without any server: whether it is still what it was.

Two things are timed (`machine.pace`): `compute` and `copy`, by all cores together. Both matter to
a server on the CPU; to one on a GPU neither does. The pace of copying is the memory's, so a server
whose weights and KV cache fit into a CPU's caches hardly feels it, unless it moves by half: then
the cores themselves stand otherwise. On a virtual machine two copied at 62 GB/s and read 8K tokens
at 5,750 tok/s for some minutes, and at 30 GB/s and 7,500 tok/s for some others (cores that share a
cache copy slower together, and hand work to each other faster).
"""

from collections.abc import Iterator, Mapping, Sequence

from harness.core.drift import DRIFT_CONFIDENCE
from harness.core.records import RunRecord
from harness.core.stats import Estimate, Unjudgeable, ratio_estimate, same_run_ratio

Pace = Mapping[str, Sequence[float]]
"""Samples by what was timed."""

CACHED_BYTES = 2**28
"""The caches of a large CPU hold up to this much."""
CACHED_LIMIT = 0.5
"""How far copying must have moved to count where the caches hold weights and KV cache."""


def paces_of(record: RunRecord) -> tuple[Pace, ...]:
    """Each time the pace was taken in a run, in order."""
    return tuple(
        {name: values for name, values in e.data.items() if name != "position"}
        for e in record.events
        if e.code == "pace"
    )


def pooled_pace(record: RunRecord) -> dict[str, tuple[float, ...]]:
    """All samples of a run, by what was timed (units as in the record)."""
    paces = paces_of(record)
    names = sorted({name for pace in paces for name in pace})
    return {name: tuple(v for pace in paces for v in pace.get(name, ())) for name in names}


def on_cpu(record: RunRecord) -> bool:
    """Whether the server's log says that it computed on the CPU."""
    return record.event_data("server_log").get("on_gpu") is False


def off_pace(record: RunRecord, accepted: Sequence[Pace], band: float) -> str | None:
    """Why a run's speeds cannot be compared with accepted runs': the machine moved; else `None`.

    Any single time that the pace was taken counts: a machine that changed in mid-run was another
    one for a part of it. Only for servers known to compute on the CPU.
    """
    if not on_cpu(record):
        return None
    for pace in paces_of(record):
        for name, limit in _limits(record, band):
            ratio = ratio_estimate(
                pace.get(name, ()),
                [run.get(name, ()) for run in accepted],
                confidence=DRIFT_CONFIDENCE,
            )
            if isinstance(ratio, Estimate) and _moved(ratio, limit):
                return (
                    f"the machine itself is {ratio.change:+.0%} off its pace in the baseline (a "
                    f"fixed computation without any server: {name}, {ratio.low - 1:+.0%} to "
                    f"{ratio.high - 1:+.0%})"
                )
    return None


def changed_between(records: Sequence[RunRecord], band: float) -> str | None:
    """How the machine's pace changed over runs measured after one another; `None` if it did not.

    Only by more than the whole band: less than that, runs that alternate share between them.
    """
    known = [(pace, record) for record in records if on_cpu(record) for pace in paces_of(record)]
    for pace, record in known[1:]:
        for name, limit in _limits(record, 2.0 * band):
            ratio = same_run_ratio(
                pace.get(name, ()), known[0][0].get(name, ()), confidence=DRIFT_CONFIDENCE
            )
            if not isinstance(ratio, Unjudgeable) and _moved(ratio, limit):
                return f"the machine's own pace changed by {ratio.change:+.0%} ({name})"
    return None


def _limits(record: RunRecord, band: float) -> Iterator[tuple[str, float]]:
    yield "compute", band / 2.0
    yield "copy", CACHED_LIMIT if _in_caches(record) else band / 2.0


def _moved(ratio: Estimate, limit: float) -> bool:
    """Beyond 1 ± `limit`, a shrinking by the inverse of it, and told from no change."""
    beyond = ratio.ratio > 1.0 + limit or ratio.ratio < 1.0 / (1.0 + limit)
    return beyond and not ratio.low <= 1.0 <= ratio.high


def _in_caches(record: RunRecord) -> bool:
    log = record.event_data("server_log")
    weights, kv = log.get("weight_bytes_per_token"), log.get("kv") or {}
    cache = kv.get("theory_bytes")
    return weights is not None and cache is not None and weights + cache < CACHED_BYTES
