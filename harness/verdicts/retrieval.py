"""The verdict on a rung's answers."""

from collections.abc import Sequence
from dataclasses import replace

from harness.questions.needles import ORDERS
from harness.records.baseline import Baseline
from harness.records.lines import Rung
from harness.records.metrics import RETRIEVAL
from harness.records.samples import Samples, samples_of
from harness.verdicts.cell import (
    CellVerdict,
    absence,
    failed,
    failure_code,
    no_baseline,
    unfinished,
)
from harness.verdicts.proportions import (
    Needles,
    NeedlesDecision,
    ProportionEstimate,
    decide_needles,
    decide_proportion,
    proportion_estimate,
)
from harness.verdicts.stats import Unjudgeable


def judge_retrieval(rungs: Sequence[Rung], baseline: Baseline | None) -> dict[int, CellVerdict]:
    """Every rung's answers judged, by depth; the rungs share one chance of a false alarm."""
    mine = {rung.depth: samples_of(rung) for rung in rungs}
    runs = {d: baseline.samples(d) if baseline is not None else [] for d in mine}
    cells = {r.depth: _answered(r, mine[r.depth], runs[r.depth], baseline) for r in rungs}
    open_ = [depth for depth, cell in cells.items() if cell.outcome == "PASS"]
    sides = [(needles_of([mine[depth]]), needles_of(runs[depth])) for depth in open_]
    for depth, side, found in zip(open_, sides, decide_needles(sides), strict=True):
        cells[depth] = _decided(cells[depth], mine[depth], runs[depth], side, found)
    return cells


def _answered(
    rung: Rung, mine: Samples, runs: Sequence[Samples], baseline: Baseline | None
) -> CellVerdict:
    """What can be said without the other rungs; PASS where the answers remain to be compared."""
    right, asked, controls_right, controls = mine.retrieval
    cell = CellVerdict(
        rung.depth,
        RETRIEVAL,
        "PASS",
        None,
        "",
        measured=float(right) if asked else None,
        n_current=asked,
    )
    if rung.failure is not None and unfinished(RETRIEVAL, rung, 0):
        return replace(cell, outcome="ERROR", code=failure_code(rung), message=failed(rung))
    if not asked:
        message = "no question was asked at this rung"
        return replace(cell, outcome="ERROR", code="error", message=message)
    said = f"{right} of {asked} right"
    if controls_right != controls:
        said += f", local control {controls_right} of {controls}"
    if wrong := _diagnoses(rung):
        said = f"{said} ({wrong})"
    for reason, (code, text) in _INVALID.items():
        if reason == "control_failed" and _controls_as_accepted(mine, runs):
            continue
        if any(reason in ask.invalid for ask in rung.counted_asks):
            return replace(cell, outcome="INVALID", code=code, message=f"{said}: {text}")
    if not sum(run.retrieval[1] for run in runs):
        return replace(no_baseline(cell, baseline), message=f"{said}; {absence(baseline)}")
    return replace(cell, message=said)


def _decided(
    cell: CellVerdict,
    mine: Samples,
    runs: Sequence[Samples],
    needles: tuple[Needles, Needles],
    found: NeedlesDecision,
) -> CellVerdict:
    right, asked, *_ = mine.retrieval
    base_right = sum(run.retrieval[0] for run in runs)
    base_asked = sum(run.retrieval[1] for run in runs)
    counts = [n for side in needles for n in (round(sum(r / of for r, of in side)), len(side))]
    estimate = proportion_estimate(*counts)
    cell = replace(
        cell,
        message=f"{cell.message}; baseline {base_right} of {base_asked}",
        baseline=base_right / base_asked * asked,
        change=right / asked - base_right / base_asked,
        n_current=asked,
        n_baseline=base_asked,
        p_no_change=found.p_no_change,
    )
    if found.decision in ("REGRESSED", "UNDECIDED") and isinstance(estimate, ProportionEstimate):
        now, base = (f"{sum(r == of for r, of in side)} of {len(side)}" for side in needles)
        lost = f"{now} needles right in every order, {base} in the baseline"
        cell = replace(
            cell, low=estimate.low, high=estimate.high, message=f"{cell.message} ({lost})"
        )
    if found.decision == "UNDECIDED":
        return replace(cell, outcome="INCONCLUSIVE", code="few_needles")
    outcome_code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(found.decision)
    return replace(cell, outcome=found.decision, code=outcome_code)


def needles_of(runs: Sequence[Samples]) -> list[tuple[int, int]]:
    """The needles of runs; of one accepted before they were kept, as many as its answers are of.

    Its answers are taken to be alike in every order, which claims the least.
    """
    found: list[tuple[int, int]] = []
    times = len(ORDERS)
    for run in runs:
        right, asked, *_ = run.retrieval
        some = range(0, asked - asked % times, times)
        found += run.needles or [(max(0, min(times, right - n)), times) for n in some]
    return found


def _controls_as_accepted(mine: Samples, runs: Sequence[Samples]) -> bool:
    """Whether a weak model's controls failed in the accepted runs too, and fail no more often."""
    *_, right, controls = mine.retrieval
    base_right = sum(run.retrieval[2] for run in runs)
    base_controls = sum(run.retrieval[3] for run in runs)
    if base_right == base_controls:
        return False
    estimate = proportion_estimate(right, controls, base_right, base_controls)
    return not isinstance(estimate, Unjudgeable) and decide_proportion(estimate) != "REGRESSED"


_INVALID = {
    "contaminated": ("contaminated", "a code of an earlier request came back"),
    "budget": ("budget", "an answer was cut by its token budget"),
    "control_failed": ("control", "the local control failed"),
}


def _diagnoses(rung: Rung) -> str:
    """The classes of the wrong answers, each with the order of asking and its reason, once."""
    said: dict[tuple[str, str], list[str]] = {}
    for ask in rung.counted_asks:
        if ask.failure_class != "right":
            said.setdefault((ask.failure_class, ask.failure_reason), []).append(ask.order)
    return "; ".join(
        f"{kind.replace('_', ' ')} when asked {', '.join(dict.fromkeys(orders))}: {reason}"
        for (kind, reason), orders in said.items()
    )
