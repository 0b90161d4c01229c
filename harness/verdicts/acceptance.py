"""What of recorded runs may become a baseline: the cells that are steady, no worse unless meant."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from harness.quantities import depth_label, number, percent, share
from harness.records.baseline import MAX_RUNS, AcceptedRun, Baseline, accepted, key_of
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS, PREFILL, RETRIEVAL, SPEED, Metric
from harness.records.samples import Samples, samples_of, values_of, without
from harness.verdicts.pace import changed_within
from harness.verdicts.proportions import decide_needles
from harness.verdicts.retrieval import needles_of
from harness.verdicts.rung import disturbed_metrics
from harness.verdicts.verdict import judge

MIN_RUNS = 2

Bands = Mapping[str, float]
Cell = tuple[int, Metric]
"""Depth and metric."""


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

    def worse_beyond(self, limit: float) -> bool:
        """Whether it is worse by more than this share, and by enough to count at all."""
        if self.share is None or self.before is None or self.after is None:
            return False
        lost = -self.share if self.metric.direction == "higher" else self.share
        return lost > limit and abs(self.after - self.before) >= self.metric.min_effect


@dataclass(frozen=True, slots=True)
class Update:
    """What an update of a baseline would do, and what stands against it.

    `impossible` cannot be overridden; `objections` by force; `worse` (cells that get worse by more
    than the band, against the baseline or its anchor) by saying that it is meant. `left_out` are
    the cells that stay out, `changes` what becomes of the others.
    """

    baseline: Baseline
    changes: tuple[Change, ...]
    impossible: tuple[str, ...]
    objections: tuple[str, ...]
    worse: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def lost(self) -> tuple[Change, ...]:
        """The cells that get worse by 5 % or more, or by any right answer, worst first."""
        found = [c for c in self.changes if c.worse_beyond(0.0 if c.metric is RETRIEVAL else 0.05)]
        return tuple(sorted(found, key=lambda c: -abs(c.share or 0.0)))


def update(
    records: Sequence[RunRecord],
    old: Baseline | None,
    bands: Bands,
    *,
    accepted_at: str,
    add: bool = False,
    reason: str | None = None,
    force: bool = False,
) -> Update:
    """The baseline that these runs make, instead of the accepted ones or (`add`) beside them.

    Cells that are steady are accepted, the others stay out and are named. `reason` says that worse
    cells are meant; `force` overrides judgements, never an impossibility.
    """
    kept = old.runs if old is not None and add else ()
    taken = [accepted(r, accepted_at, reason) for r in records]
    fit, left_out = _fit(records, bands, force=force)
    fresh = _with_cells(taken, fit)
    steady, unsettled = fresh, list[str]()
    if not force and len(records) + len(kept) >= MIN_RUNS:
        settled, unsettled = _settled(fit, kept, bands)
        steady = _with_cells(taken, settled)
    runs = (*kept, *(run for run in steady if run.cells))[-MAX_RUNS:]
    runs = tuple(_of_age(run, len(runs) - place) for place, run in enumerate(runs))
    new = Baseline(key=key_of(records[-1].header), runs=runs)
    worse, meant = [], set()
    first = None if old is None else old.model_copy(update={"runs": old.anchor or old.runs})
    for then, since in ((old, "the baseline"), (first, _since(first))):
        for cell, said in _worse(then, fresh, bands, since):
            worse.append(said)
            meant.add(cell)
    if first is not None:
        anchor = _anchor(first.runs, steady, meant, bands)
        new = new.model_copy(update={"anchor": anchor})
    return Update(
        baseline=new,
        changes=tuple(changes(old, new)),
        impossible=tuple(_impossible(records, kept, runs)),
        objections=tuple(objections(records, bands, kept=len(kept))),
        worse=tuple(dict.fromkeys(worse)),
        left_out=(*left_out, *unsettled),
    )


def objections(records: Sequence[RunRecord], bands: Bands, *, kept: int = 0) -> list[str]:
    """What speaks against accepting these runs, one sentence each, beside `kept` accepted ones."""
    found: list[str] = []
    if len(records) + kept < MIN_RUNS:
        found.append(
            f"{len(records)} run given: a baseline needs {MIN_RUNS} runs that agree, so that one "
            "bad run cannot become the measure of all later ones; run it again first"
        )
    for record in records:
        run = record.header.run_id
        if record.footer is None or not record.footer.complete:
            found.append(f"run {run} did not finish; only complete runs can be accepted")
        found += [
            f"run {run}, {cell.metric.label} at {cell.depth} is {cell.outcome}: {cell.message}"
            for cell in judge(record, None, bands).cells
            if cell.metric is RETRIEVAL and cell.outcome in ("INVALID", "ERROR")
        ]
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


# -- what cannot be ---------------------------------------------------------------------------


def _impossible(
    records: Sequence[RunRecord], kept: Sequence[AcceptedRun], runs: Sequence[AcceptedRun]
) -> Iterator[str]:
    keys = [key_of(r.header) for r in records]
    if len({(k.machine_class, k.model, k.slug) for k in keys}) > 1:
        yield "the runs differ in machine class, model or configuration: no one baseline is theirs"
    for record in records:
        if not record.rungs:
            run = record.header.run_id
            yield f"run {run} measured no rung of the ladder, only a heatmap or a fuzz"
        if record.spot:
            yield (
                f"run {record.header.run_id} is a spot run: it restored documents that another "
                "build had read; a baseline is made of full runs"
            )
    named = [(r.header.run_id, r.header.started_at, _cells(r)) for r in records]
    named += [(run.run_id, run.started_at, run.cells) for run in kept]
    for (run, started, cells), (other, also_started, also) in combinations(named, 2):
        if run == other:
            yield f"run {run} is given twice or accepted already; a run counts once"
        elif started == also_started and cells == also:
            yield f"runs {run} and {other} are copies of one run, which counts once"
    if not runs:
        yield "no cell is steady, so nothing is left to accept"


def _cells(record: RunRecord) -> dict[int, Samples]:
    return {r.depth: samples_of(r) for r in record.rungs if r.failure is None}


# -- what is steady ---------------------------------------------------------------------------


def _fit(
    records: Sequence[RunRecord], bands: Bands, *, force: bool
) -> tuple[list[dict[int, Samples]], list[str]]:
    """Each run's samples by depth, without cells that the run itself shows to be no measure."""
    found, said = [], []
    for record in records:
        cells = _cells(record)
        for depth, metric, why, overridable in _unfit(record, bands):
            if depth in cells and not (force and overridable):
                cells[depth] = without(metric, cells[depth])
                said.append(f"{metric.label} at {depth} of run {record.header.run_id}: {why}")
        found.append(cells)
    return found, said


