"""Forecasts against what recorded runs on a GPU really took."""

from pathlib import Path

import pytest

from bench.forecast import Row, rows_of
from bench.recorded import H200, records

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for name, record in records([ROOT / H200]) for row in rows_of(record, name)]


def test_nine_of_ten_intervals_contain_what_came(rows: list[Row]) -> None:
    held = [Row.holds(row.today, row.real_s) for row in rows]
    assert len(held) == 32
    assert sum(map(bool, held)) / len(held) >= 0.9


def test_the_forecasts_on_record_did_not(rows: list[Row]) -> None:
    """What the code of that day said: the control of the test before."""
    held = [Row.holds(row.recorded, row.real_s) for row in rows if row.recorded is not None]
    assert (sum(map(bool, held)), len(held)) == (18, 27)


def test_the_whole_climb_is_told_within_a_factor_of_two_mostly(rows: list[Row]) -> None:
    last = {row.run: row for row in rows}
    ratios = {run: row.real_s * 1e3 / row.today.ms for run, row in last.items() if row.today}
    assert sum(0.5 < ratio < 2.0 for ratio in ratios.values()) >= len(ratios) - 1
