"""The tokenizer: byte-complete byte-pair encoding whose digits are never merged."""

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.questions.background import NATO_NAMES, OTHER_NAMES, lines
from harness.questions.needles import (
    CODE_PREFIXES,
    DISTRACTOR_KINDS,
    LANGUAGES,
    LOCAL_CONTROL,
    MEMORY_TARGET,
    Needle,
    Question,
)
from training import wording

IM_START, IM_END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
SPECIAL: tuple[str, ...] = (IM_START, IM_END, PAD)
VOCABULARY = 1024
_REPEAT = 150


def _corpus(seed: int, count: int) -> Iterator[str]:
    rng = random.Random(f"tokenizer/{seed}")
    yield from islice(lines(rng, "plain"), count)
    yield from islice(lines(rng, "hard"), count // 2)
    names = [*NATO_NAMES * 5, *OTHER_NAMES]
    for language in LANGUAGES:
        for name in names:
            for kind in (MEMORY_TARGET, *DISTRACTOR_KINDS, LOCAL_CONTROL):
                for prefix in ("CTL", *CODE_PREFIXES):
                    needle = Needle(f"{kind} {name}", f"{prefix}-")
                    yield needle.text
                    yield Question(1, needle, language=language).text
        for text in wording.instructions(language):
            yield from [text + "\n"] * _REPEAT
    fixed = (
        *wording.HEADINGS,
        *wording.QUESTION_HEADINGS,
        *wording.AGAIN,
        *wording.SYSTEM_MESSAGES,
        "user",
        "assistant",
        "system",
    )
    for text in fixed:
        yield from [text + "\n"] * _REPEAT


def build_tokenizer(seed: int = 7, count: int = 30_000) -> Tokenizer:
    """Train the tokenizer on the grammar's own text. The same seed gives the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits_apart = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits_apart, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(seed, count), trainer)
    # Digits were never merged, so GPT-2's own splitting gives the same tokens; llama.cpp has it.
    tokenizer.pre_tokenizer = byte_level
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer kept at `path`, built and kept there first if it does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        build_tokenizer().save(str(path))
    return Tokenizer.from_file(str(path))


def vocabulary(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Tokens in order of their ids, and the merges as `left right`."""
    model = json.loads(tokenizer.to_str())["model"]
    ids = tokenizer.get_vocab(with_added_tokens=True)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return sorted(ids, key=ids.__getitem__), merges
