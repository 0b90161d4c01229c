"""Whether a server keeps prompts, told from times alone."""

import pytest

from harness.records.lines import Prefill, Rung
from harness.records.samples import caching_at, caching_of, samples_of
from tests.made import ask


@pytest.mark.parametrize(
    ("cold_ms", "again_ms", "kept", "says"),
    [
        ((12_000.0,), (900.0, 950.0), True, "never as cold"),
        ((12_000.0,), (11_800.0, 12_100.0), False, "there is no warm TTFT"),
        ((12_000.0,), (6_100.0, 6_200.0), False, "keeps no prompts"),
        ((20.0,), (1.0,), None, "cannot be told from 20 ms"),
        ((), (1.0,), None, "too few readings"),
        ((100.0,), (), None, "too few readings"),
    ],
)
def test_caching_shows_in_the_second_question(
    cold_ms: tuple[float, ...], again_ms: tuple[float, ...], kept: bool | None, says: str
) -> None:
    found = caching_of(cold_ms, again_ms)
    assert found.kept is kept
    assert says in found.sentence


def reduced(cold_ms: float, *ttft_ms: float) -> Rung:
    """A rung of a server in reduced mode."""
    reading = Prefill(
        kind="cold_repeat",
        new_tokens=2000,
        cached_tokens=None,
        planned_cached_tokens=0,
        server_ms=None,
        wall_ms=cold_ms,
    )
    asks = tuple(ask(ttft_ms=t).model_copy(update={"new_tokens": None}) for t in ttft_ms)
    return Rung(depth=2048, document_tokens=1800, prefills=(reading,), asks=asks, elapsed_s=1.0)


def test_the_first_question_is_no_warm_one_and_kept_prompts_make_the_others_warm() -> None:
    rung = reduced(2000.0, 1900.0, 200.0, 210.0)
    assert caching_at(rung).kept is True
    assert samples_of(rung).ttft_ms == (200.0, 210.0)
    assert samples_of(rung).prefill_tok_s == (1000.0,)


def test_without_kept_prompts_there_is_no_warm_ttft() -> None:
    assert samples_of(reduced(2000.0, 1900.0, 2010.0, 2020.0)).ttft_ms == ()
