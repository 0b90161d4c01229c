"""A prefill judged as a curve: its batches paired by depth with those of the baseline's runs.

One prefill pass is one sample of its total time, but its batches are many samples of the pace at a
depth. Each batch is compared with the same tokens of every baseline run, single batches hit by
something else are set aside, and where the pace leaves the baseline's is found and named.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, special

from harness.llamacpp.cost import ChunkLike
from harness.verdicts.noise import PRIOR, Floats, NoisePrior, moderate
from harness.verdicts.stats import (
    CONFIDENCE,
    Decision,
    Estimate,
    Unjudgeable,
    combine,
    decide,
)

MIN_CHUNKS = 4
MIN_STRETCH_CHUNKS = 6
_STRETCH_SHARE = 0.1
_STEP_PENALTY = 3.0
_MAJORITY = 2.0 / 3.0
_OUTLIER_SDS = 3.5
_OUTLIER_SHARE_MAX = 0.25
_WINDOW = 5
_PRIOR_CORRELATION = 0.3
_PRIOR_CORRELATION_CHUNKS = 8
_CORRELATION_MAX = 0.8
_NORMAL_MEDIAN = 0.6745


@dataclass(frozen=True, slots=True)
class Departure:
    """A stretch of depth, in tokens, whose speed lies beyond the band.

    `to_end` says that it lasts to the end of what was measured.
    """

    from_tokens: int
    to_tokens: int
    to_end: bool
    estimate: Estimate

    @property
    def sentence(self) -> str:
        """The stretch and its change, as "from 65,536 tokens on, −23 %"."""
        change = f"{self.estimate.change * 100.0:+.0f} %".replace("-", "−")
        if self.to_end:
            return f"from {self.from_tokens:,} tokens on, {change}"
        return f"between {self.from_tokens:,} and {self.to_tokens:,} tokens, {change}"


@dataclass(frozen=True, slots=True)
class CurveEstimate:
    """Ratio of prefill speed over the whole stretch compared, and where it departs, if it does.

    `set_aside` counts batches of the current run taken for isolated outliers.
    """

    overall: Estimate
    departure: Departure | None
    set_aside: int

    @property
    def judged(self) -> Estimate:
        """The estimate a verdict rests on: that of a departure lasting to the end, else overall."""
        if self.departure is not None and self.departure.to_end:
            return self.departure.estimate
        return self.overall


@dataclass(frozen=True, slots=True)
class _Paired:
    """Batches that all runs share: log speed ratios (runs × batches) and their weights.

    `raw` as measured, `log_ratio` with isolated outliers set aside.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    raw: Floats
    log_ratio: Floats
    weight: Floats
    set_aside: int
    chunk_variance: float
    chunk_df: float
    correlation: float


def curve_estimate(
    current: Sequence[ChunkLike],
    baseline_runs: Sequence[Sequence[ChunkLike]],
    *,
    band: float = 0.10,
    confidence: float = CONFIDENCE,
    prior: NoisePrior = PRIOR,
) -> CurveEstimate | Unjudgeable:
    """Compare one prefill's batches with those of two or more baseline runs, paired by depth.

    The ratio is one of speed (above 1 is faster): the baseline's time over the current's for the
    same tokens, isolated outliers replaced by their neighbourhood. Batch borders may differ; a
    baseline's pace is taken as constant within its batch. Returns `Unjudgeable` with fewer than
    `MIN_CHUNKS` shared batches or two baseline runs.
    """
    paired = _pair(current, baseline_runs, prior)
    if isinstance(paired, Unjudgeable):
        return paired
    count = paired.weight.size
    overall = _over(paired, range(count), confidence, prior)
    departure = _departure(paired, band, confidence, prior)
    return CurveEstimate(overall, departure, paired.set_aside)


