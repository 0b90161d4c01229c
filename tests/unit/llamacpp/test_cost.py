"""Prefill forecasts on recorded and constructed climbs; cliffs told from outliers."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llamacpp.cost import (
    Cliff,
    CostModel,
    PrefillWatch,
    attention_ratio,
    fit,
    guess,
)
from harness.llamacpp.layers import active_parameters, model_layers
from harness.records.lines import Chunk

RECORDED = json.loads(
    (Path(__file__).parents[2] / "data" / "prefill_curves.json").read_text(encoding="utf-8")
)

REPORT_TOK_S = 350.0  # on short prompts
REPORT_MIN = (21.0, 24.0)  # at 131,072 tokens


def recorded(name: str) -> list[Chunk]:
    return [Chunk(start_tokens=s, end_tokens=e, ms=ms) for s, e, ms in RECORDED[name]]


def climb(
    token_ms: float,
    attention_ms: float,
    end: int,
    *,
    batch: int = 2048,
    batch_ms: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
) -> list[Chunk]:
    rng = random.Random(seed)
    return [
        Chunk(
            start_tokens=s,
            end_tokens=s + batch,
            ms=(batch_ms + token_ms * batch + attention_ms * ((s + batch) ** 2 - s**2) / 2)
            * (1 + rng.gauss(0, noise)),
        )
        for s in range(0, end, batch)
    ]


def report_climb(minutes: float, end: int, noise: float = 0.0, seed: int = 0) -> list[Chunk]:
    token_ms = 1000 / REPORT_TOK_S
    attention_ms = (minutes * 60_000 - token_ms * 131_072) * 2 / 131_072**2
    return climb(token_ms, attention_ms, end, noise=noise, seed=seed)


def fitted(chunks: Sequence[Chunk], ratio: float | None = None) -> CostModel:
    model = fit(chunks, ratio)
    assert model is not None
    return model


def test_a_recorded_climb_is_forecast_from_its_first_16k() -> None:
    chunks = recorded("mostly_quiet")
    actual = sum(c.ms for c in chunks)
    forecast = fitted([c for c in chunks if c.end_tokens <= 16_384]).predict_ms(0, 131_072)
    assert forecast.ms == pytest.approx(actual, rel=0.10)
    assert forecast.low_ms < actual < forecast.high_ms


def test_on_a_busy_start_the_forecast_mends_itself_as_chunks_arrive() -> None:
    chunks = recorded("busy_start")
    actual = sum(c.ms for c in chunks)
    errors = []
    for depth in (16_384, 32_768, 65_536, 98_304):
        done = [c for c in chunks if c.end_tokens <= depth]
        rest = fitted(done).predict_ms(depth, 131_072)
        errors.append(abs((sum(c.ms for c in done) + rest.ms) / actual - 1))
    assert errors[0] > 0.5  # six of eight chunks shared the machine: no fit can know
    assert errors[1] < 0.20
    assert errors[3] < 0.05


@pytest.mark.parametrize("minutes", REPORT_MIN)
@pytest.mark.parametrize("seed", range(5))
def test_the_35b_reports_kind_of_climb_where_the_short_prompts_speed_is_off_threefold(
    minutes: float, seed: int
) -> None:
    forecast = fitted(report_climb(minutes, 16_384, noise=0.01, seed=seed)).predict_ms(0, 131_072)
    assert forecast.ms == pytest.approx(minutes * 60_000, rel=0.10)
    linear_ms = 131_072 / REPORT_TOK_S * 1000
    assert minutes * 60_000 / linear_ms > 3


@settings(max_examples=60, deadline=None)
@given(
    token_ms=st.floats(0.01, 10),
    ratio=st.floats(1e-6, 1e-3),
    batch_ms=st.floats(0, 50),
    batch=st.sampled_from([512, 2048, 8192]),
)
def test_a_clean_climb_is_forecast_exactly_and_inside_its_interval(
    token_ms: float, ratio: float, batch_ms: float, batch: int
) -> None:
    chunks = climb(token_ms, ratio * token_ms, 131_072, batch=batch, batch_ms=batch_ms)
    actual = sum(c.ms for c in chunks)
    forecast = fitted(chunks[:8]).predict_ms(0, 131_072)
    assert forecast.ms == pytest.approx(actual, rel=0.02)
    assert forecast.low_ms <= forecast.ms <= forecast.high_ms


def test_coefficients_are_never_negative() -> None:
    falling = [
        Chunk(start_tokens=s, end_tokens=s + 512, ms=1000 - s / 10) for s in range(0, 4096, 512)
    ]
    model = fitted(falling)
    assert min(model.batch_ms, model.token_ms, model.attention_ms) >= 0
    assert model.predict_ms(4096, 8192).ms > 0


def test_one_wild_chunk_does_not_bend_the_curve() -> None:
    clean = report_climb(22, 16_384)
    wild = [*clean[:3], clean[3].model_copy(update={"ms": clean[3].ms * 20}), *clean[4:]]
    assert fitted(wild).predict_ms(0, 131_072).ms == pytest.approx(22 * 60_000, rel=0.05)


def test_the_interval_narrows_with_chunks_and_widens_with_noise() -> None:
    def width(end: int, noise: float) -> float:
        estimate = fitted(report_climb(22, end, noise=noise, seed=3)).predict_ms(0, 131_072)
        return estimate.high_ms / estimate.low_ms

    assert width(65_536, 0.03) < width(16_384, 0.03) < width(8192, 0.03)
    assert width(16_384, 0.01) < width(16_384, 0.15)


@pytest.mark.parametrize(("batch", "seen"), [(512, 8192), (2048, 16_384), (8192, 32_768)])
def test_the_interval_holds_at_eight_percent_noise(batch: int, seen: int) -> None:
    held = 0
    for seed in range(100):
        chunks = climb(1000 / REPORT_TOK_S, 6e-5, 131_072, batch=batch, noise=0.08, seed=seed)
        forecast = fitted([c for c in chunks if c.end_tokens <= seen]).predict_ms(0, 131_072)
        held += forecast.low_ms <= sum(c.ms for c in chunks) <= forecast.high_ms
    assert held >= 90


def test_a_forecast_far_beyond_what_was_read_is_wide_also_without_noise() -> None:
    model = fitted(report_climb(22, 16_384))
    near, far = model.predict_ms(0, 16_384), model.predict_ms(0, 1_048_576)
    assert near.high_ms / near.low_ms < 1.15
    assert far.high_ms / far.low_ms > 2.5


def test_no_usable_chunk_no_model() -> None:
    assert fit([]) is None
    assert fit([Chunk(start_tokens=0, end_tokens=32, ms=0.0)]) is None


def test_nothing_to_read_takes_no_time() -> None:
    assert guess(350, 4e-5).predict_ms(100, 100).ms == 0


def test_a_guess_before_any_chunk_is_wide_and_covers_the_report() -> None:
    layers = model_layers(
        {
            "general.architecture": "qwen35moe",
            "qwen35moe.block_count": 41,
            "qwen35moe.nextn_predict_layers": 1,
            "qwen35moe.full_attention_interval": 4,
            "qwen35moe.ssm.state_size": 128,
            "qwen35moe.ssm.inner_size": 4096,
            "qwen35moe.attention.head_count": 16,
            "qwen35moe.attention.head_count_kv": 2,
            "qwen35moe.attention.key_length": 256,
            "qwen35moe.attention.value_length": 256,
        }
    )
    ratio = attention_ratio(layers, 3_000_000_000)
    assert ratio == pytest.approx(10 * 16 * 512 / 3e9)
    assert ratio is not None
    estimate = guess(REPORT_TOK_S, ratio).predict_ms(0, 131_072)
    for minutes in REPORT_MIN:
        assert estimate.low_ms < minutes * 60_000 < estimate.high_ms
    assert estimate.high_ms / estimate.low_ms > 3


def test_no_layers_no_ratio() -> None:
    assert attention_ratio(model_layers({}), 10**9) is None


def test_the_ratio_steadies_a_single_chunk_and_then_gives_way() -> None:
    chunks = report_climb(22, 16_384)
    ratio = 2.7e-5
    alone = fitted(chunks[:1], ratio).predict_ms(0, 131_072).ms
    assert 0.5 < alone / (22 * 60_000) < 2
    assert fitted(chunks, 20 * ratio).predict_ms(0, 131_072).ms == pytest.approx(
        22 * 60_000, rel=0.10
    )


def test_experts_a_token_does_not_visit_are_left_out() -> None:
    moe = {
        "general.architecture": "m",
        "m.block_count": 40,
        "m.embedding_length": 2048,
        "m.expert_count": 256,
        "m.expert_used_count": 8,
        "m.expert_feed_forward_length": 512,
    }
    assert active_parameters(moe, 35 * 10**9) == 35 * 10**9 - 40 * 248 * 3 * 2048 * 512
    assert active_parameters({"general.architecture": "m"}, 10**9) == 10**9


def follow(chunks: Sequence[Chunk]) -> tuple[PrefillWatch, list[tuple[int, Cliff]]]:
    watch = PrefillWatch()
    found = []
    for i, chunk in enumerate(chunks):
        cliff = watch.add(chunk)
        if cliff:
            found.append((i, cliff))
    return watch, found


def slowed(chunks: Sequence[Chunk], at: slice, factor: float) -> list[Chunk]:
    out = list(chunks)
    out[at] = [c.model_copy(update={"ms": c.ms * factor}) for c in out[at]]
    return out


@pytest.mark.parametrize("factor", [6, 18, 200])
def test_a_cliff_is_reported_within_three_chunks(factor: float) -> None:
    chunks = slowed(report_climb(22, 131_072, noise=0.03), slice(40, None), factor)
    _, found = follow(chunks)
    assert [i for i, _ in found] == [42]
    cliff = found[0][1]
    assert (cliff.at_tokens, cliff.chunks) == (40 * 2048, 3)
    assert cliff.factor == pytest.approx(factor, rel=0.15)
    assert cliff.expected_tok_s / cliff.seen_tok_s == pytest.approx(factor, rel=0.15)


def test_the_4m_reports_cliff_from_220_to_1_token_a_second() -> None:
    # 512-token batches; 1,048,576 tokens at 220 tok/s overall, then 1.1 tok/s.
    chunks = climb(0.05, 8.5e-6, 1_048_576, batch=16_384, noise=0.02)
    after = [
        Chunk(start_tokens=s, end_tokens=s + 512, ms=512 / 1.1 * 1000)
        for s in range(1_048_576, 1_067_008, 512)
    ]
    watch, found = follow([*chunks, *after])
    assert [(i - len(chunks), c.at_tokens) for i, c in found] == [(2, 1_048_576)]
    assert found[0][1].seen_tok_s == pytest.approx(1.1)
    remaining = watch.remaining_ms(1_887_421)
    assert remaining is not None
    assert remaining.ms > 3_600_000 * 24  # at this speed it would take days


@pytest.mark.parametrize("at", [slice(20, 21), slice(20, 22), slice(0, 1)])
def test_outliers_of_one_or_two_chunks_are_no_cliff(at: slice) -> None:
    chunks = slowed(report_climb(22, 131_072, noise=0.03), at, 50)
    watch, found = follow(chunks)
    assert found == []
    assert watch.slowdown == 1


def test_a_steady_climb_has_no_cliff_and_two_falls_are_two() -> None:
    base = report_climb(24, 131_072, noise=0.05)
    assert follow(base)[1] == []
    twice = slowed(slowed(base, slice(20, 25), 10), slice(40, 45), 10)
    watch, found = follow(twice)
    assert [c.at_tokens for _, c in found] == [20 * 2048, 40 * 2048]
    assert watch.slowdown == 1  # it recovered


@pytest.mark.parametrize("name", ["mostly_quiet", "busy_start"])
def test_a_neighbour_on_the_machine_is_no_cliff(name: str) -> None:
    assert follow(recorded(name))[1] == []


def test_a_cliff_after_four_chunks_is_seen() -> None:
    chunks = slowed(report_climb(22, 16_384, noise=0.03), slice(4, None), 100)
    assert [i for i, _ in follow(chunks)[1]] == [6]


def test_slow_tiny_chunks_are_overhead_not_a_cliff() -> None:
    chunks = climb(0.1, 1e-6, 16_384)
    tiny = [Chunk(start_tokens=16_384 + i, end_tokens=16_385 + i, ms=40.0) for i in range(5)]
    assert follow([*chunks, *tiny])[1] == []


def test_the_forecast_of_the_rest_follows_the_climb() -> None:
    chunks = report_climb(22, 131_072)
    watch = PrefillWatch()
    assert watch.remaining_ms(131_072) is None
    for chunk in chunks[:16]:
        watch.add(chunk)
    rest = watch.remaining_ms(131_072)
    assert rest is not None
    assert rest.ms == pytest.approx(sum(c.ms for c in chunks[16:]), rel=0.02)
    for chunk in slowed(chunks[16:20], slice(None), 10):
        watch.add(chunk)
    fallen = watch.remaining_ms(131_072)
    assert fallen is not None
    assert fallen.ms == pytest.approx(10 * sum(c.ms for c in chunks[20:]), rel=0.05)


def test_only_full_attention_grows_with_depth() -> None:
    sliding = {
        "general.architecture": "gemma3",
        "gemma3.block_count": 12,
        "gemma3.attention.sliding_window": 1024,
        "gemma3.attention.head_count": 8,
        "gemma3.attention.head_count_kv": 4,
        "gemma3.attention.key_length": 256,
        "gemma3.attention.value_length": 256,
    }
    assert attention_ratio(model_layers(sliding), 10**9) == pytest.approx(2 * 8 * 512 / 1e9)


def test_a_long_clean_climb_keeps_a_margin_for_the_machines_state() -> None:
    estimate = fitted(report_climb(22, 131_072)).predict_ms(0, 131_072)
    assert estimate.high_ms / estimate.ms > 1.02


def test_a_slowness_below_the_factor_is_no_cliff() -> None:
    chunks = slowed(report_climb(22, 131_072), slice(40, 50), 4)
    assert follow(chunks)[1] == []


def test_what_a_wild_start_cannot_exclude_is_no_cliff() -> None:
    times = [1158.0, 192.0, 1300.0, 8000.0, 8000.0, 8000.0]
    chunks = [
        Chunk(start_tokens=2048 * i, end_tokens=2048 * (i + 1), ms=ms) for i, ms in enumerate(times)
    ]
    assert follow(chunks)[1] == []
