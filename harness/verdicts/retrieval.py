"""The verdict on a rung's answers."""

from collections.abc import Sequence
from dataclasses import replace

from harness.records.baseline import Baseline
from harness.records.lines import Rung
from harness.records.metrics import RETRIEVAL
from harness.records.samples import Samples
from harness.verdicts.cell import (
    CellVerdict,
    absence,
    failed,
    failure_code,
    no_baseline,
    unfinished,
)
from harness.verdicts.proportions import decide_proportion, proportion_estimate
from harness.verdicts.stats import Unjudgeable


def judge_retrieval(
    rung: Rung, mine: Samples, runs: Sequence[Samples], baseline: Baseline | None
) -> CellVerdict:
    right, asked, controls_right, controls = mine.retrieval
    cell = CellVerdict(
        rung.depth, RETRIEVAL, "PASS", None, "", measured=float(right) if asked else None
    )
    if rung.failure is not None and unfinished(RETRIEVAL, rung, 0):
        return replace(cell, outcome="ERROR", code=failure_code(rung), message=failed(rung))
    if not asked:
        message = "no question was asked at this rung"
        return replace(cell, outcome="ERROR", code="error", message=message)
    said = f"{right}/{asked} right, local control {controls_right}/{controls}"
    if wrong := _diagnoses(rung):
        said = f"{said} ({wrong})"
    for reason, (code, text) in _INVALID.items():
        if reason == "control_failed" and _controls_as_accepted(mine, runs):
            continue
        if any(reason in ask.invalid for ask in rung.counted_asks):
            return replace(cell, outcome="INVALID", code=code, message=f"{said}: {text}")
    base_right = sum(run.retrieval[0] for run in runs)
    base_asked = sum(run.retrieval[1] for run in runs)
    if not base_asked:
        return replace(no_baseline(cell, baseline), message=f"{said}; {absence(baseline)}")
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
    outcome_code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(decision)
    return replace(cell, outcome=decision, code=outcome_code, message=said)


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
