"""The cells of one rung, each by its samples against those of the accepted runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from harness.quantities import percent, share, span
from harness.records.baseline import Baseline
from harness.records.lines import Rung, RunRecord
from harness.records.metrics import (
    GENERATION,
    MEMORY,
    METRICS,
    PREFILL,
    RETRIEVAL,
    SPEED,
    TTFT,
    Metric,
)
from harness.records.samples import Samples, disturbances, samples_of, values_of
from harness.verdicts.cell import CellVerdict, failed, failure_code, no_baseline, unfinished
from harness.verdicts.curve import curve_estimate, decide_curve
from harness.verdicts.gpu_state import unless_clocked
from harness.verdicts.laws import broken_law
from harness.verdicts.leak import growth_at
from harness.verdicts.noise import LEVEL_PRIOR, PRIOR
from harness.verdicts.stats import Decision, Estimate, Unjudgeable, open_question
from harness.verdicts.whole import compare_samples

MIN_CLEAN = 3
Bands = Mapping[str, float]


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


def rung_cells(
    record: RunRecord,
    rung: Rung,
    whole: Mapping[str, Mapping[int, CellVerdict]],
    baseline: Baseline | None,
    bands: Bands,
) -> list[CellVerdict]:
    """Its cells in the order of metrics; `whole` has, by depth, those with a rule of their own."""
    mine = samples_of(rung)
    runs = baseline.samples(rung.depth) if baseline is not None else []
    plan, answers = record.header.plan, whole[RETRIEVAL.name][rung.depth]
    cells = []
    for metric in METRICS.values():
        if metric.own_rule:
            cells += [c for c in [whole[metric.name].get(rung.depth)] if c is not None]
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
            if answers.outcome == "INVALID" and metric.kind in SPEED:
                cell = replace(
                    cell,
                    outcome="INVALID",
                    code="answers",
                    message=f"not judged, the answers are invalid: {answers.message}",
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
