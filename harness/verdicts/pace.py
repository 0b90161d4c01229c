"""The machine's own pace, timed without any server: whether it is still what it was.

Two things are timed (`machine.pace`): `compute` and `copy`, by all cores together. Both matter to
a server on the CPU; to one on a GPU neither does. The pace of copying is the memory's, so a server
whose weights and KV cache fit into a CPU's caches hardly feels it, unless it moves by half: then
the cores themselves stand otherwise. On a virtual machine two copied at 62 GB/s and read 8K tokens
at 5,750 tok/s for some minutes, and at 30 GB/s and 7,500 tok/s for some others (cores that share a
cache copy slower together, and hand work to each other faster).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from harness.quantities import percent, span
from harness.records.baseline import Baseline
from harness.records.lines import RunRecord
from harness.records.pace import Pace, Taken, on_cpu, paces_of
from harness.verdicts.drift import DRIFT_CONFIDENCE
from harness.verdicts.stats import Estimate, ratio_estimate, same_run_ratio

CACHED_BYTES = 2**28
"""The caches of a large CPU hold up to this much."""
CACHED_LIMIT = 0.5
"""How far copying must have moved to count where the caches hold weights and KV cache."""


@dataclass(frozen=True, slots=True)
class OffPace:
    """The machine was off its pace in the baseline: how, and which speeds that can explain.

    `slowest` and `fastest` are the least and the most that a speed may then be of the baseline's:
    no pace explains more than its own change.
    """

    slowest: float
    fastest: float
    sentence: str

    def explains(self, low: float, high: float, *, band: float) -> bool:
        """Whether a ratio of speeds from `low` to `high` may lie beyond the band by it alone."""
        if high < 1.0:
            return high / self.slowest >= 1.0 - band
        return low / self.fastest <= 1.0 + band

    def joined(self, other: "OffPace | None") -> "OffPace":
        """Both of them: what either explains; the sentence is that of the larger change."""
        if other is None:
            return self
        worst = max(self, other, key=lambda o: max(o.fastest, 1.0 / o.slowest))
        slowest, fastest = min(self.slowest, other.slowest), max(self.fastest, other.fastest)
        return OffPace(slowest, fastest, worst.sentence)


def off_pace(
    record: RunRecord, accepted: Sequence[Pace], band: float
) -> dict[tuple[int, int | None], OffPace]:
    """How far from accepted runs' the machine's pace was, where it moved, by sitting and rung.

    Without a rung it is that before or after a climb, and holds for all of its rungs. Each time the
    pace was taken counts by itself: a machine that changed in a sitting was another one for a part
    of it. Only for servers known to compute on the CPU. Cores that compute slower make a server
    slower; cores that copy slower may mean either (see above).
    """
    found: dict[tuple[int, int | None], OffPace] = {}
    for taken in paces_of(record) if on_cpu(record) else ():
        for name, limit in _limits(record, band):
            ratio = ratio_estimate(
                taken.pace.get(name, ()),
                [run.get(name, ()) for run in accepted],
                confidence=DRIFT_CONFIDENCE,
            )
            if isinstance(ratio, Estimate) and _moved(ratio, limit):
                either = math.exp(abs(math.log(ratio.ratio)))
                told = name == "compute"
                moved = OffPace(
                    min(ratio.ratio, 1.0) if told else 1.0 / either,
                    max(ratio.ratio, 1.0) if told else either,
                    f"{_when(taken)}the machine itself is {percent(ratio.change)} off its pace in "
                    f"the baseline (a fixed computation without any server: {name}, "
                    f"{span(ratio.low - 1, ratio.high - 1)})",
                )
                for depth in _beside(record, taken):
                    key = (taken.sitting, depth)
                    found[key] = moved.joined(found.get(key))
    return found


def _beside(record: RunRecord, taken: Taken) -> tuple[int | None, ...]:
    """Which rungs a pace speaks of: the one it was taken at, and the next one that follows."""
    if taken.depth is None:
        return (None,)
    deeper = [r.depth for r in record.rungs if r.sitting == taken.sitting and r.depth > taken.depth]
    return (taken.depth, min(deeper)) if deeper else (taken.depth,)


def at_pace(record: RunRecord, baseline: Baseline, band: float) -> Baseline:
    """The baseline's runs in whose state the machine was now, where they are two or more.

    A machine of two states is judged state by state, if runs of both were accepted. Else all runs.
    """
    paces = [t for t in paces_of(record) if t.depth is None] if on_cpu(record) else []
    alike = tuple(
        run
        for run in baseline.runs
        if not any(
            isinstance(ratio, Estimate) and _moved(ratio, limit)
            for taken in paces
            for name, limit in _limits(record, band)
            for ratio in [
                same_run_ratio(
                    taken.pace.get(name, ()),
                    run.pace.get(name, ()),
                    confidence=DRIFT_CONFIDENCE,
                    apart=True,
                )
            ]
        )
    )
    return baseline.model_copy(update={"runs": alike}) if len(alike) >= 2 else baseline


def _when(taken: Taken) -> str:
    if taken.depth is not None:
        return f"behind the rung {taken.depth} "
    return "after the run " if taken.position == "after" else ""


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
