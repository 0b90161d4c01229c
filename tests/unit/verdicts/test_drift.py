"""Drift of the controls: a published series, and what must hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import Event, RunRecord
from harness.records.metrics import Direction
from harness.verdicts.drift import Drift, could_explain, drift_between
from harness.verdicts.stats import Unjudgeable
from harness.verdicts.verdict import judge
from tests.made import BANDS, pace, record, rung, server_log

RISING = (17.13, 17.71, 18.79, 18.72)  # depth 0, in the order measured; nothing had changed
levels = st.floats(1.0, 1000.0)
samples = st.lists(st.floats(0.9, 1.1), min_size=4, max_size=10)


def between(before: list[float], after: list[float], band: float = 0.10) -> Drift:
    found = drift_between(before, after, band=band)
    assert isinstance(found, Drift), found
    return found


def test_two_looks_a_little_apart_are_no_drift_however_steady_each_is() -> None:
    """A GPU at depth 0 has states of its own: 0.2 % within a look, several between looks."""
    halves = between(list(RISING[:2]), list(RISING[2:]))
    assert halves.state == "unclear"
    assert halves.share == pytest.approx(0.077, abs=0.002)
    assert "+7.7 %" in halves.sentence
    assert between([690.0, 691.0, 689.0], [657.0, 658.0, 656.0]).state == "unclear"


def test_a_machine_that_slowed_by_a_fifth_drifted() -> None:
    found = between([100.0, 101.0, 99.0], [80.0, 80.5, 81.0])
    assert found.state == "drifted"
    assert "measure again" in found.sentence


def test_controls_that_agree_are_not_drift() -> None:
    found = between([14.75, 14.80, 14.71, 14.77, 14.74], [14.79, 14.76, 14.80, 14.72, 14.75])
    assert found.state != "drifted"


def test_scatter_is_not_drift() -> None:
    found = between([100.0, 80.0, 118.0], [97.0, 125.0, 108.0])
    assert found.state == "unclear"
    assert "too wide" in found.sentence


def test_a_jump_the_other_way_is_drift_as_well() -> None:
    assert between([100.0, 101.0, 99.0], [90.0, 89.0, 91.0]).state == "drifted"


@given(samples, samples, levels)
def test_units_cancel(before: list[float], after: list[float], level: float) -> None:
    plain = between(before, after)
    scaled = between([level * v for v in before], [level * v for v in after])
    assert plain.share == pytest.approx(scaled.share, abs=1e-9)
    assert plain.state == scaled.state


@given(samples, samples)
def test_backwards_in_time_the_ratio_is_the_inverse(
    before: list[float], after: list[float]
) -> None:
    there, back = between(before, after), between(after, before)
    assert (1.0 + there.share) * (1.0 + back.share) == pytest.approx(1.0)
    assert there.low <= there.share <= there.high


@given(samples, samples, st.floats(0.02, 0.3))
def test_states_follow_the_interval(before: list[float], after: list[float], band: float) -> None:
    found = between(before, after, band)
    assert found.limit == band / 2.0
    if found.state == "drifted":
        assert abs(found.share) > found.limit
        assert found.low > 0.0 or found.high < 0.0
    if found.state == "steady":
        assert -found.limit <= found.low
        assert found.high <= found.limit


@pytest.mark.parametrize(
    ("before", "after"), [([1.0], [1.0, 1.1]), ([], []), ([1.0, 1.1], [0.0, 1.0])]
)
def test_single_controls_say_nothing(before: list[float], after: list[float]) -> None:
    found = drift_between(before, after, band=0.10)
    assert isinstance(found, Unjudgeable)
    assert found.reason.startswith("controls: ")


@pytest.mark.parametrize(
    ("share", "low", "high", "direction", "explains"),
    [
        (-0.08, 0.82, 0.88, "higher", True),  # 0.88 / 0.96 lies within the band again
        (-0.08, 0.76, 0.85, "higher", False),  # 0.85 / 0.96 does not
        (-0.05, 0.82, 0.895, "higher", False),  # no more than half the band explains nothing
        (+0.08, 0.82, 0.88, "higher", False),  # a faster machine does not make a build slower
        (+0.08, 1.12, 1.20, "higher", True),
        (-0.08, 1.12, 1.20, "lower", True),  # a latency grows as the machine slows
        (-0.08, 1.16, 1.20, "lower", False),
        (-0.08, 0.95, 1.05, "higher", False),  # nothing to explain
    ],
)
def test_half_of_the_controls_change_explains_a_cells(
    share: float, low: float, high: float, direction: Direction, explains: bool
) -> None:
    drift = Drift(share, share - 0.1, share + 0.1, 0.99, 0.05, 6, "unclear")
    assert could_explain(drift, low, high, band=0.10, direction=direction) == explains


# -- a machine that is another one for a while ---------------------------------------------------


def twice(then: RunRecord) -> Baseline:
    return Baseline(key=key_of(then.header), runs=(accepted(then, "now", None),) * 2)


def test_the_pace_at_a_rung_speaks_of_it_and_the_next_one() -> None:
    depths = (2048, 8192, 32768)
    steady = pace((10.0, 10.1, 9.9, 10.0))
    then = record(*(rung(d) for d in depths), events=[steady])
    slow = Event(
        code="pace", message="", data={"position": "rung", "depth": 2048, "compute": (7.0, 7.1)}
    )
    rates = (70.0, 71.0, 69.0)
    now = record(
        *(rung(d, generation_tok_s=rates) for d in depths),
        events=[steady, slow, steady, server_log(on_gpu=False)],
    )
    verdict = judge(now, twice(then), BANDS)
    cells = [verdict.cell(depth, "generation") for depth in depths]
    assert [c.code for c in cells if c is not None] == ["pace", "pace", "regressed"]


@pytest.mark.parametrize(
    ("rates", "code"),
    [
        ((70.0, 71.0, 69.0) * 4, "regressed"),
        ((100.0, 101.0, 99.0) + (70.0, 71.0, 69.0) * 4, "drift"),
        ((70.0, 71.0, 69.0) * 4 + (100.0, 101.0, 99.0), "drift"),
        ((70.0, 71.0, 69.0, 100.0) * 3, "regressed"),  # strays are no step
    ],
)
def test_repeats_that_change_level_among_themselves_name_no_regression(
    rates: tuple[float, ...], code: str
) -> None:
    """A server that got slower is so from the first repeat on."""
    then = record(rung(generation_tok_s=(100.0, 101.0, 99.0) * 4))
    verdict = judge(record(rung(generation_tok_s=rates)), twice(then), BANDS)
    found = verdict.cell(2048, "generation")
    assert found is not None
    assert found.code == code, found.message
