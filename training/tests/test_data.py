"""Training samples say what their text says, and say it the same way twice."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="training needs the training dependency group")

from harness.questions.needles import LOCAL_CONTROL
from harness.serving.packaged import reference_model
from training.data import ANSWER, BACKGROUND, NUMBER_STEP, START, Packer
from training.episodes import MAX_QUESTIONS, make_episode
from training.gguf_tokenizer import tokenizer_of_gguf
from training.prompts import STYLES, Style, make_prompt

TOKENIZER = tokenizer_of_gguf(reference_model())
PACKER = Packer(TOKENIZER, seed=5, pool_lines=600)
BATCH = PACKER.batch(24, 1024, easy=0.1)


def count(texts):
    return [len(encoding.ids) for encoding in TOKENIZER.encode_batch(list(texts))]


def said(row: int) -> list[int]:
    ids = BATCH.tokens[row]
    return ids[ids != PACKER.pad].tolist()


def text(ids) -> str:
    return TOKENIZER.decode([int(i) for i in ids], skip_special_tokens=False)


@pytest.mark.parametrize("row", range(24))
def test_a_sample_is_tokenised_as_a_server_would(row: int) -> None:
    ids = said(row)
    assert TOKENIZER.encode(text(ids)).ids == ids


@pytest.mark.parametrize("row", range(24))
def test_answer_bits_cover_the_assistants_words_and_nothing_else(row: int) -> None:
    ids = said(row)
    answered = [i for i, flag in zip(ids, BATCH.flags[row], strict=False) if flag & ANSWER]
    parts = text(ids).split("<|im_start|>assistant\n")[1:]
    wanted = "".join(part.split("<|im_end|>")[0] + "<|im_end|>" for part in parts)
    assert text(answered) == wanted


def test_every_supervised_row_points_at_its_question_and_its_code() -> None:
    codes = numbers = 0
    for row in range(24):
        ids = BATCH.tokens[row]
        for query, first, last, code, step in BATCH.aux[row].tolist():
            if query < 0:
                continue
            if step >= NUMBER_STEP:
                assert ids[first] == ids[query + 1]
                assert first == last
                numbers += 1
                continue
            assert text(ids[first : last + 1]).lstrip().startswith(("CODE", "の"))
            assert ids[code] == ids[query + 1]
            line = text(ids[max(0, code - step - 14) : code - step])
            assert line.endswith(" >>>\nCODE=")
            codes += 1
    assert codes > 200
    assert numbers > 40


def test_records_start_where_lines_start_and_needles_are_no_background() -> None:
    for row in range(24):
        ids, flags = BATCH.tokens[row], BATCH.flags[row]
        for at in np.flatnonzero(flags & START):
            assert text(ids[at - 1 : at]).endswith("\n")
        assert "<<<" not in text(ids[(flags & BACKGROUND) > 0])


def test_a_seed_gives_the_same_samples() -> None:
    again = Packer(TOKENIZER, seed=5, pool_lines=600).batch(24, 1024, easy=0.1)
    assert np.array_equal(again.tokens, BATCH.tokens)
    assert np.array_equal(again.aux, BATCH.aux)


@given(st.integers(0, 10**6), st.integers(1, 64))
def test_an_episode_asks_only_what_it_hides(seed: int, most: int) -> None:
    episode = make_episode(random.Random(seed), max_records=most)
    labels = [record.label for record in episode.records]
    assert len(set(labels)) == len(labels) <= most
    hidden = set(episode.records)
    asked = 0
    for turn in episode.turns:
        numbers = [question.number for question in turn.questions]
        assert len(set(numbers)) == len(numbers) >= 1
        hidden |= {
            part for part in turn.parts if not isinstance(part, str) and hasattr(part, "code")
        }
        assert all(question.needle in hidden for question in turn.questions)
        assert all(q.is_control == (q.needle.label == LOCAL_CONTROL) for q in turn.questions)
        asked += len(numbers)
    assert asked <= MAX_QUESTIONS


@pytest.mark.parametrize("style", STYLES)
def test_a_prompt_keeps_its_budget_and_holds_its_answer(style: Style) -> None:
    for seed in range(4):
        prompt = make_prompt(seed, 2048, style, "plain", count)
        assert 1700 < len(TOKENIZER.encode(prompt.chatml).ids) <= 2048
        for line in prompt.expected.split("\n"):
            assert f"CODE={line.split('=')[1]}\n" in prompt.chatml
