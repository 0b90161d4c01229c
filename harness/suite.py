"""The users' tests. In another repository: `from harness.suite import *` in a test module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from harness.measuring.ladder import Ladder, Probe
    from harness.serving.session import Session

__all__ = [
    "test_family",
    "test_fidelity",
    "test_fuzz_placements",
    "test_fuzz_questions",
    "test_generation",
    "test_harder",
    "test_heatmap",
    "test_memory",
    "test_prefill",
    "test_retrieval",
    "test_smoke_answers",
    "test_smoke_generation",
    "test_smoke_prefill",
    "test_ttft",
]

_SMOKE_TEXT = "The lantern near the harbor was counted and sealed in sector 42.\n" * 24


@pytest.mark.long
def test_retrieval(ladder: Ladder, depth: int) -> None:
    """Five needles at 5/25/50/75/95 % and a local control, in three orders, all answered."""
    ladder.check("retrieval", depth)


@pytest.mark.long
def test_prefill(closed_ladder: Ladder, depth: int) -> None:
    """Prefill speed of the rung's own tokens, batch by batch."""
    closed_ladder.check("prefill", depth)


@pytest.mark.long
def test_generation(closed_ladder: Ladder, depth: int) -> None:
    """Generation speed with the rung's document in the KV cache."""
    closed_ladder.check("generation", depth)


@pytest.mark.long
def test_ttft(closed_ladder: Ladder, depth: int) -> None:
    """Time to first token of another question about a document already read."""
    closed_ladder.check("ttft", depth)


@pytest.mark.long
def test_memory(closed_ladder: Ladder, depth: int) -> None:
    """Memory of the server's process tree and device."""
    closed_ladder.check("memory", depth)


@pytest.mark.long
def test_fidelity(closed_ladder: Ladder, depth: int) -> None:
    """Next-token probabilities behind the rung's document, against those of the accepted runs."""
    if missing := closed_ladder.numbers_missing(depth):
        pytest.skip(missing)
    closed_ladder.check("fidelity", depth)


@pytest.mark.long
def test_heatmap(heatmap: Probe) -> None:
    """Every length x depth of `--heatmap` on one document that is read once."""
    heatmap.check("heatmap")


@pytest.mark.long
def test_fuzz_questions(fuzz: Probe) -> None:
    """Any subset of questions, in any order, language and numbering, about one document."""
    fuzz.check("questions")


@pytest.mark.long
def test_fuzz_placements(fuzz: Probe) -> None:
    """Any needles at any places, with names alike and distractors, in short documents."""
    fuzz.check("placements")


@pytest.mark.long
def test_harder(harder: Probe) -> None:
    """Key-value pairs, chains of two hops and counts at every rung, as `--harder` asks."""
    harder.check("harder")


@pytest.mark.long
def test_family(family: Probe) -> None:
    """What only a member's special layer can answer, at every rung, as `--reference` asks."""
    family.check("family")


@pytest.mark.smoke
def test_smoke_answers(server: Session) -> None:
    """The server answers a chat request and counts its tokens."""
    exchange = server.client.chat(
        "Say yes.", max_tokens=8, reuse=False, native=not server.identity.reduced
    )
    assert exchange.prompt_tokens
    assert exchange.finish_reason in ("stop", "length")


@pytest.mark.smoke
def test_smoke_generation(server: Session, benchmark: BenchmarkFixture) -> None:
    """Generation at depth 0; the rate by the server's clock is in the JSON's `extra_info`."""
    exchange = benchmark.pedantic(
        lambda: server.client.chat(
            "Count.",
            max_tokens=64,
            reuse=False,
            ignore_eos=True,
            native=not server.identity.reduced,
        ),
        rounds=5,
        warmup_rounds=1,
    )
    benchmark.extra_info["build"] = server.identity.build
    benchmark.extra_info["generation_tok_s"] = exchange.timings.get("predicted_per_second")
    benchmark.extra_info["predicted_tokens"] = exchange.predicted_tokens


@pytest.mark.smoke
def test_smoke_prefill(server: Session, benchmark: BenchmarkFixture) -> None:
    """Prefill of a short prompt, cold each time."""
    exchange = benchmark.pedantic(
        lambda: server.client.chat(
            _SMOKE_TEXT, max_tokens=1, reuse=False, native=not server.identity.reduced
        ),
        rounds=5,
        warmup_rounds=1,
    )
    benchmark.extra_info["build"] = server.identity.build
    benchmark.extra_info["prefill_tok_s"] = exchange.timings.get("prompt_per_second")
    benchmark.extra_info["ttft_ms"] = exchange.first_token_ms
    benchmark.extra_info["prompt_tokens"] = exchange.prompt_tokens
