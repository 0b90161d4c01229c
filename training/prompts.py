"""Whole prompts for evaluation: the product's own retrieval prompts, and the grammar's breadth."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from harness.questions.background import Background, lines
from harness.questions.haystack import CountTokens, build
from harness.questions.needles import (
    CODE_PREFIXES,
    INSTRUCTIONS,
    MEMORY_TARGET,
    ORDERS,
    CodeSource,
    Language,
    Needle,
    distractors,
    make_ask,
    needle_names,
)
from training.episodes import Episode, Turn, make_episode

Style = Literal["suite", "alike", "grammar", "many"]
STYLES: tuple[Style, ...] = ("suite", "alike", "grammar", "many")
_TAIL_TOKENS = 260


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat without its last answer, and that answer.

    `messages` are (role, text); `order` says how the questions stand (suite only)."""

    messages: tuple[tuple[str, str], ...]
    expected: str
    order: str

    @property
    def chatml(self) -> str:
        """The prompt as the model's chat template renders it, up to where the answer begins."""
        said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in self.messages)
        return said + "<|im_start|>assistant\n"


def make_prompt(
    seed: int, tokens: int, style: Style, background: Background, count_tokens: CountTokens
) -> Prompt:
    """The prompt of that seed with about `tokens` tokens, never more.

    `suite`: five needles and the control as the product asks them, order by `seed` modulo 3,
    Japanese wording every fourth. `alike`: eight questions about the product's own names in
    families (ALPHA, ALPHA-07, ALPHA-70 …) among distractors, up to 64 records, numbers and code
    prefixes of every kind. `grammar`: any episode of `training.episodes`. `many`: the same
    with up to 64 records in the document.
    """
    if style == "suite":
        return _suite(seed, tokens, background, count_tokens)
    rng = random.Random(f"{style}/{seed}/{background}")
    if style == "alike":
        room = min(64, (tokens - 400) // 40)
        return _spread(rng, _alike(rng, room, seed), tokens, background, count_tokens)
    most = max(1, min(64 if style == "many" else 14, (tokens - 400) // 40))
    episode = make_episode(rng, max_records=most)
    while style == "many" and len(episode.records) < min(40, most):
        episode = make_episode(rng, max_records=most)
    return _spread(rng, episode, tokens, background, count_tokens)


def _suite(seed: int, tokens: int, background: Background, count_tokens: CountTokens) -> Prompt:
    rng = random.Random(f"suite/{seed}/{background}")
    codes = CodeSource(rng)
    segment = build(
        [(tokens, tokens - _TAIL_TOKENS)], count_tokens, codes, seed=seed, background=background
    )[0]
    order = ORDERS[seed % 3]
    language: Language = "ja" if seed % 4 == 3 else "en"
    needles = [placed.needle for placed in segment.needles]
    ask = make_ask(needles, codes, order, rng, language=language)
    return Prompt((("user", segment.text + ask.tail),), ask.answer, order)


def _alike(rng: random.Random, records: int, seed: int) -> Episode:
    codes = CodeSource(rng)
    names = needle_names(rng, max(1, records // 2), alike=True)
    needles = [
        Needle(f"{MEMORY_TARGET} {name}", codes.take(rng.choice(CODE_PREFIXES))) for name in names
    ]
    decoys = distractors(rng, needles, codes, records // 2)
    asked = needles if len(needles) < 8 else rng.sample(needles, 8)
    numbers = rng.sample(range(1, 100), len(asked) + 1)
    language: Language = "ja" if seed % 2 else "en"
    ask = make_ask(asked, codes, ORDERS[seed % 3], rng, language=language, numbers=numbers)
    hidden = [*needles, *decoys]
    rng.shuffle(hidden)
    turn = Turn((ask.control, *ask.questions, INSTRUCTIONS[language]))
    return Episode(None, "", tuple(hidden), (turn,))


def _spread(
    rng: random.Random,
    episode: Episode,
    tokens: int,
    background: Background,
    count_tokens: CountTokens,
) -> Prompt:
    texts = [turn.text for turn in episode.turns]
    answers = [turn.answer for turn in episode.turns]
    fixed = sum(count_tokens([record.text for record in episode.records]))
    fixed += sum(count_tokens([*texts, *answers, episode.system or "", episode.heading])) + 60
    document = _lines(rng, background, max(0, tokens - fixed), count_tokens)
    slots = sorted(rng.randint(0, len(document)) for _ in episode.records)
    for slot, record in reversed(list(zip(slots, episode.records, strict=True))):
        document.insert(slot, record.text)
    texts[0] = episode.heading + "".join(document) + texts[0]
    messages = [("system", episode.system)] if episode.system is not None else []
    for text, answer in zip(texts, answers, strict=True):
        messages += [("user", text), ("assistant", answer)]
    return Prompt(tuple(messages[:-1]), answers[-1], "any")


def _lines(
    rng: random.Random, background: Background, room: int, count_tokens: CountTokens
) -> list[str]:
    source = lines(rng, background)
    found: list[str] = []
    while True:
        block = list(islice(source, 512))
        sizes: Sequence[int] = count_tokens(block)
        for text, size in zip(block, sizes, strict=True):
            if size > room:
                return found
            found.append(text)
            room -= size
