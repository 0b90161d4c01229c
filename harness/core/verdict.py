"""Verdicts: one outcome and one reason per (depth, metric) cell, from a record and its baseline.

A pure function of what was recorded: a run on disk can be judged again with another band. What a
cell says never exceeds what its samples show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from harness.core import laws
from harness.core.baseline import Baseline
from harness.core.cells import Samples, generation_rate, prefill_rate, samples_of, values_of
from harness.core.curve import curve_estimate, decide_curve
from harness.core.drift import Drift, drift_between
from harness.core.metrics import GENERATION, METRICS, PREFILL, RETRIEVAL, TTFT, Metric
from harness.core.records import AskRecord, Rung, RunRecord
from harness.core.stats import (
    Decision,
    Estimate,
    Unjudgeable,
    decide,
    decide_proportion,
    proportion_estimate,
    ratio_estimate,
    significant_in_run,
)

Outcome = Literal[
    "PASS",
    "IMPROVED",
    "REGRESSED",
    "INCONCLUSIVE",
    "INVALID",
    "NO_BASELINE",
    "INCOMPARABLE",
    "ERROR",
]
SPEED = ("speed", "latency")
DRIFT_CONFIDENCE = 0.99

NEXT_STEPS: dict[str, str] = {
    "no_baseline": "run it once more, then accept both runs with `harness baseline update`",
    "no_depth": "accept runs that reach this depth with `harness baseline update`",
    "regressed": "run it again to confirm; if the change is meant, accept it with "
    "`harness baseline update`",
    "improved": "if it stays, accept it with `harness baseline update`, so that its loss is seen",
    "noise": "run it again on a quiet machine, or accept more baseline runs",
    "too_few": "raise --repeats, lower the server's -b for a finer curve, or run it again",
    "drift": "let the machine settle (heat, power, updates) and run it again",
    "control": "read the answer in the record: the model or engine fails even without distance",
    "budget": "raise --answer-tokens, or turn the model's thinking off",
    "answers": "mend the answers first; the speed is kept in the record and not judged",
    "impossible": "look for what else ran on the machine, and run it again",
    "not_measured": "see the reason; this kind of server may not report it",
    "error": "see the failure and the server's log, mend it and run again",
    "together": "run it again: one cell of many, judged at once, is not yet beyond chance",
}


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """One cell. `measured` and `baseline` are locations in the metric's unit; `change`, `low` and
    `high` are shares of the baseline (-0.2: 20 % less). `code` keys `NEXT_STEPS`.
    """

    depth: int
    metric: Metric
    outcome: Outcome
    code: str | None
    message: str
    measured: float | None = None
    baseline: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    n_current: int = 0
    n_baseline: int = 0
    p_no_change: float | None = None

    @property
    def next_step(self) -> str | None:
        """What to do about it; `None` for a plain PASS."""
        return NEXT_STEPS.get(self.code) if self.code else None


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
        order: tuple[Outcome, ...] = (
            *("REGRESSED", "ERROR", "INVALID", "INCOMPARABLE", "INCONCLUSIVE"),
            *("NO_BASELINE", "IMPROVED", "PASS"),
        )
        present = {cell.outcome for cell in self.cells}
        return next((o for o in order if o in present), "NO_BASELINE")

    @property
    def exit_code(self) -> int:
        """0 PASS or IMPROVED, 1 REGRESSED, 2 not decided or no baseline, 3 INVALID or ERROR."""
        codes = {"PASS": 0, "IMPROVED": 0, "REGRESSED": 1, "INVALID": 3, "ERROR": 3}
        return codes.get(self.outcome, 2)


Bands = Mapping[str, float]


def judge(record: RunRecord, baseline: Baseline | None, bands: Bands) -> RunVerdict:
    """Judge every cell of a record.

    Args:
        record: what was measured.
        baseline: accepted runs of the same key, or `None`.
        bands: noise band by metric name, shares.
    """
    cells = [
        cell
        for depth in record.header.plan.depths
        if (rung := record.rung(depth)) is not None
        for cell in _rung_cells(record, rung, baseline, bands)
    ]
    drifts = _drifts(record, bands)
    cells = _hold_run_level(cells)
    if worst := next((d for d in drifts if d.state == "drifted"), None):
        cells = [_drifted(cell, worst) for cell in cells]
    return RunVerdict(tuple(cells), drifts, differences(record, baseline))


def undecided(rung: Rung, baseline: Baseline | None, bands: Bands) -> frozenset[str]:
    """Metrics of a rung for which more samples of this run may still change the verdict."""
    if baseline is None:
        return frozenset()
    mine, runs = samples_of(rung), baseline.samples(rung.depth)
    wanted = set()
    for metric in (GENERATION, TTFT):
        decision, _ = _compare(metric, mine, runs, bands[metric.name])
        if decision == "UNDECIDED":
            wanted.add(metric.name)
    return frozenset(wanted)


def differences(record: RunRecord, baseline: Baseline | None) -> tuple[str, ...]:
    """What else differs between this run and the newest accepted one (build, OS, flags)."""
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
    return tuple(
        f"{name}: {_shown(a)} in the baseline, {_shown(b)} now" for name, a, b in pairs if a != b
    )


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


# -- cells of one rung ----------------------------------------------------------------------


def _rung_cells(
    record: RunRecord, rung: Rung, baseline: Baseline | None, bands: Bands
) -> list[CellVerdict]:
    mine = samples_of(rung)
    runs = baseline.samples(rung.depth) if baseline is not None else []
    retrieval = _retrieval(rung, mine, runs, baseline)
    cells = []
    for metric in METRICS.values():
        if metric is RETRIEVAL:
            cells.append(retrieval)
            continue
        cell = _measured(metric, rung, mine, runs, baseline, bands[metric.name])
        if cell.outcome not in ("ERROR", "INVALID"):
            if retrieval.outcome == "INVALID" and metric.kind in SPEED:
                cell = replace(
                    cell,
                    outcome="INVALID",
                    code="answers",
                    message=f"not judged, the answers are invalid: {retrieval.message}",
                )
            elif broken := _broken_law(metric, record, rung):
                cell = replace(
                    cell, outcome="INVALID", code="impossible", message=f"impossible: {broken}"
                )
        cells.append(cell)
    return cells


def _measured(
    metric: Metric,
    rung: Rung,
    mine: Samples,
    runs: Sequence[Samples],
    baseline: Baseline | None,
    band: float,
) -> CellVerdict:
    values = values_of(metric, mine)
    cell = CellVerdict(
        rung.depth, metric, "PASS", None, "", measured=median(values) if values else None
    )
    if not values:
        if rung.failure is not None:
            return replace(cell, outcome="ERROR", code="error", message=_failed(rung))
        return replace(
            cell, outcome="INCONCLUSIVE", code="not_measured", message="not measured at this rung"
        )
    theirs = [values_of(metric, run) for run in runs]
    pooled = [median(v) for v in theirs if v]
    if not pooled:
        return _no_baseline(cell, baseline)
    cell = replace(cell, baseline=median(pooled))
    decision, estimate = _compare(metric, mine, runs, band)
    if isinstance(estimate, Unjudgeable):
        return replace(
            cell,
            outcome="INCONCLUSIVE",
            code="too_few",
            message=f"{estimate.reason}; needed: {estimate.needed}",
        )
    cell = replace(
        cell,
        change=estimate.change,
        low=estimate.low - 1.0,
        high=estimate.high - 1.0,
        n_current=estimate.n_current,
        n_baseline=estimate.n_baseline,
        p_no_change=estimate.p_no_change,
    )
    where = _departure(metric, mine, runs, band)
    said = f"{_change(cell)} against a band of ±{band:.0%}" + (f"; {where}" if where else "")
    if decision == "UNDECIDED":
        return replace(
            cell, outcome="INCONCLUSIVE", code="noise", message=f"{said}: not decided by its noise"
        )
    code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(decision)
    return replace(cell, outcome=decision, code=code, message=said)


def _compare(
    metric: Metric, mine: Samples, runs: Sequence[Samples], band: float
) -> tuple[Decision, Estimate | Unjudgeable]:
    decision: Decision
    if metric is PREFILL:
        curve = curve_estimate(mine.chunks, [run.chunks for run in runs], band=band)
        if not isinstance(curve, Unjudgeable):
            return decide_curve(curve, band=band), curve.overall
    estimate = ratio_estimate(values_of(metric, mine), [values_of(metric, run) for run in runs])
    if isinstance(estimate, Unjudgeable):
        return "UNDECIDED", estimate
    decision = decide(estimate, band=band, direction=metric.direction)
    theirs = [median(v) for run in runs if (v := values_of(metric, run))]
    if decision != "PASS" and metric.min_effect:
        moved = abs(median(values_of(metric, mine)) - median(theirs))
        if moved < metric.min_effect:
            decision = "PASS"
    return decision, estimate


def _departure(metric: Metric, mine: Samples, runs: Sequence[Samples], band: float) -> str | None:
    if metric is not PREFILL:
        return None
    curve = curve_estimate(mine.chunks, [run.chunks for run in runs], band=band)
    if isinstance(curve, Unjudgeable) or curve.departure is None:
        return None
    return curve.departure.sentence


def _retrieval(
    rung: Rung, mine: Samples, runs: Sequence[Samples], baseline: Baseline | None
) -> CellVerdict:
    right, asked, controls_right, controls = mine.retrieval
    cell = CellVerdict(
        rung.depth, RETRIEVAL, "PASS", None, "", measured=float(right) if asked else None
    )
    if not asked:
        message = _failed(rung) if rung.failure else "no question was asked at this rung"
        return replace(cell, outcome="ERROR", code="error", message=message)
    said = f"{right}/{asked} right, local control {controls_right}/{controls}"
    if cut := next((a for a in rung.asks if _cut(a)), None):
        return replace(
            cell,
            outcome="INVALID",
            code="budget",
            message=f"{said}; an answer was cut after {cut.predicted_tokens} tokens",
        )
    if controls_right < controls:
        return replace(
            cell, outcome="INVALID", code="control", message=f"{said}: the local control failed"
        )
    base_right = sum(run.retrieval[0] for run in runs)
    base_asked = sum(run.retrieval[1] for run in runs)
    if not base_asked:
        return replace(_no_baseline(cell, baseline), message=f"{said}; {_absent(baseline)}")
    cell = replace(cell, baseline=base_right / base_asked * asked)
    estimate = proportion_estimate(right, asked, base_right, base_asked)
    if isinstance(estimate, Unjudgeable):
        return replace(
            cell, outcome="INCONCLUSIVE", code="too_few", message=f"{said}; {estimate.reason}"
        )
    cell = replace(
        cell,
        change=estimate.difference,
        low=estimate.low,
        high=estimate.high,
        n_current=asked,
        n_baseline=base_asked,
    )
    decision = decide_proportion(estimate)
    said = f"{said}; baseline {base_right}/{base_asked}"
    if decision == "UNDECIDED":
        return replace(cell, outcome="INCONCLUSIVE", code="noise", message=said)
    code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(decision)
    return replace(cell, outcome=decision, code=code, message=said)


def _cut(ask: AskRecord) -> bool:
    wrong = ask.needles_right < ask.needles_asked or not ask.control_right
    return ask.finish_reason == "length" and wrong and len(ask.given) < len(ask.expected)


def _no_baseline(cell: CellVerdict, baseline: Baseline | None) -> CellVerdict:
    code = "no_baseline" if baseline is None else "no_depth"
    return replace(cell, outcome="NO_BASELINE", code=code, message=_absent(baseline))


def _absent(baseline: Baseline | None) -> str:
    if baseline is None:
        return "no baseline for this machine, model and configuration"
    return "the baseline has no accepted run at this depth"


def _failed(rung: Rung) -> str:
    assert rung.failure is not None
    return f"{rung.failure.cause}: {rung.failure.message}"


def _change(cell: CellVerdict) -> str:
    assert cell.change is not None
    assert cell.low is not None
    assert cell.high is not None
    return f"{cell.change:+.1%} ({cell.low:+.1%} to {cell.high:+.1%})"


# -- laws, drift and many cells at once -----------------------------------------------------


def _broken_law(metric: Metric, record: RunRecord, rung: Rung) -> str | None:
    found: list[laws.Violation | None] = []
    if metric is PREFILL:
        for prefill in rung.prefills:
            found.append(laws.positive_time("the prefill", prefill.wall_ms))
            if prefill.server_ms is not None:
                found.append(
                    laws.clock_covers_server("prefill", prefill.wall_ms, prefill.server_ms)
                )
    if metric is GENERATION:
        for generation in rung.generations:
            if generation.server_ms is not None:
                found.append(
                    laws.enough_tokens(
                        "generation", generation.predicted_tokens, generation.server_ms, min_ms=1.0
                    )
                )
                found.append(
                    laws.clock_covers_server("generation", generation.wall_ms, generation.server_ms)
                )
        if not any(g.draft_tokens for g in rung.generations):
            found.append(_depth_law(record, rung))
    return next((v.sentence for v in found if v is not None), None)


def _depth_law(record: RunRecord, rung: Rung) -> laws.Violation | None:
    at_zero = [r for c in record.controls for g in c.generations if (r := generation_rate(g))]
    at_depth = samples_of(rung).generation_tok_s
    return laws.depth_costs(at_zero, at_depth, rung.depth, confidence=DRIFT_CONFIDENCE)


def _drifts(record: RunRecord, bands: Bands) -> tuple[Drift, ...]:
    before = [c for c in record.controls if c.position == "before"]
    after = [c for c in record.controls if c.position == "after"]
    if not before or not after:
        return ()
    found = []
    for metric, rates in (
        (
            GENERATION,
            [
                [r for g in c.generations if (r := generation_rate(g))]
                for c in (before[0], after[-1])
            ],
        ),
        (
            PREFILL,
            [[r for p in c.prefills if (r := prefill_rate(p))] for c in (before[0], after[-1])],
        ),
    ):
        drift = drift_between(*rates, band=bands[metric.name], confidence=DRIFT_CONFIDENCE)
        if not isinstance(drift, Unjudgeable):
            found.append(drift)
    return tuple(found)


def _drifted(cell: CellVerdict, drift: Drift) -> CellVerdict:
    if cell.metric.kind not in SPEED or cell.outcome not in ("PASS", "IMPROVED", "REGRESSED"):
        return cell
    return replace(
        cell,
        outcome="INCONCLUSIVE",
        code="drift",
        message=f"would be {cell.outcome} ({cell.message}), but {drift.sentence}",
    )


def _hold_run_level(cells: list[CellVerdict]) -> list[CellVerdict]:
    """Name a change only if it holds with all cells of the run judged at once (Holm)."""
    tested = [c for c in cells if c.p_no_change is not None]
    named = significant_in_run([c.p_no_change or 0.0 for c in tested])
    spared = {id(c) for c, significant in zip(tested, named, strict=True) if not significant}
    return [
        replace(c, outcome="INCONCLUSIVE", code="together")
        if id(c) in spared and c.outcome in ("REGRESSED", "IMPROVED")
        else c
        for c in cells
    ]
