"""Drift: did the machine itself move while the run was measured, and what can it have moved?

The control is the same small request at depth 0 before and after the climb (A-B-A); short rungs are
visited again after the climb. Neither has a reason to change. A cell is held against its own
rung's two visits; one visited once against those of the deepest rung that was visited twice; the
control, which waits for latency more than a deep rung does, speaks where there is no such rung.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from harness.quantities import percent, share, span
from harness.records.lines import Control, Generation, Rung, RunRecord, Timed
from harness.records.metrics import GENERATION, PREFILL, Direction
from harness.records.samples import generation_rate, prefill_rate
from harness.records.sittings import bracket
from harness.verdicts.gpu_state import ClockMove, clock_move, explains
from harness.verdicts.stats import Unjudgeable, same_run_ratio

State = Literal["steady", "drifted", "unclear"]

DRIFT_CONFIDENCE = 0.99
"""Stricter than a cell's: naming drift costs cells their verdict."""
MIN_SAMPLES_OF_STEP = 3
"""Repeats on each side of a step: fewer are strays, which the estimate sees to."""
MIN_CONTROL_MS = 50.0
"""A control's prefill shorter than this says nothing of drift."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A change between two visits as a share (+0.07: 7 % more at the end), with interval.

    `what` was visited; `over` names what the visits enclose; `clock` is the GPU's where it explains
    the change. `limit` is half the band. `steady`: the interval lies within ±limit. `drifted`: the
    change is beyond the limit and told from zero. `unclear`: neither; nothing is claimed from it.
    """

    share: float
    low: float
    high: float
    confidence: float
    limit: float
    samples: int
    state: State
    over: str = "the run"
    what: str = "the control at depth 0"
    clock: ClockMove | None = None

    @property
    def sentence(self) -> str:
        """What the controls showed, in one sentence."""
        seen = (
            f"{self.what} changed by {percent(self.share)} over {self.over} "
            f"({span(self.low, self.high)}, {self.samples} samples)"
        )
        if self.clock is not None:
            seen = f"{seen}; {self.clock.sentence}"
        if self.state == "drifted":
            step = self.clock.next_step if self.clock is not None else "measure again when calm"
            return "; ".join(
                x for x in (f"{seen}: more than half the band (±{share(self.limit)})", step) if x
            )
        if self.state == "steady":
            return f"{seen}: within half the band (±{share(self.limit)})"
        return f"{seen}: too wide to call steady or drifted against ±{share(self.limit)}"


def drift_between(
    before: Sequence[float],
    after: Sequence[float],
    *,
    band: float,
    confidence: float = DRIFT_CONFIDENCE,
) -> Drift | Unjudgeable:
    """Drift from what was measured several times before and after the climb (one unit, > 0).

    Requests back to back are one look at one state, however little they scatter.
    """
    ratio = same_run_ratio(after, before, confidence=confidence, apart=True)
    if isinstance(ratio, Unjudgeable):
        return Unjudgeable(f"controls: {ratio.reason}", ratio.needed)
    return _drift(ratio.ratio, ratio.low, ratio.high, confidence, band, len(before) + len(after))


def could_explain(
    drift: Drift, low: float, high: float, *, band: float, direction: Direction
) -> bool:
    """Whether a ratio from `low` to `high` lies beyond the band only by what the controls moved.

    A cell is measured somewhere between the controls, so half of their change is taken off it,
    even where their scatter leaves open whether they changed. A change of theirs within `limit`
    explains nothing.
    """
    if abs(drift.share) <= drift.limit:
        return False
    faster = 1.0 + drift.share / 2.0
    expected = faster if direction == "higher" else 1.0 / faster
    below, above = high < 1.0 - band, low > 1.0 + band
    return (below and high / expected >= 1.0 - band) or (above and low / expected <= 1.0 + band)


def _drift(
    ratio: float, low: float, high: float, confidence: float, band: float, samples: int
) -> Drift:
    limit = band / 2.0
    state: State = "unclear"
    if abs(ratio - 1.0) > limit and not low <= 1.0 <= high:
        state = "drifted"
    elif low >= 1.0 - limit and high <= 1.0 + limit:
        state = "steady"
    return Drift(ratio - 1.0, low - 1.0, high - 1.0, confidence, limit, samples, state)


