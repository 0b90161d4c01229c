import itertools
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
    assert judge([2e9 + i * 64 * KV for i in range(12)]).outcome == "GROWING"
    assert judge([2e9 + i * 64 * KV for i in range(12)], kv=0.0).outcome == "LEAK"


def test_too_few_samples_are_unknown_and_say_what_to_do() -> None:
    found = judge([2e9, 3e9, 4e9])
    assert found.outcome == "UNKNOWN"
    assert found.bytes_per_token is None
    assert "raise the number of repeats" in found.reason


def test_memory_that_stands_still_while_token_counts_repeat_is_no_leak() -> None:
    held = tuple(Point(tokens, 1 << 30) for tokens in (0, 0, 0, 1, 2, 2, 3, 40))
    assert find_leak(held, KV).outcome == "NO_LEAK"


def test_samples_at_one_token_count_are_unknown() -> None:
    assert find_leak([Point(64, i * MIB) for i in range(20)], KV).outcome == "UNKNOWN"
    asked = [Point(72 * min(i, 3), i * MIB) for i in range(10)]  # generation gave nothing
    assert find_leak(asked, KV).outcome == "UNKNOWN"


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


# -- growth that levels off, and growth that does not ------------------------------------------


def requests(sizes_mib: list[float], tokens: list[int] | None = None) -> tuple[Point, ...]:
    """One sample a request; four asks of 72 tokens, then repeats of 128, as a rung has them."""
    counts = tokens or [0, 72, 72, 72, *[128] * (len(sizes_mib) - 4)]
    places = itertools.accumulate(counts)
    return tuple(Point(n, int(size * MIB)) for n, size in zip(places, sizes_mib, strict=True))


RECORDED = {
    131072: [0.0, 6.1, 12.7, 18.8, 16.9, 23.1, 29.2, 35.1, 41.2, 48.0],
    524288: [0.0, 10.7, 17.3, 23.5, 29.4, 74.1, 120.7, 125.9, 164.1, 169.4],
    524289: [0.0, 11.3, 23.9, 35.3, 46.6, 58.3, 104.1, 114.9, 127.7, 141.0],
    32768: [0.0, 3.2, 6.5, 7.3, 8.0, 11.2, 14.4, 17.7, 21.1, 24.2, 27.5, 30.9],
}


@pytest.mark.parametrize("depth", RECORDED)
def test_a_heap_that_grows_with_long_prompts_is_open_and_no_leak(depth: int) -> None:
    """Recorded on a GPU: 6 to 13 MiB a request, jumps of 47; after some more it stands."""
    found = find_leak(requests(RECORDED[depth]), 1024, round(0.9 * depth))
    assert found.outcome == "GROWING"
    assert "40 requests tell whether that ends" in found.reason


def test_recorded_growth_that_came_to_its_end_is_no_leak() -> None:
    sizes = [
        *(0.0, 3.2, 4.0, 4.8, 5.6, 6.3, 7.1, 7.9, 8.7, 11.9, 15.0, 18.1, 19.0, 19.0, 19.8, 19.8),
        *(20.5, 20.5, 21.2, 21.2, 21.4, 21.4),
    ]
    assert find_leak(requests(sizes), 1024, 29_491).outcome == "NO_LEAK"
    end = [*RECORDED[524288], *[170.0] * 6]
    assert find_leak(requests(end), 1024, 471_859).outcome == "NO_LEAK"


def test_one_kib_per_token_for_ever_is_a_leak() -> None:
    """Too little to tell from a heap that settles, until it has gone on."""
    tokens = [0, *[72, 128] * 24]
    sizes = [n / 1024 for n in itertools.accumulate(tokens)]
    short = find_leak(requests(sizes[:12], tokens[:12]), 1024, 1843)
    assert short.outcome == "GROWING"
    found = find_leak(requests(sizes, tokens), 1024, 1843)
    assert found.outcome == "LEAK"
    assert "1 KiB per generated token" in found.reason
    assert "without levelling off" in found.reason


def test_growth_that_follows_requests_is_called_so() -> None:
    tokens = [0, *[72, 128] * 24]
    found = find_leak(requests([6.0 * n for n in range(49)], tokens), 1024, 117_964)
    assert found.outcome == "LEAK"
    assert "6 MiB per request, 53 B per token of its prompt" in found.reason
