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

from harness.llamacpp.cost import ChunkLike
from harness.quantities import near, percent
from harness.verdicts.batches import Paired, pair
from harness.verdicts.levels import fit_levels
from harness.verdicts.noise import PRIOR, Floats
from harness.verdicts.stats import (
    CONFIDENCE,
    Decision,
    Estimate,
    Unjudgeable,
    combine,
    decide,
    mean_estimate,
)
from harness.verdicts.student import normal_quantile
from harness.verdicts.whole import ASIDE_SHARE, Stragglers, settle, stands, stragglers

MIN_STRETCH_CHUNKS = 6
_STRETCH_SHARE = 0.1
_MAJORITY = 2.0 / 3.0


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
        """The stretch and its change, as "from 64K on, −23 %"."""
        change = percent(self.estimate.change)
        if self.to_end:
            return f"from {near(self.from_tokens)} on, {change}"
        return f"between {near(self.from_tokens)} and {near(self.to_tokens)}, {change}"


@dataclass(frozen=True, slots=True)
class CurveEstimate:
    """Ratio of prefill speed over the whole stretch compared, and where it departs, if it does.

    `whole` is the ratio over the judged stretch with nothing set aside. Of the current run's
    `batches`, `set_aside` were taken for isolated outliers; `late` are those that took long.
    """

    overall: Estimate
    departure: Departure | None
    whole: Estimate
    batches: int
    set_aside: int
    late: Stragglers | None

    @property
    def judged(self) -> Estimate:
        """The estimate a verdict rests on: that of a departure lasting to the end, else overall."""
        if self.departure is not None and self.departure.to_end:
            return self.departure.estimate
        return self.overall


Readings = tuple[Sequence[float], Sequence[Sequence[float]]]
"""Rates of whole readings of the stretch: this run's, and each baseline run's."""


def curve_estimate(
    current: Sequence[ChunkLike],
    baseline_runs: Sequence[Sequence[ChunkLike]],
    *,
    band: float = 0.10,
    readings: Readings = ((), ()),
    least_runs: int = 2,
    confidence: float = CONFIDENCE,
) -> CurveEstimate | Unjudgeable:
    """Compare one prefill's batches with those of two or more baseline runs, paired by depth.

    The ratio is one of speed (above 1 is faster): the baseline's time over the current's for the
    same tokens, isolated outliers replaced by their neighbourhood. Batch borders may differ; a
    baseline's pace is taken as constant within its batch. Where the stretch was read more than once
    `readings` tell the whole, since the batches are those of a typical reading. Returns
    `Unjudgeable` with fewer than `MIN_CHUNKS` shared batches or
    `least_runs` baseline runs; with one, how much runs differ is all assumed.
    """
    paired = pair(current, baseline_runs, least_runs=least_runs)
    if isinstance(paired, Unjudgeable):
        return paired
    count = paired.ms.size
    overall = _over(paired, np.arange(count), confidence)
    departure = _departure(paired, band, confidence)
    whole = mean_estimate(*readings, direction="higher", confidence=confidence)
    if departure is not None and departure.to_end:
        whole = _whole(paired, paired.starts >= departure.from_tokens, confidence)
    elif isinstance(whole, Unjudgeable):
        whole = _whole(paired, np.arange(count), confidence)
    late = stragglers(paired.relative.tolist())
    return CurveEstimate(overall, departure, whole, count, paired.set_aside, late)


def decide_curve(curve: CurveEstimate, *, band: float) -> tuple[Decision, Estimate, str | None]:
    """The three-way rule on a curve, the estimate it rests on, and what is to be said of it.

    A departure that lasts to the end counts like the whole. A stretch that ends again before the
    curve does is more likely something that passed by than a change of the build: it decides
    nothing, whatever the whole says. Nor is anything decided when whole and departure say opposite
    things. What was set aside is counted again where that is too much (`verdicts.whole`).
    """
    decided = decide(curve.overall, band=band, direction="higher")
    where = curve.departure.sentence if curve.departure is not None else None
    if curve.departure is not None:
        part_ = decide(curve.judged, band=band, direction="higher")
        agree = decided in ("PASS", "UNDECIDED", part_)
        decided = part_ if curve.departure.to_end and agree else "UNDECIDED"
    passing_by = curve.departure is not None and not curve.departure.to_end
    few = curve.set_aside <= ASIDE_SHARE * curve.batches
    if passing_by or (few and stands(decided, curve.judged, curve.whole, band=band)):
        return decided, curve.judged, where
    decided, estimate = settle(decided, curve.judged, curve.whole, band=band, direction="higher")
    aside = f"{curve.set_aside} of {curve.batches} batches set aside"
    said = [where, curve.late.sentence("batches") if curve.late is not None else None]
    said += [aside if curve.set_aside else None, f"all counted {percent(curve.whole.change)}"]
    return decided, estimate, "; ".join(x for x in said if x)


