"""Trends over many runs: where a series changed its level, and whether it decays under the band.

One value a run and cell, oldest first. A verdict compares one run with its baseline and leaves
room for noise; over many runs a smaller change stands out, and a decay that each new baseline
accepted a little of is seen against a reference that stays where it is.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from harness.records.baseline import key_of
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS, PREFILL, Direction
from harness.records.points import Point
from harness.records.samples import samples_of, values_of
from harness.verdicts.levels import fit_any_levels
from harness.verdicts.noise import moving_median, theil_sen
from harness.verdicts.student import quantile, upper_tail
from harness.verdicts.verdict import judge

MIN_RUNS = 4
"""Runs that each side of a change has at least: fewer is a bad night or two."""

MIN_SHARE = 0.02
"""Changes of level below this share are not reported, however sure."""

LEVEL = 0.003
"""A change is kept when equal levels would show as much with less than this probability."""

RECENT_RUNS = 5
_PENALTY = 2.5
_OUTLIER_SDS = 3.5
_WINDOW = 5
_NORMAL_MEDIAN = 0.6745
_MEDIAN_SE = 1.2533  # a median's standard error beside a mean's, of normal values
_LEAST_SD = 1e-4

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A lasting change of level: `index` is the first run on the new one.

    `before` and `after` are the levels (geometric means) in the series' unit; `change` is the
    share by which they differ (-0.06: 6 % less); `p_value` is that of equal levels.
    """

    index: int
    before: float
    after: float
    change: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Decay:
    """The newest runs' level against a pinned reference, as shares; worse than it, and surely so.

    `low` and `high` bound the change with 99 % confidence; `per_run` is the median slope
    (Theil–Sen), a share a run.
    """

    change: float
    low: float
    high: float
    per_run: float
    runs: int


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest run, far from the level before it: one run, so no lasting change yet."""

    before: float
    change: float


def points_of(record: RunRecord) -> Iterator[Point]:
    """What a record adds to the history: the cells that a verdict would judge, by its samples.

    What is INVALID or an ERROR by the record alone is no point, nor is a rung that failed.
    """
    header = record.header
    samples = {rung.depth: samples_of(rung) for rung in record.rungs if rung.failure is None}
    for cell in judge(record, None, {name: m.band for name, m in METRICS.items()}).cells:
        if cell.outcome in ("INVALID", "ERROR") or cell.depth not in samples:
            continue
        if record.spot and cell.metric is PREFILL:  # of the last batches only
            continue
        if values := values_of(cell.metric, samples[cell.depth]):
            yield Point(
                run_id=header.run_id,
                started_at=header.started_at,
                build=header.server.build,
                machine_class=header.machine.machine_class,
                model=header.model.identity,
                configuration=key_of(header).slug,
                depth=cell.depth,
                metric=cell.metric.name,
                value=float(median(values)),
            )


def change_points(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """The lasting changes of level in a series of positive values, oldest first.

    The levels are a penalised least-squares fit to the logarithms (a further level must lower the
    squared error by more than 2.5 log(n) noise variances, after Yao 1988,
    doi:10.1016/0167-7152(88)90118-6). Single outlying runs are drawn in first, and a change
    is kept only if it is larger than `MIN_SHARE` and passes a t test at `LEVEL`.

    Raises:
        ValueError: a value is zero, negative or not a number.
    """
    if any(not (math.isfinite(v) and v > 0.0) for v in values):
        raise ValueError("a trend needs values above zero")
    if len(values) < 2 * MIN_RUNS:
        return ()
    y = np.log(np.asarray(values, dtype=np.float64))
    noise_sd = _noise_sd(y)
    y = _outliers_drawn_in(y, noise_sd)
    penalty = _PENALTY * math.log(y.size) * noise_sd**2
    borders = _placed(y, fit_any_levels(y - y.mean(), penalty=penalty, shortest=MIN_RUNS))
    while len(borders) > 2:
        points = _between(y, borders)
        weakest = max(points, key=lambda p: (abs(p.change) < MIN_SHARE, p.p_value))
        if abs(weakest.change) >= MIN_SHARE and weakest.p_value <= LEVEL:
            return tuple(points)
        borders.remove(weakest.index)
    return ()


def slow_decay(
    values: Sequence[float], reference: Sequence[float], *, direction: Direction, band: float
) -> Decay | None:
    """Whether the newest runs are surely worse than a pinned reference by half the band or more.

    `values` are one a run, oldest first; `reference` the pinned run's own value or values. `None`
    when there are too few runs, or no such decay.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    recent = logs[-RECENT_RUNS:]
    if recent.size < MIN_RUNS or not reference:
        return None
    noise_sd = max(_noise_sd(logs), _LEAST_SD)
    pinned = np.log(np.asarray(reference, dtype=np.float64))
    change = float(np.median(recent) - np.median(pinned))  # a bad night moves no median
    error = _MEDIAN_SE * noise_sd * math.sqrt(1.0 / recent.size + 1.0 / pinned.size)
    reach = quantile(0.995, max(len(values) - 1, 1)) * error
    worse = change < 0.0 if direction == "higher" else change > 0.0
    edge = math.log1p(-band / 2.0) if change < 0.0 else math.log1p(band / 2.0)
    if not worse or abs(change) < abs(edge) or abs(change) <= reach:
        return None
    slope, _, _ = theil_sen(logs, np.arange(logs.size, dtype=np.float64))
    return Decay(
        change=math.expm1(change),
        low=math.expm1(change - reach),
        high=math.expm1(change + reach),
        per_run=math.expm1(slope),
        runs=len(values),
    )


