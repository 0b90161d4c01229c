"""The operating curve in small: the promises that a change of the statistics must not break."""

from pathlib import Path

import numpy as np
import pytest

from bench.verdicts.noise import SCENARIOS, Source
from bench.verdicts.simulate import (
    Design,
    best_possible_power,
    curve_cells,
    samples_cells,
    whole_runs,
)
from bench.verdicts.tables import BEGIN, END, write_between

BY_NAME = {s.name: s for s in SCENARIOS}
THREE = Design(repeats=3, repeats_max=3)


@pytest.mark.parametrize("name", ["independent", "plain", "outliers", "drift"])
def test_nothing_changed_is_never_a_regression_at_3_percent_noise(name: str) -> None:
    tally = samples_cells(BY_NAME[name], 0.03, 0.0, Design(), cells=300, seed=1)
    assert tally.decisions["REGRESSED"] == 0
    assert tally.decisions["IMPROVED"] == 0
    assert tally.share("PASS") + tally.share("DRIFT") > 0.8


def test_a_loss_of_20_percent_is_seen_with_3_repeats_at_3_percent_noise() -> None:
    tally = samples_cells(BY_NAME["independent"], 0.03, -0.2, THREE, cells=300, seed=1)
    assert tally.share("REGRESSED") > 0.97


def test_a_loss_of_15_percent_is_seen_with_a_baseline_of_six_runs_of_six() -> None:
    design = Design(baseline_runs=6, baseline_repeats=6)
    tally = samples_cells(BY_NAME["independent"], 0.03, -0.15, design, cells=200, seed=1)
    assert tally.share("REGRESSED") > 0.97
    assert 3.0 < tally.mean_repeats < 8.0


def test_at_the_edge_of_the_band_most_cells_stay_undecided() -> None:
    tally = samples_cells(BY_NAME["plain"], 0.02, -0.1, Design(), cells=200, seed=1)
    assert tally.share("UNDECIDED") > 0.85


def test_drift_is_named() -> None:
    tally = samples_cells(BY_NAME["drift"], 0.01, 0.0, Design(), cells=200, seed=1)
    assert tally.share("DRIFT") == pytest.approx(0.5, abs=0.1)  # two looks may differ by ±10 %


@pytest.mark.parametrize("name", ["correlated", "outliers"])
@pytest.mark.parametrize("batches", [4, 64])
def test_the_same_curve_is_never_a_regression(name: str, batches: int) -> None:
    tally = curve_cells(BY_NAME[name], 0.03, 0.0, batches=batches, cells=150, seed=1)
    assert tally.decisions["REGRESSED"] == 0
    assert tally.decisions["IMPROVED"] == 0


def test_half_a_curve_slower_is_seen_and_placed() -> None:
    tally = curve_cells(
        BY_NAME["correlated"], 0.03, -0.2, batches=64, from_share=0.5, cells=100, seed=1
    )
    assert tally.share("REGRESSED") > 0.95
    assert tally.share("located") > 0.95


def test_of_many_cells_only_the_changed_one_is_named() -> None:
    effects = (*(0.0,) * 19, -0.25)
    tally = whole_runs(BY_NAME["plain"], 0.02, effects, runs=40, seed=1, design=Design())
    assert tally.decisions["REGRESSED"] == 0
    assert tally.share("missed") < 0.1


def test_no_rule_can_do_what_the_arithmetic_forbids() -> None:
    assert best_possible_power(0.03, -0.15, 12, 6) == pytest.approx(0.985, abs=0.001)
    assert best_possible_power(0.03, -0.20, 3, 6) > 0.999


def test_a_seed_makes_the_same_run_again_and_another_does_not() -> None:
    first, again, other = (Source(BY_NAME["outliers"], 0.03, s).samples(8, 0.0) for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_correlated_noise_keeps_its_spread() -> None:
    source = Source(BY_NAME["correlated"], 0.03, 1)
    logs = np.log([source.samples(6, 0.0) for _ in range(2000)])
    assert logs.std() == pytest.approx(0.03, rel=0.05)
    assert np.corrcoef(logs[:, 2], logs[:, 3])[0, 1] == pytest.approx(0.5, abs=0.06)


def test_tables_replace_what_is_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_between(page, "| new |")
    write_between(page, "| newer |")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\n| newer |\n\n{END}\nafter\n"