def _settled(
    fit: Sequence[dict[int, Samples]], kept: Sequence[AcceptedRun], bands: Bands
) -> tuple[list[dict[int, Samples]], list[str]]:
    """The same without cells in which the runs, and those accepted before, do not agree."""
    found, said = [dict(cells) for cells in fit], []
    for depth in sorted({d for cells in found for d in cells}):
        mine = [cells for cells in found if depth in cells]
        theirs = [run.cells[depth] for run in kept if depth in run.cells]
        for metric in METRICS.values():
            sides = [s for s in (*theirs, *(c[depth] for c in mine)) if values_of(metric, s)]
            if why := _unsettled(metric, sides, bands[metric.name]):
                for cells in mine:
                    cells[depth] = without(metric, cells[depth])
                said.append(f"{metric.label} at {depth} {why}")
    return found, said


def _unfit(record: RunRecord, bands: Bands) -> Iterator[tuple[int, Metric, str, bool]]:
    """Cells of one run that are no measure of later ones: why, and whether that is a judgement."""
    moved = changed_within(record, bands[PREFILL.name])
    for cell in judge(record, None, bands).cells:
        if cell.code == "impossible":
            yield cell.depth, cell.metric, cell.message, False
        elif cell.outcome == "LEAK":
            yield cell.depth, cell.metric, cell.message, True
        elif moved and cell.metric.kind in SPEED:
            why = f"{moved} while it was measured; measure again"
            yield cell.depth, cell.metric, why, True
    for rung in record.rungs:
        for name in sorted(metric.name for metric in disturbed_metrics(rung)):
            if not values_of(METRICS[name], samples_of(rung)):
                why = "measured only while others used the machine; measure again when it is quiet"
                yield rung.depth, METRICS[name], why, True


