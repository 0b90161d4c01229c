"""A ladder's time, the depth that fits a budget, and a run's budget while it is spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import OverBudgetError, SetupError
from harness.llamacpp.cost import CostModel, Estimate, fit
from harness.llamacpp.forecast import (
    Answering,
    RungWork,
    deepest_within,
    forecast,
    repeats_made,
    rung_works,
    spoken,
)
from harness.measuring.budget import Budget, probe_tokens
from harness.quantities import duration
from harness.records.lines import Chunk, Plan
from tests.made import header

SEED_LIKE = (1000 / 350, 6e-5)
"""ms a token, and ms a token and token before: 350 tok/s on short prompts, 20 minutes at 128K."""


def chunks(end: int, *, token_ms: float, attention_ms: float, size: int = 512) -> list[Chunk]:
    return [
        Chunk(
            start_tokens=s,
            end_tokens=s + size,
            ms=token_ms * size + attention_ms * ((s + size) ** 2 - s**2) / 2,
        )
        for s in range(0, end, size)
    ]


def quadratic(end: int = 8192) -> CostModel:
    token_ms, attention_ms = SEED_LIKE
    model = fit(chunks(end, token_ms=token_ms, attention_ms=attention_ms))
    assert model is not None
    return model


def plan_to(ctx: int) -> Plan:
    depths = tuple(d for d in (2048, 8192, 32768, 131072) if d <= ctx)
    return header(depths).plan


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def budget(limit_s: float | None, ctx: int = 131072, again_s: float | None = None) -> Budget:
    clock = Clock()
    made = Budget(plan_to(ctx), ctx, limit_s=limit_s, again_s=again_s, max_repeats=18, clock=clock)
    token_ms, attention_ms = SEED_LIKE
    made.learn(chunks(8192, token_ms=token_ms, attention_ms=attention_ms), Answering(20.0))
    return made


WORK = {"repeats": 6, "max_repeats": 18, "generate_tokens": 100}


def test_the_ladder_takes_what_its_documents_and_answers_take() -> None:
    works = rung_works((2048, 8192), (1800, 7300), **WORK)
    ahead = forecast(quadratic(), works, answering=Answering(1000.0))
    read = quadratic().predict_ms(0, 7300)
    requests_ms = 9 * (2 * 12.0 + (1800 + 7300) * 1.1e-3)
    spoken_ms = 2 * ((3 * 80 + 6 * 100) * 1000.0 + 300.0) + requests_ms
    assert ahead[1].until.ms == pytest.approx(read.ms + spoken_ms, rel=0.01)
    assert ahead[1].until.low_ms < ahead[1].until.ms < ahead[1].until.high_ms
    assert ahead[0].until.ms < ahead[1].until.ms
    silent = forecast(quadratic(), works, answering=None)
    assert silent[1].until.ms == pytest.approx(read.ms)


@pytest.mark.parametrize(
    ("token_ms", "made"), [(100.0, 6), (1.6667, 6), (1.0, 10), (0.5, 18), (0.01, 18)]
)
def test_a_fast_server_generates_for_a_second_in_all(token_ms: float, made: int) -> None:
    assert repeats_made(token_ms, 100, 6, 18) == made


def test_generation_at_depth_is_what_the_probe_saw_and_wide_where_it_saw_nothing() -> None:
    seen = Answering(1.0, 10_000, 2.0).at(100_000, attention_ms=1e-6)
    assert seen.ms == pytest.approx(11.0, rel=0.2)
    blind = Answering(1.0).at(100_000, attention_ms=4e-6)
    assert blind.ms == pytest.approx(1.0 + 15 * 0.4)
    assert blind.high_ms / blind.low_ms > 5 > seen.high_ms / seen.low_ms
    assert Answering(1.0, 10_000, 0.9).at(100_000, attention_ms=0.0).ms == pytest.approx(1.0)


def test_measuring_again_is_in_the_high_end_only() -> None:
    works = rung_works((2048,), (1800,), **WORK)
    again = rung_works((2048,), (1800,), **WORK, again=True)
    one, two = (
        forecast(quadratic(), w, answering=Answering(100.0))[0].until for w in (works, again)
    )
    assert (one.ms, one.low_ms) == (two.ms, two.low_ms)
    assert two.high_ms > 2 * one.high_ms


def test_short_prompts_speed_would_have_promised_a_third_of_the_time() -> None:
    """350 tok/s held to 128K is 6 minutes; the first 8K of the curve already tell of more."""
    ahead = forecast(quadratic(), [RungWork(131072, 117_000)], answering=None)
    truth_ms = 117_000 * SEED_LIKE[0] + SEED_LIKE[1] * 117_000**2 / 2
    assert ahead[0].until.ms == pytest.approx(truth_ms, rel=0.1)
    assert truth_ms > 2 * 117_000 / 350 * 1e3


@given(budget_ms=st.floats(1e3, 3e6))
def test_the_depth_that_fits_is_the_deepest_that_fits(budget_ms: float) -> None:
    model, whole = quadratic(), RungWork(131072, 117_000, 100, 6, 18)
    fits = deepest_within(model, whole, budget_ms, answering=Answering(10.0))

    def until_ms(depth: int) -> float:
        work = RungWork(depth, round(depth * 117_000 / 131072), 100, 6, 18)
        return forecast(model, (work,), answering=Answering(10.0))[0].until.ms

    if fits is None:
        assert until_ms(1024) > budget_ms
        return
    assert fits <= 131072
    assert until_ms(fits) <= budget_ms
    assert fits == 131072 or until_ms(fits + 1024) > budget_ms


def test_a_climb_that_cannot_fit_is_refused_with_the_depth_that_does() -> None:
    with pytest.raises(SetupError, match=r"--budget 300 \(5 min 00 s\) is too short") as refused:
        budget(300.0).refuse_hopeless()
    said = str(refused.value)
    fits = int(said.split("about ")[-1].split()[0])
    assert 20_000 < fits < 131072
    assert "the climb to 131072 tokens is forecast to take" in said
    budget(300.0, ctx=8192).refuse_hopeless()
    budget(3 * 3600.0).refuse_hopeless()
    budget(None).refuse_hopeless()


def test_a_budget_for_nothing_says_so() -> None:
    with pytest.raises(SetupError, match="not even the shallowest rung fits"):
        budget(2.0).refuse_hopeless()


def test_what_may_fit_is_started() -> None:
    """Only a forecast whose fast end is beyond the budget refuses."""
    whole = budget(None).forecast()[-1].until
    between_s = (whole.low_ms + whole.ms) / 2e3
    budget(between_s).refuse_hopeless()


def test_a_prefill_is_stopped_when_its_rest_cannot_fit() -> None:
    made = budget(1500.0)
    made.refuse_rest(117_000)
    made._clock.now_s += 1200.0  # type: ignore[attr-defined]
    with pytest.raises(OverBudgetError, match=r"5 min 00 s are left of --budget 1500"):
        made.refuse_rest(117_000)


def test_a_rung_whose_reading_cannot_fit_is_not_begun() -> None:
    made = budget(900.0)
    made.reached(32768, 29_500)
    made._clock.now_s += 880.0  # type: ignore[attr-defined]
    with pytest.raises(OverBudgetError, match="stopped before the rung 131072"):
        made.refuse_rung(131072, 117_000)
    made.refuse_rung(131072, 29_600)


def test_measuring_again_leaves_the_climb_its_time() -> None:
    made = budget(2400.0)
    ahead_s = made.forecast()[-1].until.ms / 1e3
    assert made.for_again_s() == pytest.approx(2400.0 - ahead_s)
    made.reached(131072, 117_000)
    assert made.for_again_s() == pytest.approx(2400.0)
    assert budget(2400.0, again_s=5.0).for_again_s() == 5.0


def test_without_a_budget_measuring_again_has_its_own_allowance() -> None:
    made = budget(None)
    assert made.for_again_s() == 120.0
    made.spent_again(100.0)
    assert made.for_again_s() == 20.0
    none = budget(None, again_s=0.0)
    assert none.for_again_s() == 0.0


def test_a_probe_takes_two_hundredths() -> None:
    assert probe_tokens(350.0, 117_000, limit_s=1800.0, guess_s=9e9) == 12_600
    assert probe_tokens(350.0, 117_000, limit_s=None, guess_s=600.0) == 4200
    assert probe_tokens(1e6, 8000, limit_s=1800.0, guess_s=9.0) == 1000


def test_a_probe_may_always_take_two_seconds_but_no_tenth_of_a_budget() -> None:
    assert probe_tokens(80_000.0, 943_000, limit_s=None, guess_s=13.0) == 943_000 // 8
    assert probe_tokens(5000.0, 943_000, limit_s=None, guess_s=13.0) == 10_000
    assert probe_tokens(5000.0, 943_000, limit_s=10.0, guess_s=13.0) == 5000


def test_durations_and_intervals_in_words() -> None:
    assert [duration(s) for s in (8.6, 200, 16_800)] == ["8.6 s", "3 min 20 s", "4 h 40 min"]
    assert spoken(Estimate(60e3, 50e3, 75e3)) == "1 min 00 s (50 s to 1 min 15 s)"