def decide_curve(curve: CurveEstimate, *, band: float) -> Decision:
    """The three-way rule on a curve: a departure that lasts to the end counts like the whole.

    A stretch that ends again before the curve does is more likely something that passed by than a
    change of the build: it decides nothing, whatever the whole says. Nor is anything decided when
    whole and departure say opposite things.
    """
    whole = decide(curve.overall, band=band, direction="higher")
    if curve.departure is None:
        return whole
    if not curve.departure.to_end:
        return "UNDECIDED"
    part = decide(curve.departure.estimate, band=band, direction="higher")
    return part if whole in ("PASS", "UNDECIDED", part) else "UNDECIDED"


def _pair(
    current: Sequence[ChunkLike], baseline_runs: Sequence[Sequence[ChunkLike]], prior: NoisePrior
) -> _Paired | Unjudgeable:
    chunks = _in_order(current)
    starts = np.array([c.start_tokens for c in chunks], dtype=np.float64)
    ends = np.array([c.end_tokens for c in chunks], dtype=np.float64)
    runs = [_ms_over(run, starts, ends) for run in baseline_runs]
    runs = [ms for ms in runs if np.count_nonzero(np.isfinite(ms)) >= MIN_CHUNKS]
    if len(runs) < 2:
        return Unjudgeable(
            f"{len(runs)} baseline run(s) with {MIN_CHUNKS} or more batches at these depths "
            f"(this run has {len(chunks)})",
            f"two accepted runs and {MIN_CHUNKS} shared batches; a smaller -b makes more batches",
        )
    base_ms = np.stack(runs)
    shared: NDArray[np.bool_] = np.all(np.isfinite(base_ms), axis=0)
    count = int(np.count_nonzero(shared))
    if count < MIN_CHUNKS:
        return Unjudgeable(
            f"{count} batch(es) shared with every baseline run: a single batch has no spread",
            f"{MIN_CHUNKS} shared batches; a smaller -b makes more batches",
        )
    ms = np.array([c.ms for c in chunks], dtype=np.float64)[shared]
    base_ms = base_ms[:, shared]
    raw = np.log(base_ms) - np.log(ms)
    correlation = _correlation(np.log(base_ms))
    variance, df = _chunk_variance(raw, correlation, prior)
    cleaned, outlying = _set_aside(raw, math.sqrt(variance))
    kept = [c for c, s in zip(chunks, shared.tolist(), strict=True) if s]
    return _Paired(
        starts=tuple(c.start_tokens for c in kept),
        ends=tuple(c.end_tokens for c in kept),
        raw=raw,
        log_ratio=cleaned,
        weight=base_ms.mean(axis=0),
        set_aside=int(np.count_nonzero(outlying.all(axis=0))),
        chunk_variance=variance,
        chunk_df=df,
        correlation=correlation,
    )


def _in_order(chunks: Sequence[ChunkLike]) -> list[ChunkLike]:
    """Batches with tokens and time, by depth; of batches that overlap, the first."""
    kept: list[ChunkLike] = []
    for chunk in sorted(chunks, key=lambda c: (c.start_tokens, c.end_tokens)):
        timed = math.isfinite(chunk.ms) and chunk.ms > 0.0
        begins = not kept or chunk.start_tokens >= kept[-1].end_tokens
        if timed and begins and chunk.end_tokens > chunk.start_tokens:
            kept.append(chunk)
    return kept


def _ms_over(run: Sequence[ChunkLike], starts: Floats, ends: Floats) -> Floats:
    """The run's ms for each stretch `starts..ends`; NaN where it did not read every token."""
    ordered = _in_order(run)
    if not ordered:
        return np.full(starts.shape, np.nan)
    borders: list[float] = []
    time: list[float] = []
    read: list[float] = []
    ms = tokens = 0.0
    for chunk in ordered:
        borders += [chunk.start_tokens, chunk.end_tokens]
        time += [ms, ms + chunk.ms]
        read += [tokens, tokens + chunk.end_tokens - chunk.start_tokens]
        ms, tokens = time[-1], read[-1]
    covered = np.interp(ends, borders, read) - np.interp(starts, borders, read)
    spent: Floats = np.interp(ends, borders, time) - np.interp(starts, borders, time)
    return np.where(covered >= ends - starts - 0.5, spent, np.nan)


