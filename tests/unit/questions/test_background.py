"""Background records: nothing in the plain one resembles a needle; lines cut clean; seeds hold."""

import random
import re
from itertools import islice
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from harness.questions.background import NATO_NAMES, OTHER_NAMES, Background, digits, lines

SEEDS = st.integers(0, 10_000)
BACKGROUNDS = st.sampled_from(get_args(Background))
COUNT = 60


def made(seed: int, background: Background, count: int = COUNT) -> list[str]:
    return list(islice(lines(random.Random(seed), background), count))


@given(SEEDS, BACKGROUNDS)
def test_lines_begin_in_text_and_end_in_their_only_newline(
    seed: int, background: Background
) -> None:
    for line in made(seed, background):
        assert line.endswith("\n")
        assert line.count("\n") == 1
        assert len(line.splitlines()) == 1
        assert line[:-1]
        assert not line[0].isspace()
        line.encode("utf-8")


@given(SEEDS)
def test_plain_lines_hold_no_name_code_or_needle_words_in_capitals(seed: int) -> None:
    for line in made(seed, "plain"):
        assert not re.search(r"[A-Z]{2}", line)
        assert not re.search(r"[A-Za-z]-\d", line)
        assert "CODE" not in line
        assert "<" not in line


@given(SEEDS, BACKGROUNDS)
def test_no_line_is_a_needles_head(seed: int, background: Background) -> None:
    for line in made(seed, background):
        assert "<<<" not in line
        assert not line.startswith("CODE=")


def test_hard_lines_do_resemble_needles() -> None:
    text = "".join(made(0, "hard", 2000))
    assert re.search(r"CODE=[A-Z]{3}-\d{6}", text)
    assert re.search(rf"(?:{'|'.join(NATO_NAMES)})-\d\d", text)
    assert "TARGET" in text
    assert any(ord(char) > 160 for char in text)


@given(SEEDS, BACKGROUNDS)
def test_a_seed_gives_the_same_lines(seed: int, background: Background) -> None:
    assert made(seed, background) == made(seed, background)
    assert made(seed, background) != made(seed + 1, background)


def test_a_document_hardly_repeats_its_lines() -> None:
    many = made(0, "plain", 5000)
    assert len(set(many)) > 4990


def test_names_are_distinct_words_in_capitals() -> None:
    names = NATO_NAMES + OTHER_NAMES
    assert len(set(names)) == len(names)
    assert len(NATO_NAMES) == 26
    assert all(re.fullmatch("[A-Z]+", name) for name in names)


@given(SEEDS, st.integers(0, 12))
def test_digits(seed: int, count: int) -> None:
    assert re.fullmatch(rf"[0-9]{{{count}}}", digits(random.Random(seed), count))
