"""Changes of level and slow decays over runs, on seeded series."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.records.metrics import METRICS
from harness.records.points import Point, by_cell, groups
from harness.verdicts.trend import change_points, findings, points_of, slow_decay
from tests.made import ask, record, rung

NIGHTS = 60


def series(seed: int, *, step_at: int | None = None, change: float = -0.06) -> list[float]:
    """Nightly values with 3 % noise, and a step from `step_at` on."""
    rng = random.Random(seed)
    return [
        50.0 * rng.gauss(1.0, 0.03) * (1 + change if step_at is not None and n >= step_at else 1)
        for n in range(NIGHTS)
    ]


def found_near(values: list[float], at: int, nights: int = 5) -> bool:
    return any(abs(p.index - at) <= nights for p in change_points(values))


@pytest.mark.parametrize("at", [15, 30, 45, 50])
def test_a_step_of_6_percent_is_placed_within_5_nights(at: int) -> None:
    assert sum(found_near(series(seed, step_at=at), at) for seed in range(100)) >= 95


def test_a_step_is_seen_within_5_nights_of_its_first() -> None:
    seen = 0
    for seed in range(100):
        values = series(seed, step_at=40)
        seen += any(found_near(values[:night], 40) for night in range(41, 46))
    assert seen >= 75


def test_at_most_1_in_10_series_without_a_step_shows_one() -> None:
    shown = [bool(change_points(series(seed))) for seed in range(300)]
    assert sum(shown[:10]) <= 1
    assert sum(shown) <= 30


def test_the_change_is_measured_and_signed() -> None:
    (point,) = change_points(series(1, step_at=30))
    assert point.change == pytest.approx(-0.06, abs=0.02)
    assert point.before == pytest.approx(50.0, rel=0.02)
    assert point.after == pytest.approx(47.0, rel=0.02)


def test_one_bad_night_is_no_change() -> None:
    disturbed = 0
    for seed in range(40):
        values = series(seed)
        clean = len(change_points(values))
        values[30] *= 0.5
        disturbed += len(change_points(values)) > clean
    assert disturbed <= 2


def test_short_series_say_nothing() -> None:
    assert change_points([]) == ()
    assert change_points([50.0, 50.0, 50.0, 20.0, 20.0, 20.0]) == ()


def test_two_levels_without_noise() -> None:
    (point,) = change_points([100.0] * 10 + [90.0] * 10)
    assert point.index == 10
    assert point.change == pytest.approx(-0.10)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_no_rate_can_be_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        change_points([1.0] * 10 + [wrong])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.1, 1e6), min_size=8, max_size=60), st.sampled_from([0.25, 4.0, 1024.0]))
def test_the_unit_does_not_matter(values: list[float], scale: float) -> None:
    mine = [p.index for p in change_points(values)]
    assert [p.index for p in change_points([v * scale for v in values])] == mine


def test_a_decay_too_slow_for_any_verdict_is_found_against_the_reference() -> None:
    rng = random.Random(3)
    values = [50.0 * (1 - 0.0015 * n) * rng.gauss(1.0, 0.01) for n in range(NIGHTS)]
    decay = slow_decay(values, values[:5], direction="higher", band=0.10)
    assert decay is not None
    assert decay.change == pytest.approx(-0.086, abs=0.02)
    assert decay.low < decay.change < decay.high < 0
    assert decay.per_run == pytest.approx(-0.0016, abs=0.0005)


@pytest.mark.parametrize(("direction", "slope"), [("higher", 0.0015), ("lower", -0.0015)])
def test_what_gets_better_is_no_decay(direction: str, slope: float) -> None:
    values = [50.0 * (1 + slope * n) for n in range(NIGHTS)]
    assert slow_decay(values, values[:5], direction=direction, band=0.10) is None  # type: ignore[arg-type]


def test_a_change_under_half_the_band_is_no_decay() -> None:
    values = [50.0] * 30 + [48.0] * 30
    assert slow_decay(values, values[:5], direction="higher", band=0.10) is None


def point(value: float, number: int, **changes: object) -> Point:
    made = Point(
        run_id=f"run-{number:03}",
        started_at=f"2026-10-{number % 28 + 1:02}T02:00:00+00:00",
        build=f"b{11000 + number}",
        machine_class="box",
        model="model",
        configuration="c8192",
        depth=32768,
        metric="generation",
        value=value,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_findings_name_the_first_run_on_the_new_level() -> None:
    points = [point(v, n) for n, v in enumerate([100.0] * 20 + [90.0] * 20)]
    (change,) = findings(points, band=0.10)
    assert change.since.build == "b11020"
    assert change.worse


def test_findings_know_the_direction() -> None:
    points = [point(v, n, metric="ttft") for n, v in enumerate([100.0] * 20 + [90.0] * 20)]
    (change,) = findings(points, band=0.10)
    assert not change.worse


def test_a_pinned_reference_replaces_the_oldest_runs() -> None:
    values = [100.0] + [90.0] * 20
    points = [point(v, n) for n, v in enumerate(values)]
    assert findings(points, band=0.10, reference="run-000")[-1].decay is not None
    assert findings(points, band=0.10, reference="run-005") == ()


def test_scores_are_left_to_the_verdicts() -> None:
    assert findings([point(0.0, n, metric="retrieval") for n in range(20)], band=0.1) == ()


def test_points_are_grouped_by_what_may_be_compared() -> None:
    points = [point(1.0, 1), point(2.0, 2, machine_class="other"), point(3.0, 3, depth=2048)]
    assert {k[0]: len(v) for k, v in groups(points).items()} == {"box": 2, "other": 1}
    assert list(by_cell(points)) == [("generation", 2048), ("generation", 32768)]


# -- one bad night ------------------------------------------------------------------------------

NOISE = (0.004, -0.003, 0.001, -0.005, 0.002, 0.005, -0.001, -0.004, 0.003, -0.002, 0.004, -0.003)


def nights(*levels: float) -> list[Point]:
    return [point(v * (1.0 + NOISE[n % 12]), n) for n, v in enumerate(levels)]


def test_a_true_finding_does_not_vanish_behind_one_bad_night() -> None:
    before = nights(*[100.0] * 8, *[93.0] * 4)
    (change,) = findings(before, band=0.10)
    assert change.since.run_id == "run-008"
    again, newest = findings(nights(*[100.0] * 8, *[93.0] * 4, 60.0), band=0.10)
    assert again.since.run_id == "run-008"
    assert again.change is not None
    assert again.change.change == pytest.approx(-0.07, abs=0.01)
    assert newest.newest is not None
    assert newest.since.run_id == "run-012"
    assert newest.newest.change == pytest.approx(-0.355, abs=0.01)


def test_four_unchanged_nights_and_a_bad_one_are_no_decay() -> None:
    (only,) = findings(nights(*[100.0] * 12, 70.0), band=0.10)
    assert only.newest is not None
    assert findings(nights(*[100.0] * 13), band=0.10) == ()


@pytest.mark.parametrize("nights_since", [3, 4, 5])
def test_a_step_is_not_placed_a_night_early(nights_since: int) -> None:
    values = [p.value for p in nights(*[100.0] * 10, *[70.0] * nights_since)]
    assert [c.index for c in change_points(values)] == [10]


def test_a_bad_night_before_a_step_does_not_move_it() -> None:
    values = [p.value for p in nights(*[100.0] * 9, 95.0, *[80.0] * 6)]
    assert [c.index for c in change_points(values)] == [10]


def test_only_a_reference_that_somebody_named_is_pinned() -> None:
    values = [100.0 * (1 - 0.004 * n) for n in range(12)]
    points = [point(v * (1 + NOISE[n]), n) for n, v in enumerate(values)]
    assert not any(f.pinned for f in findings(points, band=0.03))
    assert any(f.pinned for f in findings(points, band=0.03, reference="run-000"))


def test_what_a_verdict_calls_invalid_is_no_point() -> None:
    """Cases 80 and B8: an INVALID run made a trend of -50 %."""
    good, broken = record(rung()), record(rung(asks=[ask(control=False)] * 3))
    assert {p.metric for p in points_of(good)} == set(METRICS) - {"fidelity"}
    assert {p.metric for p in points_of(broken)} == {"memory"}


def test_two_files_of_one_name_are_two_series() -> None:
    one = record(rung())
    model = one.header.model.model_copy(update={"identity": "model-2"})
    other = one.model_copy(update={"header": one.header.model_copy(update={"model": model})})
    assert len(groups([*points_of(one), *points_of(other)])) == 2