def _correlation(log_ms: Floats) -> float:
    """Correlation of neighbouring batches' noise, from the baseline against itself.

    Estimated on the runs' deviations from their mean curve, drawn towards a prior for short
    curves, never negative.
    """
    runs, count = log_ms.shape
    noise = log_ms - log_ms.mean(axis=0)
    noise = noise - np.median(noise, axis=1, keepdims=True)
    limit = 3.0 * float(np.median(np.abs(noise))) / _NORMAL_MEDIAN
    noise = np.clip(noise, -limit, limit)
    power = float((noise[:, :-1] ** 2 + noise[:, 1:] ** 2).sum() / 2.0)
    seen = float((noise[:, :-1] * noise[:, 1:]).sum()) / power if power > 0.0 else 0.0
    pairs = (runs - 1) * (count - 1)
    drawn = (pairs * seen + _PRIOR_CORRELATION_CHUNKS * _PRIOR_CORRELATION) / (
        pairs + _PRIOR_CORRELATION_CHUNKS
    )
    return float(min(max(drawn, 0.0), _CORRELATION_MAX))


def _chunk_variance(
    log_ratio: Floats, correlation: float, prior: NoisePrior
) -> tuple[float, float]:
    """Variance of one batch's log ratio to one baseline run, and its df.

    From the differences of neighbouring batches, so that a departure does not count as noise.
    """
    steps = np.abs(np.diff(log_ratio, axis=1))
    scale = float(np.median(steps)) / _NORMAL_MEDIAN
    own = scale * scale / (2.0 * (1.0 - correlation))
    independent = steps.shape[1] * (1.0 - correlation) / (1.0 + correlation)
    return moderate(own, 0.5 * independent, 2.0 * prior.sample_sd**2, prior.sample_df)


