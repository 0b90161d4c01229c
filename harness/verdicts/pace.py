"""The machine's own pace, timed without any server: whether it is still what it was.

Two things are timed (`machine.pace`): `compute` and `copy`, by all cores together. Both matter to
a server on the CPU; to one on a GPU neither does. The pace of copying is the memory's, so a server
whose weights and KV cache fit into a CPU's caches hardly feels it, unless it moves by half: then
the cores themselves stand otherwise. On a virtual machine two copied at 62 GB/s and read 8K tokens
at 5,750 tok/s for some minutes, and at 30 GB/s and 7,500 tok/s for some others (cores that share a
cache copy slower together, and hand work to each other faster).
"""

from collections.abc import Iterator, Sequence
from statistics import median

from harness.records.lines import RunRecord
from harness.records.pace import Pace, on_cpu, paces_of
from harness.verdicts.drift import DRIFT_CONFIDENCE
from harness.verdicts.stats import Estimate, ratio_estimate, same_run_ratio

CACHED_BYTES = 2**28
"""The caches of a large CPU hold up to this much."""
CACHED_LIMIT = 0.5
"""How far copying must have moved to count where the caches hold weights and KV cache."""


def off_pace(record: RunRecord, accepted: Sequence[Pace], band: float) -> dict[int, str]:
    """Why speeds cannot be compared with accepted runs', by sitting: the machine moved.

    Each time the pace was taken counts by itself: a machine that changed in a sitting was another
    one for a part of it. Only for servers known to compute on the CPU.
    """
    found: dict[int, str] = {}
    for taken in paces_of(record) if on_cpu(record) else ():
        for name, limit in _limits(record, band):
            ratio = ratio_estimate(
                taken.pace.get(name, ()),
                [run.get(name, ()) for run in accepted],
                confidence=DRIFT_CONFIDENCE,
            )
            if isinstance(ratio, Estimate) and _moved(ratio, limit):
                found[taken.sitting] = (
                    f"the machine itself is {ratio.change:+.0%} off its pace in the baseline (a "
                    f"fixed computation without any server: {name}, {ratio.low - 1:+.0%} to "
                    f"{ratio.high - 1:+.0%})"
                )
    return found


def changed_within(record: RunRecord, band: float) -> str | None:
    """How the machine's pace changed while a run was measured; `None` if by less than the band."""
    return _changed([taken.pace for taken in paces_of(record)], [record], band)


def changed_between(records: Sequence[RunRecord], band: float) -> str | None:
    """How the machine's pace changed over runs measured after one another; `None` if it did not.

    Only by more than the whole band: less than that, runs that alternate share between them. Paces
    before runs are compared with each other, and those after: load that each run brings is theirs.
    """
    for position in ("before", "after"):
        paces = [t.pace for r in records for t in paces_of(r) if t.position == position]
        if said := _changed(paces, records, band):
            return said
    return None


def _changed(paces: Sequence[Pace], records: Sequence[RunRecord], band: float) -> str | None:
    for name, limit in _limits(records[0], 2.0 * band) if all(map(on_cpu, records)) else ():
        known = sorted((list(pace[name]) for pace in paces if pace.get(name)), key=median)
        if len(known) < 2:
            continue
        ratio = same_run_ratio(known[-1], known[0], confidence=DRIFT_CONFIDENCE)
        if isinstance(ratio, Estimate) and _moved(ratio, limit):
            return f"the machine's own pace changed by a factor of {ratio.ratio:.2f} ({name})"
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
