"""Haystacks: exact budgets, true prefixes, needles where they were asked for."""

import random
from collections.abc import Callable, Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.questions.background import Background
from harness.questions.haystack import (
    PLACEMENT,
    Placed,
    Segment,
    build,
    grow,
    plan_distractors,
    plan_ladder,
)
from harness.questions.needles import CodeSource, Needle

TOLERANCE = 4
LONGEST_LINE = {"words": 30, "quarters": 40, "pieces": 70, "characters": 150}
"""More than any needle or background line counts, by tokenizer."""


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def quarters(texts: Sequence[str]) -> list[int]:
    return [-(-len(text) // 4) for text in texts]


def pieces(texts: Sequence[str]) -> list[int]:
    """One token for a run of up to five letters, for each digit, mark and line end."""
    return [
        sum(1 + len(word) // 6 + sum(not c.isalpha() for c in word) for word in text.split())
        + text.count("\n")
        for text in texts
    ]


def characters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


TOKENIZERS: dict[str, Callable[[Sequence[str]], list[int]]] = {
    "words": words,
    "quarters": quarters,
    "pieces": pieces,
    "characters": characters,
}
TOKENIZER = st.sampled_from(sorted(TOKENIZERS))
BACKGROUND = st.sampled_from(get_args(Background))


def codes(seed: int = 0) -> CodeSource:
    return CodeSource(random.Random(seed))


@st.composite
def ladders(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A tokenizer and 1 to 8 rungs of documents that have room for their needles, also just so."""
    tokenizer = draw(TOKENIZER)
    rungs = draw(st.integers(1, 8))
    least = LONGEST_LINE[tokenizer] * len(PLACEMENT)
    budgets = [draw(st.integers(least, 2 * least))]
    for _ in range(rungs - 1):
        budgets.append(budgets[-1] + draw(st.integers(least, 2 * least)))
    return tokenizer, [(100 * n, budget) for n, budget in enumerate(budgets, start=1)]


def _check(segments: Sequence[Segment], budgets: Sequence[tuple[int, int]], tokenizer: str) -> None:
    count = TOKENIZERS[tokenizer]
    total = 0
    for segment, (depth, budget) in zip(segments, budgets, strict=True):
        assert segment.depth == depth
        total += segment.tokens
        assert segment.total_tokens == total
        assert budget - TOLERANCE <= total <= budget
        assert segment.text.endswith("\n")
        assert not segment.text[0].isspace()
        if tokenizer != "quarters":  # which rounds, so that counts of lines do not add up
            assert sum(count(segment.text.splitlines(keepends=True))) == segment.tokens


@given(ladders(), BACKGROUND, st.integers(0, 99))
def test_every_rung_ends_at_its_budget_and_holds_its_needles(
    ladder: tuple[str, list[tuple[int, int]]], background: Background, seed: int
) -> None:
    tokenizer, budgets = ladder
    segments = build(budgets, TOKENIZERS[tokenizer], codes(seed), seed=seed, background=background)

    _check(segments, budgets, tokenizer)
    document = ""
    for segment, (_, budget) in zip(segments, budgets, strict=True):
        document += segment.text
        assert [p.share for p in segment.needles] == list(PLACEMENT)
        for placed in segment.needles:
            assert document.count(placed.needle.text) == 1
            assert placed.at_tokens < budget
        assert [p.at_tokens for p in segment.needles] == sorted(
            p.at_tokens for p in segment.needles
        )


@given(TOKENIZER, st.integers(1, 5), st.integers(0, 99))
def test_where_there_is_room_needles_stand_within_a_line_of_their_place(
    tokenizer: str, rungs: int, seed: int
) -> None:
    longest = LONGEST_LINE[tokenizer]
    budgets = [(n, (60 * longest) << n) for n in range(rungs)]
    segments = build(budgets, TOKENIZERS[tokenizer], codes(), seed=seed, background="plain")

    for segment, (_, budget) in zip(segments, budgets, strict=True):
        for placed in segment.needles:
            assert 0 <= placed.at_tokens - int(placed.share * budget) <= 3 * longest


@given(st.integers(0, 99), BACKGROUND)
def test_at_tokens_counts_what_stands_before_the_needle(seed: int, background: Background) -> None:
    budgets = [(1, 700), (2, 1500)]
    segments = build(budgets, words, codes(), seed=seed, background=background)
    document = "".join(segment.text for segment in segments)

    for placed in (p for segment in segments for p in segment.needles):
        before = document[: document.index(placed.needle.text)]
        assert len(before.split()) == placed.at_tokens


def test_the_same_seed_gives_the_same_document_and_another_another() -> None:
    def text(seed: int, background: Background) -> str:
        (segment,) = grow([(1, 900)], {}, words, seed=seed, background=background)
        return segment.text

    assert text(1, "plain") == text(1, "plain")
    assert text(1, "plain") != text(2, "plain")
    assert text(1, "plain") != text(1, "hard")


def test_the_same_seed_gives_the_same_names_and_another_others() -> None:
    def labels(seed: int) -> list[str]:
        (segment,) = build([(1, 900)], words, codes(), seed=seed, background="plain")
        return [placed.needle.label for placed in segment.needles]

    assert labels(1) == labels(1)
    assert labels(1) != labels(2)


def test_a_rung_that_ends_where_the_next_ones_needle_belongs() -> None:
    # 50 % of the second is 100 % of the first
    segments = build([(1, 1000), (2, 2000)], words, codes(), seed=0, background="plain")
    assert [s.total_tokens for s in segments] == pytest.approx([1000, 2000], abs=TOLERANCE)


@pytest.mark.parametrize("budgets", [[], [(1, 0)], [(1, 900), (2, 900)], [(1, 900), (2, 800)]])
def test_budgets_must_ascend(budgets: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        build(budgets, words, codes(), seed=0, background="plain")


@given(TOKENIZER, st.integers(5, 400), st.integers(0, 9))
def test_a_tight_budget_is_met_or_refused_by_name(tokenizer: str, budget: int, seed: int) -> None:
    needles = sum(TOKENIZERS[tokenizer](["<<< MEMORY TARGET CHARLIE >>>\nCODE=MEM-123456\n"] * 5))
    refused = ""
    segments: list[Segment] = []
    try:
        segments = build(
            [(64, budget)], TOKENIZERS[tokenizer], codes(), seed=seed, background="plain"
        )
    except ValueError as error:
        refused = str(error)
    if refused:
        assert "choose a deeper rung" in refused
        assert budget < needles + TOLERANCE
    else:
        _check(segments, [(64, budget)], tokenizer)
        assert len(segments[0].needles) == len(PLACEMENT)


@st.composite
def arbitrary_places(draw: st.DrawFn) -> tuple[list[tuple[int, int]], dict[int, list[Placed]]]:
    steps = draw(st.lists(st.integers(300, 900), min_size=1, max_size=5))
    budgets = [(n, sum(steps[: n + 1])) for n in range(len(steps))]
    planned: dict[int, list[Placed]] = {}
    serial = 0
    for depth, budget in budgets:
        places = draw(st.lists(st.integers(0, budget - 1), max_size=6))
        planned[depth] = []
        for place in places:
            serial += 1
            needle = Needle(f"MEMORY TARGET N-{serial:02d}", f"MEM-{serial:06d}")
            planned[depth].append(Placed(needle, place, place / budget))
    return budgets, planned


@given(arbitrary_places(), st.integers(0, 9))
def test_needles_at_any_place_are_there_when_their_rung_ends(
    places: tuple[list[tuple[int, int]], dict[int, list[Placed]]], seed: int
) -> None:
    budgets, planned = places
    decoy = Needle("BACKUP TARGET N-99", "REF-999999")
    segments = grow(
        budgets,
        planned,
        words,
        seed=seed,
        background="plain",
        distractors=[Placed(decoy, 10, 0.1)],
    )

    _check(segments, budgets, "words")
    document = ""
    for segment in segments:
        document += segment.text
        wanted = {p.needle for p in planned[segment.depth]}
        assert {p.needle for p in segment.needles} == wanted
        assert all(document.count(needle.text) == 1 for needle in wanted)
        asked = {p.needle: p.at_tokens for p in planned[segment.depth]}
        for placed in segment.needles:
            # a rung's last lines may come early by the needles behind them, never by more
            assert placed.at_tokens >= min(asked[placed.needle], segment.total_tokens - 60 - 7)
    assert decoy.text in segments[0].text or decoy.text in document


@pytest.mark.parametrize("place", [-1, 500, 501])
def test_a_place_outside_the_document_is_refused(place: int) -> None:
    planned = {1: [Placed(Needle("MEMORY TARGET ALPHA", "MEM-1"), place, 0.5)]}
    with pytest.raises(ValueError, match="outside the 500 tokens"):
        grow([(1, 500)], planned, words, seed=0, background="plain")


@pytest.mark.parametrize("per_rung", [0, 3])
def test_distractors_stand_in_every_rung_and_leave_the_needles_as_they_are(per_rung: int) -> None:
    budgets = [(1024, 800), (2048, 1700), (4096, 3500)]
    source = codes()
    planned = plan_ladder(budgets, source, seed=3)
    decoys = plan_distractors(budgets, planned, source, per_rung=per_rung, seed=3)
    segments = grow(budgets, planned, words, seed=3, background="plain", distractors=decoys)
    needles = {p.needle for rung in planned.values() for p in rung}
    assert needles == {
        p.needle
        for s in build(budgets, words, codes(), seed=3, background="plain")
        for p in s.needles
    }
    assert not {d.needle.label for d in decoys} & {n.label for n in needles}
    assert not {d.needle.code for d in decoys} & {n.code for n in needles}
    for segment in segments:
        assert sum(decoy.needle.text in segment.text for decoy in decoys) == per_rung
