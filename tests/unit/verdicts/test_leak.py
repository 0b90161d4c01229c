import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.lines import MemorySample
from harness.verdicts.leak import Growth, Point, find_leak, held_bytes, points

MIB = 2**20
KV = 20_480.0


def series(sizes: list[float], tokens_apart: int = 64) -> tuple[Point, ...]:
    return tuple(Point(i * tokens_apart, int(size)) for i, size in enumerate(sizes))


def judge(sizes: list[float], kv: float | None = KV) -> Growth:
    return find_leak(series(sizes), kv)


def test_reported_leak_of_3_3_mb_per_token_is_found_and_its_size_named() -> None:
    found = judge([2e9 + i * 64 * 3.3e6 for i in range(12)])
    assert found.outcome == "LEAK"
    assert found.bytes_per_token is not None
    assert abs(found.bytes_per_token - 3.3e6) < 1
    assert "3.1 MiB per generated token" in found.reason


def test_a_leak_is_found_even_when_the_cache_of_the_model_is_unknown() -> None:
    assert judge([2e9 + i * 64 * 3.3e6 for i in range(12)], kv=None).outcome == "LEAK"


def test_step_then_plateau_is_no_leak() -> None:
    assert judge([2e9] * 3 + [2.6e9] * 9).outcome == "NO_LEAK"


def test_ramp_then_plateau_is_no_leak() -> None:
    ramp = [2e9 + i * 64 * 3.3e6 for i in range(7)]
    assert judge(ramp + [ramp[-1]] * 8).outcome == "NO_LEAK"


@pytest.mark.parametrize("flat", [4, 5])
def test_growth_that_has_ended_is_no_leak(flat: int) -> None:
    """The ramp dominates the slope over all samples (and, with 4, the median over the half)."""
    ramp = [2e9 + i * 64 * 3.3e6 for i in range(10)]
    assert judge(ramp + [ramp[-1]] * flat).outcome == "NO_LEAK"


def test_flat_resident_memory_with_growing_swap_is_a_leak() -> None:
    samples = [
        MemorySample(
            rss_bytes=9 * MIB,
            rss_anon_bytes=8 * MIB,
            swap_bytes=i * 64 * 3_300_000,
            generated_tokens=i * 64,
        )
        for i in range(12)
    ]
    assert find_leak(points(samples), KV).outcome == "LEAK"


def test_a_cache_that_is_filled_for_the_first_time_is_no_leak() -> None:
    assert judge([2e9 + i * 64 * KV for i in range(12)]).outcome == "NO_LEAK"
    assert judge([2e9 + i * 64 * KV for i in range(12)], kv=0.0).outcome == "LEAK"


def test_too_few_samples_are_unknown_and_say_what_to_do() -> None:
    found = judge([2e9, 3e9, 4e9])
    assert found.outcome == "UNKNOWN"
    assert found.bytes_per_token is None
    assert "raise the number of repeats" in found.reason


def test_samples_at_one_token_count_are_unknown() -> None:
    assert find_leak([Point(64, i * MIB) for i in range(20)], KV).outcome == "UNKNOWN"


def test_what_a_leak_shows_in() -> None:
    assert held_bytes(MemorySample(rss_bytes=5, rss_anon_bytes=3, swap_bytes=2)) == 5
    assert held_bytes(MemorySample(rss_bytes=5, rss_anon_bytes=3)) == 3
    assert held_bytes(MemorySample(rss_bytes=5, commit_bytes=7)) == 7
    assert held_bytes(MemorySample(rss_bytes=5)) is None
    assert points([MemorySample(rss_bytes=5, generated_tokens=1)]) == ()
    assert points([MemorySample(rss_bytes=5, rss_anon_bytes=3)]) == ()


@given(
    count=st.integers(8, 40),
    at=st.floats(0, 1),
    step=st.integers(0, 8 * 2**30),
    jitter=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)
def test_a_single_step_anywhere_is_never_a_leak(
    count: int, at: float, step: int, jitter: int, seed: int
) -> None:
    rng = random.Random(seed)
    sizes = [
        2e9 + (step if i >= at * count else 0) + rng.randint(-jitter, jitter) * 4096
        for i in range(count)
    ]
    assert judge(sizes).outcome == "NO_LEAK"


@given(
    count=st.integers(10, 40),
    per_token=st.integers(200_000, 5_000_000),
    seed=st.integers(0, 10_000),
)
def test_a_steady_leak_is_found_under_noise(count: int, per_token: int, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [2e9 + i * 64 * per_token + rng.uniform(-0.3, 0.3) * 64e5 for i in range(count)]
    assert judge(sizes).outcome == "LEAK"