def _over(
    paired: Paired, members: NDArray[np.int_], confidence: float, search: float = 1.0
) -> Estimate:
    """Interval of the speed ratio over the batches `members`, weighted by their time.

    `search` multiplies the variance of the batches' own noise.
    """
    weight = paired.base_ms.mean(axis=0)[members]
    weight = weight / weight.sum()
    locations = -np.log(np.exp(-paired.log_ratio[:, members]) @ weight)
    share = min(1.0, float((weight**2).sum()) * paired.inflation) * search
    side = paired.chunk_variance / 2.0
    return _combined(paired, members, locations, (side * share, paired.chunk_df), share, confidence)


def _whole(
    paired: Paired, members: NDArray[np.int_] | NDArray[np.bool_], confidence: float
) -> Estimate:
    """The same of the total time of the batches, none set aside; their plain spread counts."""
    ms, base_ms = paired.ms[members], paired.base_ms[:, members]
    locations = np.log(base_ms.sum(axis=1) / ms.sum())
    weight = base_ms.mean(axis=0) / base_ms.mean(axis=0).sum()
    share = min(1.0, float((weight**2).sum()) * paired.inflation)
    relative = ms / base_ms.mean(axis=0) / (ms.sum() / base_ms.mean(axis=0).sum())
    plain = float((weight**2 * (relative - 1.0) ** 2).sum()) * ms.size / max(ms.size - 1, 1)
    calm = paired.chunk_variance / 2.0 * share
    within = (calm, paired.chunk_df) if plain <= calm else (plain * paired.inflation, ms.size - 1.0)
    return _combined(paired, members, locations, within, share, confidence)


def _combined(
    paired: Paired,
    members: NDArray[np.int_] | NDArray[np.bool_],
    locations: Floats,
    within: tuple[float, float],
    share: float,
    confidence: float,
) -> Estimate:
    """The interval of log speed ratios to each baseline run, at the baseline's own rate."""
    tokens = float((paired.ends[members] - paired.starts[members]).sum())
    base = math.log(tokens / float(paired.base_ms[:, members].mean(axis=0).sum()) * 1e3)
    side = paired.chunk_variance / 2.0
    count = int(paired.ms[members].size)
    current = base + float(locations.mean())
    return combine(
        current,
        [current - float(v) for v in locations],
        within=within,
        base_within=(side * share, paired.chunk_df),
        run_variance=PRIOR.run_variance(side),
        counts=(count, count * len(locations)),
        confidence=confidence,
    )


def _departure(paired: Paired, band: float, confidence: float) -> Departure | None:
    """The stretch furthest from "no change" among those wholly beyond the band, if any.

    If the rest of the curve lies beyond the band as well, the departure is the whole curve.
    """
    count = paired.ms.size
    found: list[tuple[float, Departure]] = []
    runs = paired.log_ratio.shape[0]
    fitted = fit_levels(
        paired.log_ratio.mean(axis=0),
        noise=paired.chunk_variance / 2.0 * (1.0 + 1.0 / runs) * paired.inflation,
        shortest=max(MIN_STRETCH_CHUNKS, math.ceil(_STRETCH_SHARE * count)),
    )
    search = 1.0 if len(fitted) == 1 else _search_factor(confidence, count)
    levels = [
        (first, last, _beyond(_over(paired, np.arange(first, last), confidence, search), band))
        for first, last in fitted
    ]
    for beyond, group in itertools.groupby(levels, key=lambda level: level[2]):
        if beyond is None:
            continue
        stretches = list(group)
        first, last = stretches[0][0], stretches[-1][1]
        estimate = _over(paired, np.arange(first, last), confidence, search)
        if not _borne_by_most(paired.raw[:, first:last], estimate.ratio, band):
            continue
        rest = np.r_[0:first, last:count]
        if rest.size and _beyond(_over(paired, rest, confidence), band) == beyond:
            first, last = 0, count
            estimate = _over(paired, np.arange(count), confidence)
        place = Departure(
            int(paired.starts[first]), int(paired.ends[last - 1]), last == count, estimate
        )
        found.append((estimate.p_no_change, place))
    return min(found, key=lambda f: f[0])[1] if found else None


def _search_factor(confidence: float, count: int) -> float:
    """Factor on the batches' variance for a stretch chosen among about `count` (Bonferroni).

    Only the batches' noise makes one stretch of a curve stand out: what a run has as a whole is
    common to all of them, and is not multiplied.
    """
    tail = (1.0 - confidence) / 2.0
    return (normal_quantile(tail / count) / normal_quantile(tail)) ** 2


def _borne_by_most(log_ratio: Floats, ratio: float, band: float) -> bool:
    """Whether most batches of a stretch lie beyond the band themselves, not a few far outliers."""
    mean = log_ratio.mean(axis=0)
    edge = math.log1p(-band) if ratio < 1.0 else math.log1p(band)
    beyond = mean < edge if ratio < 1.0 else mean > edge
    return float(np.mean(beyond)) >= _MAJORITY


def _beyond(estimate: Estimate, band: float) -> Decision | None:
    decision = decide(estimate, band=band, direction="higher")
    return decision if decision in ("REGRESSED", "IMPROVED") else None
