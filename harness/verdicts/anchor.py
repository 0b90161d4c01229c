"""Cells that crept: against what was accepted first, whatever has been accepted since."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.quantities import percent
from harness.records.baseline import Baseline
from harness.records.metrics import RETRIEVAL
from harness.verdicts.cell import CellVerdict
from harness.verdicts.stats import RUN_LEVEL


def anchor_of(baseline: Baseline | None) -> Baseline | None:
    """The baseline as it was accepted first; `None` where it was never updated."""
    if baseline is None or not baseline.anchor:
        return None
    return baseline.model_copy(update={"runs": baseline.anchor, "anchor": ()})


def held_against_anchor(
    cells: Sequence[CellVerdict],
    anchored: Sequence[CellVerdict],
    anchor: Baseline,
    bands: Mapping[str, float],
) -> list[CellVerdict]:
    """Cells, REGRESSED where they are worse than what was accepted first.

    `anchored` are the same cells judged against the anchor. Small losses add up there, each of them
    accepted; so a change is named as soon as it lies beyond the band and is told from none, without
    its whole interval lying beyond.
    """
    first = {(c.depth, c.metric.name): c for c in anchored}
    return [_held(c, first[c.depth, c.metric.name], anchor, bands) for c in cells]


def _held(
    cell: CellVerdict, first: CellVerdict, anchor: Baseline, bands: Mapping[str, float]
) -> CellVerdict:
    undisturbed = cell.outcome in ("PASS", "IMPROVED") or cell.code in ("noise", "few_needles")
    if not undisturbed or first.change is None or first.p_no_change is None:
        return cell
    if cell.metric is RETRIEVAL:
        crept = first.outcome == "REGRESSED"
    else:
        lost = -first.change if cell.metric.direction == "higher" else first.change
        beyond = lost > bands[cell.metric.name] and first.outcome != "PASS"
        crept = beyond and first.p_no_change <= RUN_LEVEL
    if not crept:
        return cell
    runs = [run for run in anchor.runs if cell.depth in run.cells]
    since = f"{runs[0].started_at[:10]} (build {runs[0].build})" if runs else "the first"
    now = percent(cell.change) if cell.change is not None else "not told"
    return replace(
        first,
        outcome="REGRESSED",
        code="anchor",
        message=f"{percent(first.change)} since {since}, accepted little by little (against the "
        f"baseline: {now}); {first.message}",
    )
