"""Heatmap plans: every cell answered by a needle in its band, for the price of one prefill."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.questions.haystack import grow
from harness.questions.heatmap import (
    HeatmapPlan,
    even_lengths,
    most_needles,
    plan_heatmap,
    true_shares,
)
from harness.questions.needles import CodeSource, make_ask, needle_names
from harness.records.probes import CellResult, CellState, Matrix

ROOM = 40


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def plan(budgets: Sequence[tuple[int, int]], bands: int, **options: int) -> HeatmapPlan:
    names = needle_names(random.Random(0), most_needles(len(budgets), bands))
    return plan_heatmap(budgets, names, CodeSource(random.Random(0)), bands=bands, **options)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    """Budgets (even, doubling or any) and a number of bands that fit."""
    bands = draw(st.integers(1, 20))
    least = 2 * ROOM * bands
    steps = draw(st.lists(st.integers(1, 3 * least), max_size=7))
    budgets = [draw(st.integers(least, 2 * least))]
    for step in steps:
        budgets.append(budgets[-1] + step)
    return [(64 * n, budget) for n, budget in enumerate(budgets, start=1)], bands


@given(shapes())
def test_every_cell_is_planned_once_in_its_band(shape: tuple[list[tuple[int, int]], int]) -> None:
    budgets, bands = shape
    made = plan(budgets, bands, needle_tokens=ROOM)

    cells = list(made.cells)
    assert [(c.length, c.band) for c in cells] == [
        (length, band) for length, _ in budgets for band in range(bands)
    ]
    totals = dict(budgets)
    places = {p.needle: p.at_tokens for new in made.planned.values() for p in new}
    for cell in cells:
        assert cell.band <= places[cell.needle] * bands / totals[cell.length] < cell.band + 1
    assert len({n.label for n in places}) == len(places) == len({n.code for n in places})
    # nothing is planned that no cell asks
    assert set(places) == {cell.needle for cell in cells}


@given(shapes())
def test_of_the_needles_that_stand_in_a_band_the_one_nearest_its_middle_is_asked(
    shape: tuple[list[tuple[int, int]], int],
) -> None:
    budgets, bands = shape
    made = plan(budgets, bands, needle_tokens=ROOM)
    at = {p.needle: p.at_tokens for new in made.planned.values() for p in new}
    before: set[int] = set()
    for length, budget in budgets:
        for cell in (c for c in made.cells if c.length == length):
            middle = (cell.band + 0.5) * budget / bands
            first, last = cell.band * budget / bands, (cell.band + 1) * budget / bands - ROOM
            inside = [abs(place - middle) for place in before if first <= place <= last]
            assert abs(at[cell.needle] - middle) <= min(inside, default=1.0)
        before |= {p.at_tokens for p in made.planned[length]}


@given(shapes())
def test_a_needle_is_planned_at_the_first_length_that_asks_it(
    shape: tuple[list[tuple[int, int]], int],
) -> None:
    made = plan(*shape, needle_tokens=ROOM)

    for length, new in made.planned.items():
        for placed in new:
            assert length == next(c.length for c in made.cells if c.needle == placed.needle)


@given(shapes(), st.integers(2, 8))
def test_requests_hold_no_more_questions_than_allowed_and_are_as_few_as_can_be(
    shape: tuple[list[tuple[int, int]], int], most: int
) -> None:
    budgets, bands = shape
    made = plan(budgets, bands, needle_tokens=ROOM, max_questions=most)

    for asks in made.asks.values():
        assert len(asks) == -(-bands // (most - 1))
        for cells in asks:
            ask = make_ask(
                [c.needle for c in cells],
                CodeSource(random.Random(1)),
                "forward",
                random.Random(1),
            )
            assert 2 <= len(ask.questions) <= most
            assert [c.band for c in cells] == sorted({c.band for c in cells})


@given(shapes(), st.integers(0, 99))
def test_in_the_made_document_every_needle_stands_in_its_band(
    shape: tuple[list[tuple[int, int]], int], seed: int
) -> None:
    budgets, bands = shape
    made = plan(budgets, bands, needle_tokens=ROOM)
    segments = grow(budgets, made.planned, words, seed=seed, background="plain")

    shares = true_shares(made, segments)
    document = ""
    for segment in segments:
        document += segment.text
        for cell in (c for c in made.cells if c.length == segment.depth):
            assert document.count(cell.needle.text) == 1
            # documents end up to 4 tokens before their budget
            slack = 4 * bands / segment.total_tokens
            band = shares[cell.length, cell.band] * bands
            assert cell.band <= band < cell.band + 1 + slack


def test_the_default_shape_costs_one_prefill_and_few_needles() -> None:
    lengths = even_lengths(32768)
    budgets = [(length, int(0.95 * length) - 300) for length in lengths]
    made = plan(budgets, 16)

    assert len(list(made.cells)) == 8 * 16
    assert {len(asks) for asks in made.asks.values()} == {3}
    assert sum(len(new) for new in made.planned.values()) <= 64
    assert made.requests == 24
    # the questions' own: 24 tails of some 200 tokens
    assert made.prefilled_tokens(200) == budgets[-1][1] + 24 * 200
    assert made.prefilled_tokens(200) <= 1.1 * 32768


def test_a_failing_request_does_not_blank_a_stretch_of_depth() -> None:
    made = plan([(1, 2000)], 16)
    assert [[c.band for c in cells] for cells in made.asks[1]] == [
        [0, 3, 6, 9, 12, 15],
        [1, 4, 7, 10, 13],
        [2, 5, 8, 11, 14],
    ]


@pytest.mark.parametrize(
    ("budgets", "bands", "names", "seen"),
    [
        ([], 4, 9, "must ascend"),
        ([(1, 900), (2, 900)], 4, 99, "must ascend"),
        ([(1, 900)], 16, 99, "shortest document of 1536 tokens, got 900"),
        ([(1, 900)], 0, 99, "a band"),
        ([(1, 900)], 4, 3, "too few names"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    budgets: list[tuple[int, int]], bands: int, names: int, seen: str
) -> None:
    with pytest.raises(ValueError, match=seen):
        plan_heatmap(
            budgets,
            needle_names(random.Random(0), names),
            CodeSource(random.Random(0)),
            bands=bands,
        )


def test_even_lengths() -> None:
    assert even_lengths(32768, 4) == (8192, 16384, 24576, 32768)
    with pytest.raises(ValueError, match="lengths"):
        even_lengths(32768, 0)


STATES: list[tuple[dict[str, object], CellState]] = [
    ({}, "not_asked"),
    ({"warm_class": "right"}, "right"),
    ({"warm_class": "swapped"}, "unconfirmed"),
    ({"warm_class": "swapped", "cold_class": "digit_changed"}, "wrong"),
    ({"warm_class": "swapped", "cold_class": "right"}, "wrong_warm_only"),
    ({"warm_class": "swapped", "cold_class": "right", "cold_valid": False}, "unconfirmed"),
    ({"warm_class": "swapped", "warm_valid": False}, "invalid"),
    ({"warm_class": "right", "warm_valid": False}, "invalid"),
]


@pytest.mark.parametrize(("said", "state"), STATES)
def test_a_failure_counts_only_when_it_is_confirmed_cold(
    said: dict[str, object], state: CellState
) -> None:
    cell = CellResult.model_validate({"length": 1, "band": 0, "share": 0.5, **said})
    assert cell.state == state


def test_the_matrix_has_a_row_a_band_and_takes_the_latest_result() -> None:
    def cell(length: int, band: int, warm: str, cold: str | None = None) -> CellResult:
        return CellResult(length=length, band=band, share=0.5, warm_class=warm, cold_class=cold)

    matrix = Matrix(
        lengths=(1024, 2048),
        document_tokens=(900, 1900),
        bands=2,
        cells=(
            cell(1024, 0, "right"),
            cell(2048, 0, "swapped"),
            cell(2048, 1, "incomplete", "right"),
            cell(2048, 0, "swapped", "swapped"),
        ),
    )

    assert matrix.rows() == (("right", "wrong"), ("not_asked", "wrong_warm_only"))
    assert (matrix.count("wrong"), matrix.count("wrong_warm_only")) == (1, 1)
    assert Matrix.model_validate_json(matrix.model_dump_json()) == matrix
