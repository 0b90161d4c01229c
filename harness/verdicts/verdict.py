"""Verdicts: one outcome and one reason per (depth, metric) cell, from a record and its baseline.

A pure function of what was recorded: a run on disk can be judged again with another band. What a
cell says never exceeds what its samples show.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.quantities import depth_label
from harness.records.baseline import Baseline, key_of, log_warnings
from harness.records.lines import NOT_SPOT, SPOT, Rung, RunRecord
from harness.records.metrics import (
    FIDELITY,
    GENERATION,
    PREFILL,
    RETRIEVAL,
)
from harness.records.outcomes import OUTCOMES, Outcome, worst
from harness.verdicts.anchor import anchor_of, held_against_anchor
from harness.verdicts.cell import CellVerdict
from harness.verdicts.drift import Drift, could_explain, drifts_of, stepped
from harness.verdicts.fidelity import judge_fidelity
from harness.verdicts.laws import never_reached, unclosed
from harness.verdicts.pace import OffPace, at_pace, off_pace
from harness.verdicts.retrieval import judge_retrieval
from harness.verdicts.rung import Bands, rung_cells
from harness.verdicts.stats import (
    significant_in_run,
)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """All cells of a run, the drift of its controls, and how its setting differs from before."""

    cells: tuple[CellVerdict, ...]
    drift: tuple[Drift, ...]
    differences: tuple[str, ...]

    def cell(self, depth: int, metric: str) -> CellVerdict | None:
        """The verdict of one cell."""
        found = (c for c in self.cells if c.depth == depth and c.metric.name == metric)
        return next(found, None)

    @property
    def outcome(self) -> Outcome:
        """The run's own outcome: its worst cell's."""
        return worst(cell.outcome for cell in self.cells)

    @property
    def exit_code(self) -> int:
        """0 PASS, IMPROVED; 1 REGRESSED, LEAK; 2 undecided or no baseline; 3 INVALID, ERROR."""
        return OUTCOMES[self.outcome].exit_code


def judge(record: RunRecord, baseline: Baseline | None, bands: Bands) -> RunVerdict:
    """Judge every cell of a record.

    Args:
        record: what was measured.
        baseline: accepted runs of the same key, or `None`.
        bands: noise band by metric name, shares.
    """
    every = baseline
    if baseline is not None:
        baseline = at_pace(record, baseline, bands[PREFILL.name])
    rungs = [
        rung
        for depth in record.header.plan.depths
        if (rung := record.rung(depth) or never_reached(record, depth)) is not None
    ]
    cells = _against(record, rungs, every, baseline, bands)
    if (anchor := anchor_of(every)) is not None:
        first = _against(record, rungs, anchor, anchor, bands)
        cells = held_against_anchor(cells, first, anchor, bands)
    cells = hold_run_level(cells)
    if baseline is not None:
        paces = off_pace(record, [run.pace for run in baseline.runs], bands[PREFILL.name])
        for off_at, off in paces.items():
            cells = [
                _unless_off_pace(cell, off, bands)
                if off_at in ((at := _sitting(record, cell.depth), None), (at, cell.depth))
                else cell
                for cell in cells
            ]
    moved = {rung.depth: drifts_of(record, rung.depth, bands) for rung in rungs}
    cells = [_unless_steady(cell, record, moved[cell.depth], bands) for cell in cells]
    cells = [
        _unless_steady(cell, record, stepped(record, cell.depth, bands), bands)
        if cell.metric is GENERATION and cell.outcome in ("REGRESSED", "IMPROVED")
        else cell
        for cell in cells
    ]
    steadiness = tuple(dict.fromkeys(drift for found in moved.values() for drift in found))
    spotted = (e.message for e in record.events if e.code in (SPOT, NOT_SPOT))
    said = (*differences(record, every), *_missing(record), *spotted)
    return RunVerdict(tuple(cells), steadiness, said)


def differences(record: RunRecord, baseline: Baseline | None) -> tuple[str, ...]:
    """What else differs between this run and the newest accepted one: build, OS, flags, machine."""
    if baseline is None or not baseline.runs:
        return ()
    then, now = baseline.runs[-1], record.header
    pairs: list[tuple[str, object, object]] = [
        ("server build", then.build, now.server.build),
        ("OS", then.os, now.machine.os),
        ("driver", then.driver, now.machine.driver),
    ]
    for name in sorted({*then.noted, *now.server.noted}):
        pairs.append((name, then.noted.get(name), now.server.noted.get(name)))
    before, today = then.conditions, now.machine.conditions
    for name in sorted({*before, *today}) if before and today else ():
        pairs.append((name, before.get(name), today.get(name)))
    known = set(then.warnings)
    return (
        *(f"{n} {_shown(a)} → {_shown(b)}" for n, a, b in pairs if a != b),
        *(f"new warning in the server's log: {w}" for w in log_warnings(record) if w not in known),
    )


def _missing(record: RunRecord) -> Iterator[str]:
    """Rungs that a run planned, and that its record does not have though it came to its end."""
    if record.footer is not None and record.footer.complete and record.rungs:
        for depth in record.header.plan.depths:
            if record.rung(depth) is None:
                yield f"{depth_label(depth)} was planned, and is not in the record"


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


def _against(
    record: RunRecord,
    rungs: Sequence[Rung],
    every: Baseline | None,
    baseline: Baseline | None,
    bands: Bands,
) -> list[CellVerdict]:
    keys = key_of(record.header).differences(every.key) if every is not None else {}
    differing = (
        *(f"{name} {_shown(then)} → {_shown(now)}" for name, (now, then) in keys.items()),
        *differences(record, every),
    )
    whole = {
        RETRIEVAL.name: judge_retrieval(rungs, every),
        FIDELITY.name: judge_fidelity(record, rungs, every, differing),
    }
    return [c for rung in rungs for c in rung_cells(record, rung, whole, baseline, bands)]


# -- pace, drift and many cells at once -----------------------------------------------------


def _unless_off_pace(cell: CellVerdict, off: OffPace, bands: Bands) -> CellVerdict:
    """A cell, taken back if the machine was off its pace, unless no pace explains its change."""
    if cell.low is None or cell.high is None:
        return cell
    low, high = 1.0 + cell.low, 1.0 + cell.high
    if cell.metric.direction == "lower":
        low, high = 1.0 / high, 1.0 / low
    changed = cell.outcome in ("REGRESSED", "IMPROVED")
    if changed and not off.explains(low, high, band=bands[cell.metric.name]):
        return replace(cell, message=f"{cell.message}; {off.sentence}, which does not explain it")
    return cell.withheld("pace", off.sentence)


def _unless_steady(
    cell: CellVerdict, record: RunRecord, moved: Sequence[Drift], bands: Bands
) -> CellVerdict:
    """A cell, taken back if what it is held against moved or is not there."""
    sitting = _sitting(record, cell.depth)
    worst = next((d for d in moved if d.state == "drifted"), None)
    why = worst.sentence if worst is not None else None
    if why is None:
        why = next((d.sentence for d in moved if _explains(d, cell, bands)), None)
        why = why and f"{why}, and half of that would explain it"
    if why is None and sitting == record.sittings:
        why = unclosed(record)
    if sitting < record.sittings and not moved:
        why = "no control was measured after it"
    if why is None:
        return cell
    if sitting < record.sittings:
        why = f"it was measured in sitting {sitting} of {record.sittings}, and {why}"
    return cell.withheld("drift", why)


def _sitting(record: RunRecord, depth: int) -> int:
    rung = record.rung(depth)
    return rung.sitting if rung is not None else record.sittings


def _explains(drift: Drift, cell: CellVerdict, bands: Bands) -> bool:
    if cell.outcome not in ("REGRESSED", "IMPROVED") or cell.low is None or cell.high is None:
        return False
    return could_explain(
        drift,
        1.0 + cell.low,
        1.0 + cell.high,
        band=bands[cell.metric.name],
        direction=cell.metric.direction,
    )


def hold_run_level(cells: list[CellVerdict]) -> list[CellVerdict]:
    """Name a change only if it holds with all cells of the run judged at once (Holm).

    The answers of all rungs have been judged at once already, as a family of their own.
    """
    tested = [c for c in cells if c.p_no_change is not None and c.metric is not RETRIEVAL]
    named = significant_in_run([c.p_no_change or 0.0 for c in tested])
    spared = {id(c) for c, significant in zip(tested, named, strict=True) if not significant}
    return [
        replace(c, outcome="INCONCLUSIVE", code="together")
        if id(c) in spared and c.outcome in ("REGRESSED", "IMPROVED")
        else c
        for c in cells
    ]