def _unsettled(metric: Metric, sides: Sequence[Samples], band: float) -> str | None:
    """Why runs that have a cell do not settle it: too few, or they disagree."""
    places = [place for side in sides if (place := _location(metric, [side])) is not None]
    if not places:
        return None
    if len(places) < MIN_RUNS:
        return f"was measured by one run only; a baseline needs {MIN_RUNS}"
    if metric is RETRIEVAL or min(places) <= 0:
        return None
    spread, moved = max(places) / min(places) - 1.0, max(places) - min(places)
    if spread <= band or moved <= metric.min_effect:
        return None
    return (
        f"differs by {share(spread)} between the runs ({number(min(places))} and "
        f"{number(max(places))} {metric.unit}), more than the band of ±{share(band)}"
    )


def _with_cells(
    runs: Sequence[AcceptedRun], cells: Sequence[dict[int, Samples]]
) -> list[AcceptedRun]:
    """Runs with these samples, without depths that have none."""
    return [
        _only(run.model_copy(update={"cells": some}), lambda _: True)
        for run, some in zip(runs, cells, strict=True)
    ]


# -- what gets worse, and the anchor ----------------------------------------------------------


def _worse(
    old: Baseline | None, fresh: Sequence[AcceptedRun], bands: Bands, since: str
) -> Iterator[tuple[Cell, str]]:
    """The cells that the fresh runs have worse than accepted ones by more than the band."""
    if old is None:
        return
    now = Baseline(key=old.key, runs=tuple(fresh))
    for change in changes(old, now):
        if change.metric is not RETRIEVAL and change.worse_beyond(bands[change.metric.name]):
            moved = percent(change.share or 0.0)
            said = f"{change.metric.label} at {depth_label(change.depth)} {moved} against {since}"
            yield (change.depth, change.metric), said
    depths = [c.depth for c in changes(old, now) if c.metric is RETRIEVAL and c.share is not None]
    sides = [(needles_of(now.samples(d)), needles_of(old.samples(d))) for d in depths]
    for depth, found in zip(depths, decide_needles(sides), strict=True):
        if found.decision == "REGRESSED":
            yield (depth, RETRIEVAL), f"fewer right answers at {depth} than {since} has"


def _since(first: Baseline | None) -> str:
    if first is None or not first.runs:
        return ""
    run = first.runs[0]
    return f"the first accepted run of {run.started_at[:10]} (build {run.build})"


def _anchor(
    first: Sequence[AcceptedRun], fresh: Sequence[AcceptedRun], meant: set[Cell], bands: Bands
) -> tuple[AcceptedRun, ...]:
    """What later runs are held against however often the baseline is updated.

    The first accepted samples of each cell stay, until a worse level is meant, or a better one
    is beyond the band.
    """
    reset = set(meant)
    depths = sorted({depth for run in fresh for depth in run.cells})
    for depth in depths:
        for metric in METRICS.values():
            before = _location(metric, [r.cells[depth] for r in first if depth in r.cells])
            after = _location(metric, [r.cells[depth] for r in fresh if depth in r.cells])
            better = Change(depth, metric, after, before)  # turned round: from the new to the old
            if after is not None and (before is None or better.worse_beyond(bands[metric.name])):
                reset.add((depth, metric))
    stay = [_only(run, lambda cell: cell not in reset and not cell[1].kept_runs) for run in first]
    come = [_only(run, lambda cell: cell in reset) for run in fresh]
    return tuple(run for run in (*stay, *come) if run.cells)


def _only(run: AcceptedRun, keep: Callable[[Cell], bool]) -> AcceptedRun:
    """A run with some of its cells, without depths that have none."""
    cells = {}
    for depth, samples in run.cells.items():
        for metric in METRICS.values():
            if not keep((depth, metric)):
                samples = without(metric, samples)
        if any(values_of(metric, samples) for metric in METRICS.values()):
            cells[depth] = samples
    return run.model_copy(update={"cells": cells})


def _of_age(run: AcceptedRun, age: int) -> AcceptedRun:
    """What the newest run but `age - 1` of a baseline keeps of its cells."""
    return _only(run, lambda cell: age <= (cell[1].kept_runs or MAX_RUNS))


def _location(metric: Metric, samples: Iterable[Samples]) -> float | None:
    values = [median(own) for one in samples if (own := values_of(metric, one))]
    return median(values) if values else None
