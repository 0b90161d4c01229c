"""The reference model as a gauge: right when serving is right, wrong when it is damaged."""

from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="training needs the training dependency group")

from harness.serving.packaged import reference_model
from training.damage import damage
from training.evaluate import ask, serving
from training.gguf_tokenizer import tokenizer_of_gguf
from training.prompts import Prompt, make_prompt

TOKENIZER = tokenizer_of_gguf(reference_model())
LENGTH = 1536


def count(texts):
    return [len(encoding.ids) for encoding in TOKENIZER.encode_batch(list(texts))]


def prompts() -> list[Prompt]:
    """Forward, reversed and shuffled; the last one in Japanese wording."""
    return [make_prompt(seed, LENGTH, "suite", "plain", count) for seed in (12, 10, 11)]


def lines_right(model: Path, *flags: str) -> int:
    """Of 18 answer lines."""
    with serving("embedded", model, LENGTH + 512, flags) as url:
        rows = [ask(url, prompt) for prompt in prompts()]
    return sum(row["lines_right"] for row in rows if "error" not in row)


def test_every_order_is_answered_exactly_and_again_in_the_same_chat() -> None:
    with serving("embedded", reference_model(), LENGTH + 512, ()) as url:
        for prompt in prompts():
            row = ask(url, prompt)
            assert row["exact"], row
        first = prompts()[0]
        asked = first.messages[0][1].split("<<< LOCAL CONTROL >>>")[1]
        again = Prompt(
            (
                ("system", "Answer exactly."),
                *first.messages,
                ("assistant", first.expected),
                ("user", "<<< LOCAL CONTROL >>>" + asked),
            ),
            first.expected,
            first.order,
        )
        row = ask(url, again)
        assert row["exact"], row


def test_lossless_changes_change_nothing() -> None:
    flags = ("-ub", "64", "-b", "256", "-t", "1", "-ctk", "q8_0", "-ctv", "q8_0")
    assert lines_right(reference_model(), *flags) == 18


@pytest.mark.parametrize(("kind", "amount"), [("rope", 1e12), ("keys", 3.0)])
def test_damage_shows(kind, amount: float, tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    damage(reference_model(), path, kind, amount, layer=1)
    assert lines_right(path) < 12
