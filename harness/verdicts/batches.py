"""Batches of several prefills on the same stretches of depth, and how much they scatter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.llamacpp.cost import ChunkLike
from harness.verdicts.noise import NORMAL_MEDIAN, PRIOR, Floats, moderate, moving_median
from harness.verdicts.stats import Unjudgeable

MIN_CHUNKS = 4
_OUTLIER_SDS = 3.5
_OUTLIER_SHARE_MAX = 0.25
_WINDOW = 5
_PRIOR_CORRELATION = 0.3
_PRIOR_CORRELATION_CHUNKS = 8
_CORRELATION_MAX = 0.8


@dataclass(frozen=True, slots=True)
class Paired:
    """Batches that all runs share: their ms, now and in each baseline run (runs × batches).

    `raw` are log speed ratios as measured, `log_ratio` with isolated outliers set aside; `relative`
    is the current time of each batch against its neighbourhood's.
    """

    starts: NDArray[np.int_]
    ends: NDArray[np.int_]
    ms: Floats
    base_ms: Floats
    raw: Floats
    log_ratio: Floats
    relative: Floats
    set_aside: int
    chunk_variance: float
    chunk_df: float
    correlation: float

    @property
    def inflation(self) -> float:
        """What correlated neighbours multiply the variance of a mean by."""
        return (1.0 + self.correlation) / (1.0 - self.correlation)


def pair(
    current: Sequence[ChunkLike],
    baseline_runs: Sequence[Sequence[ChunkLike]],
    *,
    least_runs: int = 2,
) -> Paired | Unjudgeable:
    """The current batches beside those of two or more baseline runs that read the same tokens."""
    chunks = _in_order(current)
    starts = np.array([c.start_tokens for c in chunks], dtype=np.float64)
    ends = np.array([c.end_tokens for c in chunks], dtype=np.float64)
    runs = [_ms_over(run, starts, ends) for run in baseline_runs]
    runs = [ms for ms in runs if np.count_nonzero(np.isfinite(ms)) >= MIN_CHUNKS]
    if len(runs) < least_runs:
        return Unjudgeable(
            f"{len(runs)} baseline run(s) with {MIN_CHUNKS} or more batches at these depths "
            f"(this run has {len(chunks)})",
            f"{least_runs} such runs with {MIN_CHUNKS} batches in common; a smaller -b makes more",
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
    variance, df = _chunk_variance(raw, correlation)
    middle, outlying = _outliers(raw, math.sqrt(variance))
    few = np.count_nonzero(outlying) <= _OUTLIER_SHARE_MAX * outlying.size
    return Paired(
        starts=starts[shared].astype(np.int_),
        ends=ends[shared].astype(np.int_),
        ms=ms,
        base_ms=base_ms,
        raw=raw,
        log_ratio=np.where(outlying, middle, raw) if few else raw,
        relative=np.exp(np.where(outlying.all(axis=0), (middle - raw).mean(axis=0), 0.0)),
        set_aside=int(np.count_nonzero(outlying.all(axis=0))) if few else 0,
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
    limit = 3.0 * float(np.median(np.abs(noise))) / NORMAL_MEDIAN
    noise = np.clip(noise, -limit, limit)
    power = float((noise[:, :-1] ** 2 + noise[:, 1:] ** 2).sum() / 2.0)
    seen = float((noise[:, :-1] * noise[:, 1:]).sum()) / power if power > 0.0 else 0.0
    pairs = (runs - 1) * (count - 1)
    drawn = (pairs * seen + _PRIOR_CORRELATION_CHUNKS * _PRIOR_CORRELATION) / (
        pairs + _PRIOR_CORRELATION_CHUNKS
    )
    return float(min(max(drawn, 0.0), _CORRELATION_MAX))


def _chunk_variance(log_ratio: Floats, correlation: float) -> tuple[float, float]:
    """Variance of one batch's log ratio to one baseline run, and its df.

    From the differences of neighbouring batches, so that a departure does not count as noise.
    """
    steps = np.abs(np.diff(log_ratio, axis=1))
    scale = float(np.median(steps)) / NORMAL_MEDIAN
    own = scale * scale / (2.0 * (1.0 - correlation))
    independent = steps.shape[1] * (1.0 - correlation) / (1.0 + correlation)
    return moderate(own, 0.5 * independent, 2.0 * PRIOR.sample_sd**2, PRIOR.sample_df)


def _outliers(log_ratio: Floats, sd: float) -> tuple[Floats, NDArray[np.bool_]]:
    """The median of each batch's neighbourhood, and which stick out of it (Hampel's filter)."""
    size = min(_WINDOW, log_ratio.shape[1] // 2 * 2 - 1)
    middle = moving_median(log_ratio, size)
    return middle, np.abs(log_ratio - middle) > _OUTLIER_SDS * sd