def _set_aside(log_ratio: Floats, sd: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Isolated outliers replaced by the median of their neighbourhood (Hampel's filter)."""
    size = min(_WINDOW, log_ratio.shape[1] // 2 * 2 - 1)
    middle = ndimage.median_filter(log_ratio, size=(1, size), mode="mirror")
    outlying = np.abs(log_ratio - middle) > _OUTLIER_SDS * sd
    if np.count_nonzero(outlying) > _OUTLIER_SHARE_MAX * outlying.size:
        return log_ratio, np.zeros_like(outlying)
    return np.where(outlying, middle, log_ratio), outlying


def _over(
    paired: _Paired,
    members: Sequence[int],
    confidence: float,
    prior: NoisePrior,
    search: float = 1.0,
) -> Estimate:
    """Interval of the speed ratio over the batches `members`, weighted by their time.

    `search` multiplies the variance of the batches' own noise.
    """
    where = np.asarray(members)
    weight = paired.weight[where] / paired.weight[where].sum()
    locations = paired.log_ratio[:, where] @ weight
    inflation = (1.0 + paired.correlation) / (1.0 - paired.correlation)
    share = min(1.0, float((weight**2).sum()) * inflation) * search
    side = paired.chunk_variance / 2.0
    count = len(members)
    return combine(
        0.0,
        [-float(v) for v in locations],
        sample_variance=side * share * count,
        sample_df=paired.chunk_df,
        base_within=side * share,
        base_df=paired.chunk_df,
        run_variance=prior.run_variance(side),
        counts=(count, count * len(locations)),
        confidence=confidence,
        prior=prior,
    )


def _departure(
    paired: _Paired, band: float, confidence: float, prior: NoisePrior
) -> Departure | None:
    """The stretch furthest from "no change" among those wholly beyond the band, if any.

    If the rest of the curve lies beyond the band as well, the departure is the whole curve.
    """
    count = paired.weight.size
    found: list[tuple[float, Departure]] = []
    fitted = _levels(paired)
    search = 1.0 if len(fitted) == 1 else _search_factor(confidence, count)
    levels = [
        (first, last, _beyond(_over(paired, range(first, last), confidence, prior, search), band))
        for first, last in fitted
    ]
    for beyond, group in itertools.groupby(levels, key=lambda level: level[2]):
        if beyond is None:
            continue
        stretches = list(group)
        first, last = stretches[0][0], stretches[-1][1]
        estimate = _over(paired, range(first, last), confidence, prior, search)
        if not _borne_by_most(paired.raw[:, first:last], estimate.ratio, band):
            continue
        rest = [*range(first), *range(last, count)]
        if rest and _beyond(_over(paired, rest, confidence, prior), band) == beyond:
            first, last = 0, count
            estimate = _over(paired, range(count), confidence, prior)
        place = Departure(paired.starts[first], paired.ends[last - 1], last == count, estimate)
        found.append((estimate.p_no_change, place))
    return min(found, key=lambda f: f[0])[1] if found else None


def _search_factor(confidence: float, count: int) -> float:
    """Factor on the batches' variance for a stretch chosen among about `count` (Bonferroni).

    Only the batches' noise makes one stretch of a curve stand out: what a run has as a whole is
    common to all of them, and is not multiplied.
    """
    tail = (1.0 - confidence) / 2.0
    return float((special.ndtri(tail / count) / special.ndtri(tail)) ** 2)


def _borne_by_most(log_ratio: Floats, ratio: float, band: float) -> bool:
    """Whether most batches of a stretch lie beyond the band themselves, not a few far outliers."""
    mean = log_ratio.mean(axis=0)
    edge = math.log1p(-band) if ratio < 1.0 else math.log1p(band)
    beyond = mean < edge if ratio < 1.0 else mean > edge
    return float(np.mean(beyond)) >= _MAJORITY


def _beyond(estimate: Estimate, band: float) -> Decision | None:
    decision = decide(estimate, band=band, direction="higher")
    return decision if decision in ("REGRESSED", "IMPROVED") else None


def _levels(paired: _Paired) -> list[tuple[int, int]]:
    """Stretches of the best least-squares fit of one, two or three levels to the mean log ratio.

    A further level must lower the squared error by more than `_STEP_PENALTY` log(n) noise
    variances (Yao 1988, doi:10.1016/0167-7152(88)90118-6).
    """
    y = paired.log_ratio.mean(axis=0)
    count, runs = y.size, paired.log_ratio.shape[0]
    shortest = max(MIN_STRETCH_CHUNKS, math.ceil(_STRETCH_SHARE * count))
    error = _errors(y)
    inflation = (1.0 + paired.correlation) / (1.0 - paired.correlation)
    noise = paired.chunk_variance / 2.0 * (1.0 + 1.0 / runs) * inflation
    penalty = _STEP_PENALTY * math.log(count) * noise
    best = (error[0, count], [(0, count)])
    for cut in range(shortest, count - shortest + 1):
        cost = error[0, cut] + error[cut, count] + penalty
        best = min(best, (cost, [(0, cut), (cut, count)]))
    inner = error + error[0, :, None] + error[None, :, count]
    for first in range(shortest, count - 2 * shortest + 1):
        last = (
            first + shortest + int(np.argmin(inner[first, first + shortest : count - shortest + 1]))
        )
        cost = float(inner[first, last]) + 2.0 * penalty
        best = min(best, (cost, [(0, first), (first, last), (last, count)]))
    return best[1]


def _errors(y: Floats) -> Floats:
    """Squared error of one level over `y[i:j]`, at `[i, j]`; infinite where `j <= i`."""
    total = np.concatenate(([0.0], np.cumsum(y)))
    square = np.concatenate(([0.0], np.cumsum(y * y)))
    span = np.arange(y.size + 1)[None, :] - np.arange(y.size + 1)[:, None]
    length = np.where(span > 0, span, 1)
    error = square[None, :] - square[:, None] - (total[None, :] - total[:, None]) ** 2 / length
    return np.where(span > 0, np.maximum(error, 0.0), np.inf)
