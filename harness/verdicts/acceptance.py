"""Whether recorded runs may become a baseline: complete, valid, and agreeing with one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.records.baseline import Baseline, key_of
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS, PREFILL, RETRIEVAL, Metric
from harness.records.samples import Samples, samples_of, values_of
from harness.verdicts.pace import changed_within
from harness.verdicts.verdict import disturbed_metrics, judge

MIN_RUNS = 2


@dataclass(frozen=True, slots=True)
class Change:
    """One cell of a baseline that an update would change: locations before and after."""

    depth: int
    metric: Metric
    before: float | None
    after: float | None

    @property
    def share(self) -> float | None:
        """Relative change; `None` when one side is missing or zero."""
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before - 1.0


def objections(records: Sequence[RunRecord], bands: Mapping[str, float]) -> list[str]:
    """Why these runs must not be accepted together, one sentence each; empty when they may."""
    found: list[str] = []
    if len(records) < MIN_RUNS:
        found.append(
            f"{len(records)} run given: a baseline needs {MIN_RUNS} runs that agree, so that one "
            "bad run cannot become the measure of all later ones; run it again first"
        )
    if len(_slugs(records)) > 1:
        found.append(
            "the runs differ in machine class, model or configuration, so they are not one baseline"
        )
    for record in records:
        run = record.header.run_id
        if record.footer is None or not record.footer.complete:
            found.append(f"run {run} did not finish; only complete runs can be accepted")
        if not record.rungs:
            found.append(f"run {run} measured no rung of the ladder, only a heatmap or a fuzz")
        if moved := changed_within(record, bands[PREFILL.name]):
            found.append(f"run {run}: {moved} while it was measured; measure again")
        verdict = judge(record, None, bands)
        found += [f"run {run}: {d.sentence}" for d in verdict.drift if d.state == "drifted"]
        for cell in verdict.cells:
            if cell.outcome in ("INVALID", "ERROR", "LEAK") and (
                cell.metric.kind == "score" or cell.code != "answers"
            ):
                found.append(
                    f"run {run}, {cell.metric.label} at {cell.depth} is {cell.outcome}: "
                    f"{cell.message}"
                )
        found += [
            f"run {run}, {METRICS[name].label} at {rung.depth} was measured only while others used "
            "the machine; measure again when it is quiet"
            for rung in record.rungs
            for name in sorted(disturbed_metrics(rung))
            if not values_of(METRICS[name], samples_of(rung))
        ]
    found += _disagreements(records, bands)
    return found


def changes(old: Baseline | None, new: Baseline) -> list[Change]:
    """What an update does to each cell, by depth and metric."""
    depths = sorted({d for b in (old, new) if b is not None for run in b.runs for d in run.cells})
    result = []
    for depth in depths:
        for metric in METRICS.values():
            before = _location(metric, old.samples(depth)) if old is not None else None
            after = _location(metric, new.samples(depth))
            if before is not None or after is not None:
                result.append(Change(depth, metric, before, after))
    return result


def _disagreements(records: Sequence[RunRecord], bands: Mapping[str, float]) -> list[str]:
    found = []
    depths = sorted({rung.depth for r in records for rung in r.rungs})
    for depth in depths:
        sides = [samples_of(rung) for r in records if (rung := r.rung(depth)) is not None]
        if len(sides) < len(records):
            found.append(f"not every run reached {depth}")
            continue
        for metric in METRICS.values():
            places = [v for s in sides if (v := _location(metric, [s])) is not None]
            if len(places) < 2 or min(places) <= 0:
                continue
            spread, moved = max(places) / min(places) - 1.0, max(places) - min(places)
            if metric is RETRIEVAL:
                continue
            if spread > bands[metric.name] and moved > metric.min_effect:
                found.append(
                    f"{metric.label} at {depth} differs by {spread:.1%} between the runs "
                    f"({min(places):,.6g} and {max(places):,.6g} {metric.unit}), more than the "
                    f"band of ±{bands[metric.name]:.0%}"
                )
    return found


def _location(metric: Metric, samples: Sequence[Samples]) -> float | None:
    values: list[float] = []
    for one in samples:
        if own := values_of(metric, one):
            values.append(median(own))
    return median(values) if values else None


def _slugs(records: Sequence[RunRecord]) -> set[tuple[str, str, str]]:
    keys = [key_of(r.header) for r in records]
    return {(k.machine_class, k.model, k.slug) for k in keys}
