"""Shares of right answers compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.verdicts.proportions import ProportionEstimate, decide_proportion, proportion_estimate
from harness.verdicts.stats import Decision, Unjudgeable

trials = st.integers(2, 40)


def estimated(now: int, of: int, base: int, base_of: int) -> ProportionEstimate:
    found = proportion_estimate(now, of, base, base_of)
    assert isinstance(found, ProportionEstimate)
    return found


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((10, 10, 20, 20), "PASS"),
        ((0, 5, 20, 20), "REGRESSED"),
        ((0, 10, 20, 20), "REGRESSED"),
        ((5, 10, 20, 20), "REGRESSED"),
        ((9, 10, 20, 20), "UNDECIDED"),
        ((9, 10, 18, 20), "PASS"),
        ((10, 10, 4, 20), "IMPROVED"),
        ((0, 10, 0, 20), "PASS"),
    ],
)
def test_the_rule_on_typical_counts(counts: tuple[int, int, int, int], expected: Decision) -> None:
    assert decide_proportion(estimated(*counts)) == expected


@given(st.integers(2, 60))
def test_nothing_right_against_a_perfect_baseline_is_a_regression(base: int) -> None:
    assert decide_proportion(estimated(0, 5, base, base)) == "REGRESSED"


@given(trials, trials, st.data())
def test_both_sides_exchanged_give_the_opposite(of: int, base_of: int, data: st.DataObject) -> None:
    now = data.draw(st.integers(0, of))
    base = data.draw(st.integers(0, base_of))
    there, back = estimated(now, of, base, base_of), estimated(base, base_of, now, of)
    assert there.difference == pytest.approx(-back.difference)
    assert there.low == pytest.approx(-back.high)
    assert there.low - 1e-9 <= there.difference <= there.high + 1e-9
    assert there.p_no_change == pytest.approx(back.p_no_change)


@given(trials, trials, st.data())
def test_no_fewer_right_is_never_a_regression(of: int, base_of: int, data: st.DataObject) -> None:
    base = data.draw(st.integers(0, base_of))
    now = data.draw(st.integers(-(-base * of // base_of), of))
    assert decide_proportion(estimated(now, of, base, base_of)) in ("PASS", "IMPROVED")


def test_newcombes_published_example() -> None:
    # Newcombe 1998, method 10 for 56/70 against 48/80: 0.0524 to 0.3339.
    found = estimated(56, 70, 48, 80)
    assert found.low == pytest.approx(0.0524, abs=5e-5)
    assert found.high == pytest.approx(0.3339, abs=5e-5)


@pytest.mark.parametrize("counts", [(1, 1, 20, 20), (0, 0, 20, 20), (5, 5, 1, 1), (5, 5, 0, 0)])
def test_one_answer_is_no_share(counts: tuple[int, int, int, int]) -> None:
    assert isinstance(proportion_estimate(*counts), Unjudgeable)


@pytest.mark.parametrize("counts", [(6, 5, 1, 2), (-1, 5, 1, 2), (1, 5, 3, 2)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="right answers"):
        proportion_estimate(*counts)
