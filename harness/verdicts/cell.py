"""Outcomes: one per cell, with its reason and what to do next."""

from dataclasses import dataclass, replace

from harness.questions.needles import ORDERS
from harness.records.baseline import Baseline
from harness.records.lines import Rung
from harness.records.metrics import GENERATION, PREFILL, RETRIEVAL, SPEED, TTFT, Metric
from harness.records.outcomes import Outcome
from harness.verdicts.stats import Estimate

NEXT_STEPS: dict[str, str] = {
    "no_baseline": "run it once more, then accept both: `harness baseline update`",
    "no_depth": "accept runs that reach this depth with `harness baseline update`",
    "no_samples": "accept runs measured on a quiet machine with `harness baseline update`",
    "regressed": "run it again to confirm; if it is meant: `harness baseline update`",
    "anchor": "find what changed since then (`harness history`); if the level is meant, accept it "
    "with `harness baseline update --reason TEXT`",
    "improved": "if it stays, accept it with `harness baseline update`, so that its loss is seen",
    "numbers": "find what changed them (build, cache type, RoPE, flags); if it is meant, accept it "
    "with `harness baseline update`",
    "noise": "run it again on a quiet machine, or accept more baseline runs",
    "too_few": "raise --repeats, lower the server's -b for a finer curve, or run it again",
    "few_needles": "run it again; with more accepted runs fewer lost needles decide",
    "pace": "run it again when the machine is back at its pace, or accept new runs at this one",
    "contention": "stop what is named, or wait for it (--wait-quiet 600); run it again",
    "leak": "report it with the record and the server's log; restart the server until it is mended",
    "few_runs": "accept more runs with `harness baseline update --add`",
    "drift": "let the machine settle (heat, power, updates) and run it again",
    "control": "read the answer in the record; if this model can do no better, accept it so "
    "(`harness baseline update --force --reason WHY`): speeds are judged then",
    "contaminated": "the server mixed two requests' states; do not trust its answers, report it",
    "budget": "raise --answer-tokens, or turn the model's thinking off",
    "answers": "mend the answers first; the speed is kept in the record and not judged",
    "impossible": "look for what else ran on the machine, and run it again",
    "not_measured": "see the reason; this kind of server may not report it",
    "over_budget": "raise --budget, lower --ctx, or mend what made the prefill slow (see the log)",
    "error": "read the failure above and the server's log, mend what it names, and run again",
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

    def withheld(self, code: str, why: str) -> "CellVerdict":
        """A speed verdict taken back, with what it would have been; other cells as they are."""
        if self.metric.kind not in SPEED or self.outcome not in ("PASS", "IMPROVED", "REGRESSED"):
            return self
        message = f"would be {self.outcome} ({self.message}), but {why}"
        return replace(self, outcome="INCONCLUSIVE", code=code, message=message)

    def estimated(self, estimate: Estimate) -> "CellVerdict":
        """The same cell with the change, its interval, and the two locations they are made of."""
        return replace(
            self,
            measured=estimate.measured,
            baseline=estimate.baseline,
            change=estimate.change,
            low=estimate.low - 1.0,
            high=estimate.high - 1.0,
            n_current=estimate.n_current,
            n_baseline=estimate.n_baseline,
            p_no_change=estimate.p_no_change,
        )

    @property
    def next_step(self) -> str | None:
        """What to do about it; `None` for a plain PASS."""
        return NEXT_STEPS.get(self.code) if self.code else None


def no_baseline(cell: CellVerdict, baseline: Baseline | None) -> CellVerdict:
    if baseline is not None and baseline.samples(cell.depth):
        return replace(
            cell,
            outcome="NO_BASELINE",
            code="no_samples",
            message="the accepted runs have no undisturbed sample of it",
        )
    code = "no_baseline" if baseline is None else "no_depth"
    return replace(cell, outcome="NO_BASELINE", code=code, message=absence(baseline))


def absence(baseline: Baseline | None) -> str:
    if baseline is None:
        return "no baseline for this machine, model and configuration"
    return "the baseline has no accepted run at this depth"


def unfinished(metric: Metric, rung: Rung, repeats: int) -> bool:
    """Whether a rung that failed had not yet measured all that `metric` needs.

    Memory is read last, after everything else.
    """
    if metric is GENERATION:
        return len(rung.generations) < repeats
    if metric in (TTFT, RETRIEVAL):
        return len(rung.counted_asks) < len(ORDERS)
    return metric is not PREFILL or not rung.prefills


def failure_code(rung: Rung) -> str:
    """The key of what to do about a rung that failed."""
    stopped = rung.failure is not None and rung.failure.cause == "OVER_BUDGET"
    return "over_budget" if stopped else "error"


def failed(rung: Rung) -> str:
    assert rung.failure is not None
    return f"{rung.failure.cause}: {rung.failure.message}"
