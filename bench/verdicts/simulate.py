"""Runs judged over and over against a known truth: what was said of their cells, and of the run."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from bench.verdicts.world import BANDS, Bench, World, baseline_of
from harness.verdicts.verdict import judge

PER_BASELINE = 2
"""Runs judged against one baseline before it is drawn anew."""


@dataclass(slots=True)
class Tally:
    """Outcomes counted over cells, and runs with any REGRESSED."""

    outcomes: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    alarms: int = 0

    def add(self, other: "Tally") -> None:
        """Count what another counted, too."""
        self.outcomes.update(other.outcomes)
        self.runs += other.runs
        self.alarms += other.alarms

    def share(self, outcome: str) -> float:
        """Share of the cells with that outcome."""
        return self.outcomes[outcome] / sum(self.outcomes.values())

    @property
    def alarm_share(self) -> float:
        """Share of runs in which any cell was REGRESSED."""
        return self.alarms / self.runs

    @property
    def at_most(self) -> float:
        """One-sided upper 95 % limit of the true share of such runs (Clopper-Pearson)."""
        test = stats.binomtest(self.alarms, self.runs, alternative="less")
        return float(test.proportion_ci(0.95, method="exact").high)


def judged_runs(
    world: World,
    effect: float,
    *,
    runs: int,
    seed: int,
    baseline_runs: int = 2,
    kinds: tuple[str, ...] = ("speed", "latency"),
    right_now: float | None = None,
) -> Tally:
    """Judge `runs` runs whose speeds changed by `effect` (a share), counting cells of `kinds`.

    `right_now` is the current runs' share of right answers, where it is not the world's.
    """
    rng, tally = np.random.default_rng(seed), Tally()
    for number in range(runs):
        if number % PER_BASELINE == 0:
            baseline = baseline_of(world, rng, baseline_runs)
        bench = Bench(world, rng, effect=effect, current=True, right=right_now)
        verdict = judge(bench.record("20260102-000000-aaaaaa", baseline), baseline, BANDS)
        outcomes = [cell.outcome for cell in verdict.cells if cell.metric.kind in kinds]
        tally.outcomes.update(outcomes)
        tally.runs += 1
        tally.alarms += "REGRESSED" in outcomes
    return tally
