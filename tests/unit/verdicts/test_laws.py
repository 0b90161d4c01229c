"""Physical laws: each one broken and each one just kept."""

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.lines import Chunk
from harness.verdicts import laws
from harness.verdicts.laws import Law, Violation

GB = 1e9


def chunk(start: int, end: int, ms: float) -> Chunk:
    return Chunk(start_tokens=start, end_tokens=end, ms=ms)


BROKEN: dict[Law, Callable[[], Violation | None]] = {
    "times are positive": lambda: laws.positive_time("prefill", -3.0),
    "our clock covers the server's": lambda: laws.clock_covers_server("prefill", 900.0, 1000.0),
    "first token within the request": lambda: laws.first_token_within("ask", 1200.0, 1000.0),
    "enough tokens to time": lambda: laws.enough_tokens("generation", 1, 0.001),
    "no more tokens than asked for": lambda: laws.no_more_than_asked("generation", 33, 32),
    "as many tokens as asked for": lambda: laws.as_many_as_asked("generation", 20, 128),
    "both clocks agree": lambda: laws.clocks_agree("generation", 12_800.0, 1_280.0),
    "the parts add up": lambda: laws.parts_add_up(
        "prefill", [chunk(0, 2048, 300.0), chunk(2048, 4096, 8300.0)], 620.0
    ),
    "batches follow one another": lambda: laws.batches_in_order(
        "prefill", [chunk(0, 2048, 300.0), chunk(1024, 4096, 310.0)]
    ),
    "bytes read fit the memory bandwidth": lambda: laws.within_bandwidth(
        "generation", 30.0, bytes_per_token=10 * GB, bandwidth_bytes_s=256 * GB
    ),
    "depth never speeds generation up": lambda: laws.depth_costs(
        [[11.9, 12.1], [12.0, 11.8]], [14.75, 14.79], 32_768
    ),
}


@pytest.mark.parametrize("law", get_args(Law))
def test_every_law_can_be_broken_and_says_so(law: Law) -> None:
    violation = BROKEN[law]()
    assert violation is not None
    assert violation.law == law
    assert any(c.isdigit() for c in violation.sentence)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(laws.positive_time("prefill", 0.01), id="a short time"),
        pytest.param(laws.clock_covers_server("prefill", 1000.0, 1000.0), id="equal clocks"),
        pytest.param(laws.clock_covers_server("ask", 10.0, 11.5), id="rounding of 2 ms"),
        pytest.param(laws.first_token_within("ask", 1000.0, 1000.0), id="one token"),
        pytest.param(laws.enough_tokens("generation", 16, 20.0), id="just enough"),
        pytest.param(laws.no_more_than_asked("generation", 32, 32), id="as many as asked"),
        pytest.param(laws.as_many_as_asked("generation", 128, 128), id="told to go on, and did"),
        pytest.param(laws.clocks_agree("generation", 1_500.0, 1_280.0), id="what the way takes"),
        pytest.param(laws.parts_add_up("prefill", [chunk(0, 9, 9.0)], 9.0), id="parts of a whole"),
        pytest.param(laws.parts_add_up("prefill", [], 9.0), id="no parts"),
        pytest.param(laws.batches_in_order("prefill", []), id="no batches"),
        pytest.param(
            laws.batches_in_order("prefill", [chunk(0, 2048, 9.0), chunk(4096, 6144, 9.0)]),
            id="a gap between batches",
        ),
        pytest.param(
            laws.within_bandwidth("g", 25.6, bytes_per_token=10 * GB, bandwidth_bytes_s=256 * GB),
            id="at the bandwidth",
        ),
        pytest.param(
            laws.within_bandwidth(
                "g", 60.0, bytes_per_token=10 * GB, bandwidth_bytes_s=256 * GB, tokens_per_pass=2.5
            ),
            id="several tokens a pass",
        ),
    ],
)
def test_kept_laws_say_nothing(kept: Violation | None) -> None:
    assert kept is None


def test_zero_time_is_not_positive() -> None:
    assert laws.positive_time("generation", 0.0) is not None


@pytest.mark.parametrize(("tokens", "ms"), [(15, 500.0), (64, 0.5)])
def test_tokens_and_time_must_both_suffice(tokens: int, ms: float) -> None:
    assert laws.enough_tokens("generation", tokens, ms) is not None


@pytest.mark.parametrize("bad", [(0, 2048, 0.0), (0, 2048, -1.0), (2048, 2048, 5.0)])
def test_a_batch_needs_tokens_and_time(bad: tuple[int, int, float]) -> None:
    assert laws.batches_in_order("prefill", [chunk(*bad)]) is not None


def test_depth_0_slower_within_noise_or_on_one_sample_is_no_violation() -> None:
    assert laws.depth_costs([[14.5, 14.9], [14.6]], [14.75, 14.79], 32_768) is None
    assert laws.depth_costs([[12.0], [12.1]], [14.75], 32_768) is None
    assert laws.depth_costs([[9.0, 15.0], [11.0, 14.0]], [14.75, 14.79], 32_768) is None


def test_a_cold_first_control_makes_nothing_impossible() -> None:
    """One H200: 1,334 tok/s at first, 2,263 at the end, 2,770 at 2048 between them."""
    cold, warm = [1334.0, 1731.0, 2099.0], [2148.0, 2263.0, 2309.0]
    at_depth = [2724.0, 2720.0, 2777.0, 2730.0, 2720.0, 2779.0]
    assert laws.depth_costs([cold, warm], at_depth, 2048) is None
    assert laws.depth_costs([cold], at_depth, 2048) is None


@given(
    st.lists(st.floats(10.0, 12.0), min_size=2, max_size=6),
    st.lists(st.floats(5.0, 10.0), min_size=2, max_size=6),
)
def test_generation_that_slows_with_depth_keeps_the_law(
    at_zero: list[float], at_depth: list[float]
) -> None:
    assert laws.depth_costs([at_zero, at_zero[::-1]], at_depth, 4096) is None