def _noise_sd(y: Floats) -> float:
    """Spread from one run to the next, which a change of level hardly enters."""
    steps = np.abs(np.diff(y))
    typical = float(np.median(steps)) if steps.size else 0.0
    return max(typical / (_NORMAL_MEDIAN * math.sqrt(2.0)), _LEAST_SD)


def _outliers_drawn_in(y: Floats, noise_sd: float) -> Floats:
    """Runs further from their neighbours than noise would put them, moved amidst them (Hampel)."""
    middle = moving_median(y, _WINDOW)
    return np.where(np.abs(y - middle) > _OUTLIER_SDS * noise_sd, middle, y)


def _placed(y: Floats, borders: Sequence[int]) -> list[int]:
    """Each inner border where it fits best: the fit's shortest piece may have moved it."""
    placed = list(borders)
    for n in range(1, len(placed) - 1):
        left, right = placed[n - 1], placed[n + 1]
        near = range(max(left + 1, placed[n] - MIN_RUNS), min(right, placed[n] + MIN_RUNS + 1))
        placed[n] = min(near, key=lambda k: _squares(y[left:k]) + _squares(y[k:right]))
    # A piece of fewer runs is a bad night or two, which more nights will tell.
    long = [b for n, b in enumerate(placed[1:-1], 1) if placed[n + 1] - b >= MIN_RUNS - 1]
    return [placed[0], *long, placed[-1]]


def _squares(piece: Floats) -> float:
    return float(((piece - piece.mean()) ** 2).sum())


def _between(y: Floats, borders: Sequence[int]) -> list[ChangePoint]:
    """The change at each inner border, judged by the spread left within the levels."""
    pieces = [y[a:b] for a, b in itertools.pairwise(borders)]
    df = y.size - len(pieces)
    left = sum(float(((p - p.mean()) ** 2).sum()) for p in pieces) / df
    sd = max(math.sqrt(left), _LEAST_SD)
    points = []
    for index, before, after in zip(borders[1:], pieces, pieces[1:], strict=False):
        step = float(after.mean() - before.mean())
        t = abs(step) / (sd * math.sqrt(1.0 / before.size + 1.0 / after.size))
        points.append(
            ChangePoint(
                index=index,
                before=math.exp(float(before.mean())),
                after=math.exp(float(after.mean())),
                change=math.expm1(step),
                p_value=2.0 * upper_tail(t, df),
            )
        )
    return points


@dataclass(frozen=True, slots=True)
class Finding:
    """What a cell's series shows: a lasting change since run `since`, a slow decay up to it, or
    that it is the newest and stands out.

    Exactly one of `change`, `decay` and `newest` is given; `worse` says whether it is for the
    worse, `pinned` whether somebody named the decay's reference.
    """

    since: Point
    change: ChangePoint | None
    decay: Decay | None
    worse: bool
    newest: Newest | None = None
    pinned: bool = False


def findings(
    points: Sequence[Point], *, band: float, reference: str | None = None
) -> tuple[Finding, ...]:
    """Changes of one cell's points, oldest first, its decay, and what its newest run stands out by.

    `reference` is the id of the pinned run; without one the decay is that since the last lasting
    change, against the oldest five runs of its level, so that no fact is said twice. Metrics that
    are shares of right answers are judged run by run, not here, and give nothing.
    """
    if not points or METRICS[points[0].metric].kind == "score":
        return ()
    direction = METRICS[points[0].metric].direction
    kept = [p for p in points if p.value > 0.0]
    values = [p.value for p in kept]

    def worse(change: float) -> bool:
        return (change < 0.0) == (direction == "higher")

    changes = change_points(values)
    found = [Finding(kept[c.index], c, None, worse(c.change)) for c in changes]
    level = values if reference else values[changes[-1].index if changes else 0 :]
    pinned = [p.value for p in kept if p.run_id == reference] if reference else level[:RECENT_RUNS]
    decay = None
    if reference or len(level) >= RECENT_RUNS + MIN_RUNS:
        decay = slow_decay(level, pinned, direction=direction, band=band)
    if decay is not None:
        found.append(Finding(kept[-1], None, decay, True, pinned=reference is not None))
    if (newest := _newest(level, band)) is not None:
        found.append(Finding(kept[-1], None, None, worse(newest.change), newest))
    return tuple(found)


def _newest(level: Sequence[float], band: float) -> Newest | None:
    """The newest value if it is off the runs before it by more than the band and their noise."""
    if len(level) <= MIN_RUNS:
        return None
    before = np.log(np.asarray(level[:-1], dtype=np.float64))
    off = math.log(level[-1]) - float(np.median(before[-RECENT_RUNS:]))
    edge = math.log1p(-band) if off < 0.0 else math.log1p(band)
    if abs(off) < abs(edge) or abs(off) < _OUTLIER_SDS * _noise_sd(before):
        return None
    return Newest(math.exp(float(np.median(before[-RECENT_RUNS:]))), math.expm1(off))
