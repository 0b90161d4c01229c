"""A/B: two arms measured interleaved, and whether B is slower than A, by rung and metric.

Short rungs are visited in ABBA blocks, each visit a fresh process: within a block a steady drift
cancels. Long rungs, one reading of which may take an hour, get one sandwich A-B-A, whose prefill is
judged by its batches (`verdicts.curve`). A block's contrast is the mean log of B's visits less that
of A's; the ratio's interval comes from how far the blocks' contrasts lie apart, moderated by what
is held of machines before any sample (`verdicts.noise`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

import numpy as np

from harness.quantities import percent, share, span
from harness.records.lines import RunRecord
from harness.records.metrics import FIDELITY, METRICS, PREFILL, RETRIEVAL, SPEED, Metric
from harness.records.samples import Samples, disturbances, samples_of, values_of
from harness.verdicts.cell import CellVerdict
from harness.verdicts.curve import curve_estimate, decide_curve
from harness.verdicts.fidelity import against, floor_of, looks_of
from harness.verdicts.noise import PRIOR, location_share, moderate, pooled_spread, summarise
from harness.verdicts.pace import changed_between
from harness.verdicts.proportions import decide_proportion, proportion_estimate
from harness.verdicts.stats import (
    CONFIDENCE,
    Decision,
    Estimate,
    Unjudgeable,
    decide,
    log_estimate,
    no_worse,
    ratio_estimate,
)
from harness.verdicts.verdict import hold_run_level

Side = Literal["A", "B"]
BLOCK: tuple[Side, ...] = ("A", "B", "B", "A")
SANDWICH: tuple[Side, ...] = ("A", "B", "A")

SLOWER, NO_SLOWER, CANNOT_TELL = 1, 0, 125
"""Exit codes, as `git bisect run` understands them: bad, good, skip."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One run of one arm: which block it belongs to and what it measured.

    An arm's first visit may be a `warm_up`, with cold shaders and caches: shown, not judged.
    """

    side: Side
    block: int
    record: RunRecord
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """The cells, B against A, and how often each arm was visited.

    `moved` says how the machine changed during a block whose speeds therefore don't count.
    """

    cells: tuple[CellVerdict, ...]
    visits: Mapping[Side, int]
    moved: Mapping[int, str]

    @property
    def exit_code(self) -> int:
        """1 if B is worse beyond the band anywhere, 0 if nowhere, 125 if that cannot be told."""
        outcomes = {cell.outcome for cell in self.cells}
        if outcomes & {"REGRESSED", "LEAK"}:
            return SLOWER
        return NO_SLOWER if outcomes and outcomes <= {"PASS", "IMPROVED"} else CANNOT_TELL


def judge_arms(
    visits: Sequence[Visit],
    bands: Mapping[str, float],
    metrics: Iterable[str] = METRICS,
    *,
    contended: bool = False,
) -> Compared:
    """Every cell of `metrics` at every depth both arms reached, B's values against A's.

    Args:
        visits: in the order they were made; blocks that lack an arm are left out.
        bands: noise band by metric name, shares.
        metrics: names of those to judge.
        contended: count disturbed samples too; their noise is then in the interval, on both sides.
    """
    wanted = [METRICS[name] for name in metrics]
    visits = [v for v in visits if not v.warm_up]
    depths = sorted({r.depth for v in visits for r in v.record.rungs})
    moved = moved_blocks(visits, bands[PREFILL.name])
    rules = {RETRIEVAL.name: _retrieval, FIDELITY.name: _fidelity}
    cells = []
    for depth in depths:
        reached = [v for v in visits if (rung := v.record.rung(depth)) and rung.failure is None]
        if {v.side for v in reached} != {"A", "B"}:
            continue
        broken = _broken_answers(reached, depth)
        steady = [v for v in reached if v.block not in moved]
        for metric in wanted:
            counted = steady if metric.kind in SPEED else reached
            if metric.own_rule:
                own = rules[metric.name](reached, depth)
                cells += [own] if own is not None else []
                continue
            if {v.side for v in counted} == {"A", "B"}:
                cell = _cell(metric, counted, depth, bands[metric.name], contended=contended)
            else:
                cell = _cell(metric, reached, depth, bands[metric.name], contended=contended)
                why = "; ".join(dict.fromkeys(moved[v.block] for v in reached if v.block in moved))
                cell = CellVerdict(
                    *(depth, metric, "INCONCLUSIVE", "pace", why),
                    measured=cell.measured,
                    baseline=cell.baseline,
                )
            if broken and metric.kind in SPEED:
                cell = replace(cell, outcome="INVALID", code="answers", message=broken)
            cells.append(cell)
    counts: dict[Side, int] = {"A": 0, "B": 0}
    for visit in visits:
        counts[visit.side] += 1
    return Compared(tuple(hold_run_level(cells)), counts, moved)


def moved_blocks(visits: Sequence[Visit], band: float) -> dict[int, str]:
    """Blocks during which the machine itself changed its pace, and how; no speed of them counts."""
    blocks = dict.fromkeys(v.block for v in visits)
    found = {b: changed_between([v.record for v in visits if v.block == b], band) for b in blocks}
    return {block: said for block, said in found.items() if said is not None}


def undecided(compared: Compared) -> bool:
    """Whether another block could decide more: some cell hangs on noise or too few samples."""
    codes = ("noise", "together", "few_blocks", "contention", "pace")
    return any(c.outcome == "INCONCLUSIVE" and c.code in codes for c in compared.cells)


Block = tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]
"""A's visits and B's, each visit its samples."""


def block_estimate(
    blocks: Sequence[Block],
    *,
    confidence: float = CONFIDENCE,
    disturbed: bool = False,
) -> Estimate | Unjudgeable:
    """The ratio B / A from blocks of visits: (A's visits, B's visits), each visit its samples.

    One block is a sandwich: B's samples against A's visits as runs. Of several, each gives a
    contrast d of log means; var(d) is observed with (blocks - 1) degrees of freedom and moderated
    towards run variance / visits + within variance of both sides. What is held of calm machines
    says nothing of `disturbed` samples: of these only the blocks' own spread counts, and a sandwich
    is not enough.
    """
    usable = [(a, b) for a, b in blocks if a and b and all(len(v) for v in (*a, *b))]
    if len(usable) == 1 and len(usable[0][0]) >= 2 and not disturbed:
        a, b = usable[0]
        return ratio_estimate([v for visit in b for v in visit], a, confidence=confidence)
    if len(usable) < 2:
        return Unjudgeable(
            f"{len(usable)} block(s) with undisturbed samples of both arms", "at least 2 blocks"
        )
    if any(
        not (math.isfinite(v) and v > 0) for a, b in usable for visit in (*a, *b) for v in visit
    ):
        return Unjudgeable("a sample is zero, negative or not a number", "samples above zero")
    runs = [
        [
            [summarise(np.log(np.asarray(visit, dtype=np.float64))) for visit in side]
            for side in block
        ]
        for block in usable
    ]
    every = [run for block in runs for side in block for run in side]
    sample_variance, _ = pooled_spread(every, PRIOR)
    contrasts = [
        fmean(run.location for run in b) - fmean(run.location for run in a) for a, b in runs
    ]
    run_variance = PRIOR.run_variance(sample_variance)
    expected = fmean(
        sum(
            (run_variance + sample_variance * location_share(run.samples)) / len(side) ** 2
            for side in block
            for run in side
        )
        for block in runs
    )
    observed = float(np.var(contrasts, ddof=1))
    variance, df = moderate(observed, len(contrasts) - 1, expected, PRIOR.run_df)
    if disturbed:
        variance, df = max(observed, expected), len(contrasts) - 1.0
    of_mean = variance / len(contrasts)
    return log_estimate(
        fmean(contrasts),
        of_mean,
        df,
        counts=(
            sum(run.samples for _, b in runs for run in b),
            sum(run.samples for a, _ in runs for run in a),
        ),
        baseline_runs=sum(len(a) for a, _ in runs),
        base_log=fmean(run.location for a, _ in runs for run in a),
        confidence=confidence,
    )


def _cell(
    metric: Metric, visits: Sequence[Visit], depth: int, band: float, *, contended: bool
) -> CellVerdict:
    every = [values_of(metric, _samples(v, depth, contended=True)) for v in visits]
    clean = [values_of(metric, _samples(v, depth, contended=False)) for v in visits]
    counted = every if contended else clean
    shown = {
        side: _of_side(side, visits, counted) or _of_side(side, visits, every)
        for side in ("A", "B")
    }
    cell = CellVerdict(depth, metric, "INCONCLUSIVE", "not_measured", "not measured in both arms")
    if not shown["A"] or not shown["B"]:
        return cell
    cell = replace(cell, measured=median(shown["B"]), baseline=median(shown["A"]))
    blocks = []
    for block in dict.fromkeys(v.block for v in visits):
        pairs = [
            (v.side, x) for v, x in zip(visits, counted, strict=True) if v.block == block and x
        ]
        blocks.append(
            ([x for side, x in pairs if side == "A"], [x for side, x in pairs if side == "B"])
        )
    decision, estimate, where = _decided(metric, blocks, visits, depth, band, counted != clean)
    if isinstance(estimate, Unjudgeable):
        who = [d for v in visits if (r := v.record.rung(depth)) for d in disturbances(r, metric)]
        return replace(
            cell,
            code="contention" if who else "few_blocks",
            message=who[-1] if who else f"{estimate.reason}; needed: {estimate.needed}",
        )
    cell = cell.estimated(estimate)
    interval = span(estimate.low - 1, estimate.high - 1)
    said = f"{percent(estimate.change)} ({interval}) against a band of ±{share(band)}"
    said += f"; {where}" if where else ""
    if decision == "UNDECIDED":
        return replace(cell, code="noise", message=f"{said}: not decided by its noise")
    code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(decision)
    return replace(cell, outcome=decision, code=code, message=said)


def _decided(
    metric: Metric,
    blocks: Sequence[Block],
    visits: Sequence[Visit],
    depth: int,
    band: float,
    disturbed: bool,
) -> tuple[Decision, Estimate | Unjudgeable, str | None]:
    """By the blocks' contrasts; a prefill that has but one block, by its batches.

    The question is whether B is worse: noise on its better side leaves nothing open.
    """
    whole = [visit for visit in blocks if visit[0] and visit[1]]
    if metric is PREFILL and len(whole) == 1 and not disturbed:
        found = _by_batches(visits, depth, band)
        if found is not None:
            return found
    estimate = block_estimate(blocks, disturbed=disturbed)
    if isinstance(estimate, Unjudgeable):
        return "UNDECIDED", estimate, None
    way, least = metric.direction, metric.min_effect
    decision = decide(estimate, band=band, direction=way, min_effect=least)
    if decision == "UNDECIDED" and no_worse(estimate, band=band, direction=way, min_effect=least):
        return "PASS", estimate, "no worse; its noise hides whether it is better"
    return decision, estimate, None


def _by_batches(
    visits: Sequence[Visit], depth: int, band: float
) -> tuple[Decision, Estimate, str | None] | None:
    """B's batches against each of A's visits, of which one may do: a reading has many batches.

    `None` where a side has too few of them.
    """
    sides: dict[Side, list[Samples]] = {"A": [], "B": []}
    for visit in visits:
        sides[visit.side].append(_samples(visit, depth, contended=False))
    by_b = [
        curve_estimate(
            b.chunks,
            [a.chunks for a in sides["A"]],
            band=band,
            readings=(b.prefill_tok_s, [a.prefill_tok_s for a in sides["A"]]),
            least_runs=1,
        )
        for b in sides["B"]
    ]
    curves = [curve for curve in by_b if not isinstance(curve, Unjudgeable)]
    if not curves:
        return None
    found = [decide_curve(curve, band=band) for curve in curves]
    middle = sorted(found, key=lambda one: one[1].ratio)[len(found) // 2]
    agree = all(decision == middle[0] for decision, *_ in found)
    return middle if agree else ("UNDECIDED", *middle[1:])


def _of_side(side: str, visits: Sequence[Visit], values: Sequence[Sequence[float]]) -> list[float]:
    return [x for v, some in zip(visits, values, strict=True) if v.side == side for x in some]


def _retrieval(visits: Sequence[Visit], depth: int) -> CellVerdict:
    right = {side: _right(visits, depth, side) for side in ("A", "B")}
    estimate = proportion_estimate(*right["B"], *right["A"])
    cell = CellVerdict(depth, RETRIEVAL, "INCONCLUSIVE", "not_measured", "no answers in both arms")
    if isinstance(estimate, Unjudgeable):
        return cell
    cell = replace(
        cell,
        measured=estimate.share,
        baseline=estimate.base_share,
        change=estimate.difference,
        low=estimate.low,
        high=estimate.high,
        n_current=estimate.trials,
        n_baseline=estimate.base_trials,
        p_no_change=estimate.p_no_change,
    )
    decision = decide_proportion(estimate)
    said = f"{estimate.share:.0%} right in B, {estimate.base_share:.0%} in A"
    if decision == "UNDECIDED":
        return replace(cell, code="noise", message=f"{said}: not told apart")
    code = {"REGRESSED": "regressed", "IMPROVED": "improved"}.get(decision)
    return replace(cell, outcome=decision, code=code, message=said)


def _fidelity(visits: Sequence[Visit], depth: int) -> CellVerdict | None:
    """B's first look against A's; the floor is what either arm's looks do among themselves."""
    looks = {
        side: looks_of(r for v in visits if v.side == side and (r := v.record.rung(depth)))
        for side in ("A", "B")
    }
    if not looks["A"] or not looks["B"]:
        return None
    floor = max(floor_of(looks["A"]), floor_of(looks["B"]))
    cell = CellVerdict(depth, FIDELITY, "PASS", None, "")
    return against(cell, looks["A"][0], looks["B"][0], floor, "A", ())


def _right(visits: Sequence[Visit], depth: int, side: Side | str) -> tuple[int, int]:
    counts = [_samples(v, depth, contended=True).retrieval for v in visits if v.side == side]
    return sum(c[0] for c in counts), sum(c[1] for c in counts)


def _broken_answers(visits: Sequence[Visit], depth: int) -> str | None:
    """Local controls that only B gets wrong: its speed is then the speed of wrong computing."""
    controls = {
        side: [_samples(v, depth, contended=True).retrieval[2:] for v in visits if v.side == side]
        for side in ("A", "B")
    }
    a_right = all(right == asked for right, asked in controls["A"])
    b_right = all(right == asked for right, asked in controls["B"])
    if a_right and not b_right:
        return "not judged: B fails the local control, which A answers"
    return None


def _samples(visit: Visit, depth: int, *, contended: bool) -> Samples:
    rung = visit.record.rung(depth)
    assert rung is not None
    return samples_of(rung, contended=contended)
