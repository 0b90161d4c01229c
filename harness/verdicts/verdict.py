"""Verdicts: one outcome and one reason per (depth, metric) cell, from a record and its baseline.

A pure function of what was recorded: a run on disk can be judged again with another band. What a
cell says never exceeds what its samples show.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.quantities import percent, share, span
from harness.records.baseline import Baseline, key_of, log_warnings
from harness.records.lines import Rung, RunRecord
from harness.records.metrics import (
    FIDELITY,
    GENERATION,
    MEMORY,
    METRICS,
    PREFILL,
    RETRIEVAL,
    SPEED,
    TTFT,
    Metric,
)
from harness.records.outcomes import OUTCOMES, Outcome, worst
from harness.records.samples import Samples, disturbances, samples_of, values_of
from harness.verdicts.anchor import anchor_of, held_against_anchor
from harness.verdicts.cell import CellVerdict, failed, failure_code, no_baseline, unfinished
from harness.verdicts.curve import curve_estimate, decide_curve
from harness.verdicts.drift import Drift, could_explain, drifts_of, stepped
from harness.verdicts.fidelity import judge_fidelity, own_floor
from harness.verdicts.gpu_state import unless_clocked
from harness.verdicts.laws import broken_law, never_reached, unclosed
from harness.verdicts.leak import growth_at
from harness.verdicts.noise import LEVEL_PRIOR, PRIOR
from harness.verdicts.pace import OffPace, at_pace, off_pace
from harness.verdicts.retrieval import judge_retrieval
from harness.verdicts.stats import (
    Decision,
    Estimate,
    Unjudgeable,
    open_question,
    significant_in_run,
)
from harness.verdicts.whole import compare_samples

MIN_CLEAN = 3


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


Bands = Mapping[str, float]


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
    said = (*differences(record, every), *_missing(record))
    return RunVerdict(tuple(cells), steadiness, said)


def wanted(rung: Rung, baseline: Baseline | None, bands: Bands) -> frozenset[Metric]:
    """Metrics of a rung that more requests may decide; memory until its growth ends or leaks."""
    growing = {MEMORY} if growth_at(rung).outcome == "GROWING" else set[Metric]()
    return undecided(rung, baseline, bands) | disturbed_metrics(rung) | growing


def undecided(rung: Rung, baseline: Baseline | None, bands: Bands) -> frozenset[Metric]:
    """Metrics of a rung for which more samples of this run may still change the verdict."""
    if baseline is None:
        return frozenset()
    mine, runs = samples_of(rung), baseline.samples(rung.depth)
    found = set()
    for metric in (PREFILL, GENERATION, TTFT):
        decision, estimate, _ = _compare(metric, mine, runs, bands[metric.name])
        if metric is PREFILL or isinstance(estimate, Unjudgeable):  # batches are no repeats
            more = decision == "UNDECIDED"
        else:
            more = open_question(decision, estimate)
        if more:
            found.add(metric)
    return frozenset(found)


def disturbed_metrics(rung: Rung) -> frozenset[Metric]:
    """Metrics of a rung of which fewer than `MIN_CLEAN` samples were taken undisturbed."""
    clean = samples_of(rung)
    need = {PREFILL: 1, GENERATION: MIN_CLEAN, TTFT: MIN_CLEAN}
    return frozenset(
        metric
        for metric, count in need.items()
        if disturbances(rung, metric) and len(values_of(metric, clean)) < count
    )


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
                yield f"rung {depth}: planned, and not in the record"


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


# -- cells of one rung ----------------------------------------------------------------------


def _against(
    record: RunRecord,
    rungs: Sequence[Rung],
    every: Baseline | None,
    baseline: Baseline | None,
    bands: Bands,
) -> list[CellVerdict]:
    answers, floor = judge_retrieval(rungs, every), own_floor(record)
    keys = key_of(record.header).differences(every.key) if every is not None else {}
    differing = (
        *(f"{name} {_shown(then)} → {_shown(now)}" for name, (now, then) in keys.items()),
        *differences(record, every),
    )
    return [
        cell
        for rung in rungs
        for cell in (
            *_rung_cells(record, rung, answers[rung.depth], baseline, bands),
            judge_fidelity(rung, floor, every, differing),
        )
        if cell is not None
    ]


def _rung_cells(
    record: RunRecord,
    rung: Rung,
    retrieval: CellVerdict,
    baseline: Baseline | None,
    bands: Bands,
) -> list[CellVerdict]:
    mine = samples_of(rung)
    runs = baseline.samples(rung.depth) if baseline is not None else []
    plan = record.header.plan
    cells = []
    for metric in METRICS.values():
        if metric is FIDELITY:
            continue
        if metric is RETRIEVAL:
            cells.append(retrieval)
            continue
        cell = _measured(metric, rung, mine, runs, baseline, bands[metric.name])
        if rung.failure is not None and unfinished(metric, rung, plan.repeats):
            cell = replace(cell, outcome="ERROR", code=failure_code(rung), message=failed(rung))
        if metric is MEMORY:
            kv = record.event_data("server_log").get("kv") or {}
            growth = growth_at(rung, kv.get("bytes_per_token"))
            if growth.outcome == "LEAK":
                cell = replace(cell, outcome="LEAK", code="leak", message=growth.reason)
        if cell.outcome not in ("ERROR", "INVALID"):
            if retrieval.outcome == "INVALID" and metric.kind in SPEED:
                cell = replace(
                    cell,
                    outcome="INVALID",
                    code="answers",
                    message=f"not judged, the answers are invalid: {retrieval.message}",
                )
            elif broken := broken_law(metric, record, rung):
                cell = replace(
                    cell, outcome="INVALID", code="impossible", message=f"impossible: {broken}"
                )
        cells.append(cell)
    return [c for c in cells if c.measured is not None] if record.imported else cells


def _measured(
    metric: Metric,
    rung: Rung,
    mine: Samples,
    runs: Sequence[Samples],
    baseline: Baseline | None,
    band: float,
) -> CellVerdict:
    values = values_of(metric, mine)
    shown = values or values_of(metric, samples_of(rung, contended=True))
    cell = CellVerdict(
        rung.depth, metric, "PASS", None, "", measured=median(shown) if shown else None
    )
    disturbed = disturbances(rung, metric)
    if disturbed and not values:
        return replace(cell, outcome="INCONCLUSIVE", code="contention", message=disturbed[-1])
    if not values:
        if rung.failure is not None:
            return replace(cell, outcome="ERROR", code=failure_code(rung), message=failed(rung))
        return replace(
            cell, outcome="INCONCLUSIVE", code="not_measured", message="not measured at this rung"
        )
    theirs = [values_of(metric, run) for run in runs]
    pooled = [median(v) for v in theirs if v]
    if not pooled:
        return no_baseline(cell, baseline)
    cell = replace(cell, baseline=median(pooled))
    decision, estimate, where = _compare(metric, mine, runs, band)
    if isinstance(estimate, Unjudgeable):
        return replace(
            cell,
            outcome="INCONCLUSIVE",
            code="contention" if disturbed else _too_few(estimate),
            message=disturbed[-1] if disturbed else f"{estimate.reason}; needed: {estimate.needed}",
        )
    cell = cell.estimated(estimate)
    wide = metric.min_effect > band * estimate.baseline
    limit = f"{metric.min_effect:g} {metric.unit}" if wide else share(band)
    said = f"{_change(cell)} against a band of ±{limit}" + (f"; {where}" if where else "")
    if decision == "UNDECIDED":
        return replace(
            cell, outcome="INCONCLUSIVE", code="noise", message=f"{said}: not decided by its noise"
        )
    code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(decision)
    return unless_clocked(
        replace(cell, outcome=decision, code=code, message=said), mine, runs, band
    )


def _too_few(why: Unjudgeable) -> str:
    return "few_runs" if "baseline run" in why.reason else "too_few"


def _compare(
    metric: Metric, mine: Samples, runs: Sequence[Samples], band: float
) -> tuple[Decision, Estimate | Unjudgeable, str | None]:
    """The decision, what it rests on, and in words where a curve departs or what was set aside."""
    if metric is PREFILL:
        curve = curve_estimate(
            mine.chunks,
            [run.chunks for run in runs],
            band=band,
            readings=(mine.prefill_tok_s, [run.prefill_tok_s for run in runs]),
        )
        if not isinstance(curve, Unjudgeable):
            return decide_curve(curve, band=band)
    return compare_samples(
        values_of(metric, mine),
        [values_of(metric, run) for run in runs],
        band=band,
        direction=metric.direction,
        min_effect=metric.min_effect,
        prior=LEVEL_PRIOR if metric is MEMORY else PRIOR,
    )


def _change(cell: CellVerdict) -> str:
    assert cell.change is not None
    assert cell.low is not None
    assert cell.high is not None
    return f"{percent(cell.change)} ({span(cell.low, cell.high)})"


# -- laws, drift and many cells at once -----------------------------------------------------


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
