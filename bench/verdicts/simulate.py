"""Cells judged over and over against a known truth: what was decided, and with how many repeats."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from scipy import stats as sp_stats

from bench.verdicts.noise import Scenario, Source
from harness.verdicts.curve import curve_estimate, decide_curve
from harness.verdicts.drift import Drift, could_explain, drift_between
from harness.verdicts.stats import (
    CONFIRMED_SAMPLES,
    Decision,
    Estimate,
    Unjudgeable,
    decide,
    open_question,
    ratio_estimate,
    significant_in_run,
)

BAND = 0.10
CONTROLS = 3


@dataclass(frozen=True, slots=True)
class Design:
    """What is measured: repeats first and at most, and the baseline's runs and repeats."""

    repeats: int = 3
    repeats_max: int = 12
    baseline_runs: int = 2
    baseline_repeats: int = 3


@dataclass(slots=True)
class Tally:
    """Decisions counted over many cells."""

    decisions: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    cells: int = 0

    def add(self, decision: str, repeats: int) -> None:
        """Count one cell."""
        self.decisions[decision] += 1
        self.repeats += repeats
        self.cells += 1

    def share(self, decision: str) -> float:
        """Share of cells so decided."""
        return self.decisions[decision] / self.cells

    @property
    def seen(self) -> float:
        """Share of REGRESSED among the cells of runs that were not taken for drifted."""
        return self.decisions["REGRESSED"] / (self.cells - self.decisions["DRIFT"])

    @property
    def mean_repeats(self) -> float:
        """Mean number of repeats a cell took."""
        return self.repeats / self.cells

    def at_most(self, decision: str, confidence: float = 0.95) -> float:
        """One-sided upper limit of the true share (Clopper-Pearson)."""
        test = sp_stats.binomtest(self.decisions[decision], self.cells, alternative="less")
        return float(test.proportion_ci(confidence, method="exact").high)


def next_repeats(decision: Decision, estimate: Estimate, design: Design) -> int:
    """How many repeats to have next for an undecided cell, or to confirm a change."""
    if decision != "UNDECIDED":
        return min(CONFIRMED_SAMPLES, design.repeats_max)
    return min(estimate.n_current + 3, design.repeats_max)


def samples_cells(
    scenario: Scenario, sd: float, effect: float, design: Design, *, cells: int, seed: int
) -> Tally:
    """Judge `cells` cells whose true change is `effect` (a share), measuring again while undecided.

    A run whose controls drifted is `DRIFT`, whatever the cell says; a change that half of what they
    moved would explain is `EXPLAINED`.
    """
    source = Source(scenario, sd, seed)
    tally = Tally()
    for _ in range(cells):
        tally.add(*_samples_cell(source, float(np.log1p(effect)), design))
    return tally


def _samples_cell(source: Source, log_effect: float, design: Design) -> tuple[str, int]:
    baseline = [
        source.samples(design.baseline_repeats, source.run_effect())
        for _ in range(design.baseline_runs)
    ]
    drift, run = source.drift(), source.run_effect()
    controls = drift_between(
        source.samples(CONTROLS, run), source.samples(CONTROLS, run + drift), band=BAND
    )
    assert isinstance(controls, Drift)
    if controls.state == "drifted":
        return "DRIFT", design.repeats
    level = log_effect + run + drift * source.place()
    current = source.samples(design.repeats_max, level)
    count = design.repeats
    while True:
        estimate = ratio_estimate(current[:count], baseline)
        if isinstance(estimate, Unjudgeable):
            return "UNDECIDED", count
        decision = decide(estimate, band=BAND, direction="higher")
        if count < design.repeats_max and open_question(decision, estimate):
            count = next_repeats(decision, estimate, design)
            continue
        if decision != "PASS" and could_explain(
            controls, estimate.low, estimate.high, band=BAND, direction="higher"
        ):
            return "EXPLAINED", count
        return decision, count


def curve_cells(
    scenario: Scenario,
    sd: float,
    effect: float,
    *,
    batches: int,
    from_share: float = 0.0,
    baseline_runs: int = 2,
    cells: int,
    seed: int,
) -> Tally:
    """Judge `cells` prefill curves slower by `effect` from `from_share` of their length on.

    `located` counts departures named within two batches of the truth.
    """
    source = Source(scenario, sd, seed)
    tally = Tally()
    first = int(batches * from_share)
    change = np.where(np.arange(batches) >= first, np.log1p(effect), 0.0)
    for _ in range(cells):
        base = [
            source.curve(batches, np.full(batches, source.run_effect()))
            for _ in range(baseline_runs)
        ]
        current = source.curve(batches, change + source.run_effect())
        curve = curve_estimate(current, base, band=BAND)
        if isinstance(curve, Unjudgeable):
            tally.add("UNDECIDED", 1)
            continue
        tally.add(decide_curve(curve, band=BAND)[0], 1)
        departure = curve.departure
        if departure and abs(departure.from_tokens // 2048 - first) <= 2:
            tally.decisions["located"] += 1
    return tally


def best_possible_power(
    sd: float, effect: float, repeats: int, baseline_samples: int, error: float = 0.05
) -> float:
    """Power of the best rule on normal repeats of known spread, `error` at the band's edge.

    No spread between runs, no outliers, plain means: nothing that has to learn the noise can beat
    it.
    """
    se = sd * np.sqrt(1.0 / repeats + 1.0 / baseline_samples)
    margin = np.log1p(-BAND) - np.log1p(effect)
    return float(sp_stats.norm.cdf(margin / se - sp_stats.norm.ppf(1.0 - error)))


def whole_runs(
    scenario: Scenario,
    sd: float,
    effects: tuple[float, ...],
    *,
    runs: int,
    seed: int,
    design: Design,
) -> Tally:
    """Judge runs of `len(effects)` cells at once, the run effects common to all cells of a run.

    A run counts as REGRESSED when any *unchanged* cell is named so after Holm's step, as `missed`
    when a changed one is not.
    """
    source = Source(scenario, sd, seed)
    tally = Tally()
    for _ in range(runs):
        base_effects = [source.run_effect() for _ in range(design.baseline_runs)]
        run = source.run_effect()
        decisions: list[Decision] = []
        estimates: list[Estimate] = []
        for effect in effects:
            baseline = [source.samples(design.baseline_repeats, b) for b in base_effects]
            current = source.samples(design.repeats, float(np.log1p(effect)) + run)
            estimate = ratio_estimate(current, baseline)
            if isinstance(estimate, Unjudgeable):
                raise TypeError(estimate.reason)
            estimates.append(estimate)
            decisions.append(decide(estimate, band=BAND, direction="higher"))
        named = significant_in_run([e.p_no_change for e in estimates])
        regressed = [d == "REGRESSED" and s for d, s in zip(decisions, named, strict=True)]
        false = any(r for r, e in zip(regressed, effects, strict=True) if e == 0.0)
        missed = not all(r for r, e in zip(regressed, effects, strict=True) if e != 0.0)
        tally.add("REGRESSED" if false else "quiet", design.repeats)
        tally.decisions["missed"] += missed
    return tally