def drifts(record: RunRecord, bands: Mapping[str, float]) -> dict[int, tuple[Drift, ...]]:
    """What the controls around each sitting show, by sitting; those without two are left out."""
    found = {}
    for sitting in range(1, record.sittings + 1):
        before, after = bracket(record, sitting)
        if before is not None and after is not None:
            over = "the run" if record.sittings == 1 else f"sitting {sitting}"
            found[sitting] = tuple(
                replace(drift, over=over) for drift in _between_controls(before, after, bands)
            )
    return found


def drifts_of(record: RunRecord, depth: int, bands: Mapping[str, float]) -> tuple[Drift, ...]:
    """The drift that the speeds of one rung are held against, for want of better its controls'."""
    rung = record.rung(depth)
    sitting = rung.sitting if rung is not None else record.sittings
    twice = [
        (r.depth, visits)
        for r in _rungs(record)
        if r.sitting == sitting and r.depth <= depth and (visits := _visits(record, r)) is not None
    ]
    if twice:
        at, (early, late) = max(twice, key=lambda found: found[0])
        drift = _between(early, late, generation_rate, bands[GENERATION.name])
        if drift is not None:
            what = f"generation at {at}, visited before and after the climb,"
            return (replace(drift, what=what),)
    return drifts(record, bands).get(sitting, ())


def stepped(record: RunRecord, depth: int, bands: Mapping[str, float]) -> tuple[Drift, ...]:
    """Where a rung's generation repeats changed level among themselves, the largest such step.

    A server that got slower is so from the first repeat on; what changes in their midst by
    more than the band passed by, or began then. All places are looked at, so each at a part of the
    level.
    """
    rung = record.rung(depth)
    told = rung.generations if rung is not None else ()
    rates = [r for g in told if g.contention is None and (r := generation_rate(g))]
    places = range(MIN_SAMPLES_OF_STEP, len(rates) - MIN_SAMPLES_OF_STEP + 1)
    found = []
    for place in places:
        confidence = 1.0 - (1.0 - DRIFT_CONFIDENCE) / len(places)
        ratio = same_run_ratio(rates[place:], rates[:place], confidence=confidence)
        if not isinstance(ratio, Unjudgeable):
            numbers = (ratio.ratio, ratio.low, ratio.high, confidence)
            found.append(_drift(*numbers, bands[GENERATION.name], len(rates)))
    moved = [d for d in found if d.state == "drifted" and abs(d.share) > bands[GENERATION.name]]
    what = f"generation at {depth}"
    return tuple(
        replace(drift, what=what, over="its own repeats")
        for drift in sorted(moved, key=lambda d: -abs(d.share))[:1]
    )


def _visits(
    record: RunRecord, rung: Rung
) -> tuple[Sequence[Generation], Sequence[Generation]] | None:
    """The generations of a rung's visits before and after deeper ones were read."""
    deeper = [
        p.start_s
        for r in _rungs(record)
        if r.sitting == rung.sitting and r.depth > rung.depth
        for p in r.prefills
        if p.kind != "cold_repeat" and p.start_s is not None
    ]
    early: list[Generation] = []
    late: list[Generation] = []
    for generation in rung.generations:
        if generation.start_s is not None and generation.contention is None and deeper:
            (late if generation.start_s > min(deeper) else early).append(generation)
    return (early, late) if early and late else None


def _rungs(record: RunRecord) -> list[Rung]:
    """The rungs as they count: of one measured twice the last line."""
    return list({r.depth: r for r in record.rungs}.values())


def _between_controls(
    before: Control, after: Control, bands: Mapping[str, float]
) -> tuple[Drift, ...]:
    early, late = (
        [p for p in c.prefills if (p.server_ms or p.wall_ms) >= MIN_CONTROL_MS]
        for c in (before, after)
    )
    found = (
        _between(before.generations, after.generations, generation_rate, bands[GENERATION.name]),
        _between(early, late, prefill_rate, bands[PREFILL.name]),
    )
    return tuple(drift for drift in found if drift is not None)


Sample = TypeVar("Sample", bound=Timed)


def _between(
    early: Sequence[Sample],
    late: Sequence[Sample],
    rate: Callable[[Sample], float | None],
    band: float,
) -> Drift | None:
    rates = [[r for sample in side if (r := rate(sample))] for side in (early, late)]
    drift = drift_between(*rates, band=band)
    if isinstance(drift, Unjudgeable):
        return None
    move = clock_move(early, late)
    return replace(drift, clock=move if move and explains(move, drift.share) else None)
