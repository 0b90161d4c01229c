"""The prompts of a run: the growing document, its questions, and how the template wraps them."""

import random
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from harness.errors import ServerError
from harness.measuring.refusals import refuse_reuse
from harness.questions.background import lines
from harness.questions.failures import ForeignOrigin
from harness.questions.haystack import Segment, grow, plan_distractors, plan_ladder
from harness.questions.needles import (
    GRAMMAR_VERSION,
    Ask,
    CodeSource,
    Needle,
    Order,
    make_ask,
    needle_names,
)
from harness.records.lines import AskRecord, Plan
from harness.serving.wire import Exchange
from harness.settings import Settings

if TYPE_CHECKING:
    from harness.serving.client import Client

_TAIL_MARGIN_TOKENS = 4
_PLACEHOLDER = "The document goes here.\n"


class Script:
    """The prompts of a run: the growing document, the questions, how the template wraps them."""

    def __init__(self, client: "Client", settings: Settings, *, native: bool) -> None:
        self._client = client
        self._rng = random.Random(f"asks/{settings.seed}")
        self.codes = CodeSource(random.Random(f"codes/{settings.seed}"))
        self.native = native
        self._controls: list[str] = []
        self._tokens_per_char = None if native else _tokens_per_character(client)
        sample = _sample_ask()
        self.head, self.end = self._wrapping(sample) if native else ("", "")
        self.head_tokens = self._client.token_total(self.head) if self.head else 0
        self.plan = make_plan(
            ctx_tokens=settings.ctx_tokens,
            depths=settings.rung_depths,
            fill=settings.fill,
            tail_tokens=self.tail_tokens(sample) + _TAIL_MARGIN_TOKENS,
            head_tokens=self.head_tokens,
            seed=settings.seed,
            background=settings.background,
            generate_tokens=settings.generate_tokens,
            repeats=settings.repeats,
        ).model_copy(update={"distractors": settings.distractors})
        budgets = list(zip(self.plan.depths, self.plan.document_tokens, strict=True))
        planned = plan_ladder(budgets, self.codes, seed=settings.seed)
        self._decoys = plan_distractors(
            budgets, planned, self.codes, per_rung=settings.distractors, seed=settings.seed
        )
        self.segments: list[Segment] = grow(
            budgets,
            planned,
            self.count,
            seed=settings.seed,
            background=settings.background,
            distractors=self._decoys,
        )

    def _wrapping(self, sample: Ask) -> tuple[str, str]:
        """What the chat template puts before and after a message."""
        rendered = self._client.templated(_PLACEHOLDER + sample.tail)
        head, found, rest = rendered.partition(_PLACEHOLDER)
        if not found or not rest.startswith(sample.tail):
            raise ServerError(
                "the model's chat template changes the text of a message, so a document cannot be "
                "read ahead of its questions; give the server another --chat-template",
                cause="SETUP",
            )
        return head, rest.removeprefix(sample.tail)

    def renewed(self) -> str | None:
        """Have the template wrap a message again; a sentence where it does so in other words now.

        Some templates write today's date: what was read before midnight is not reused after it.
        """
        before = self.head + self.end
        self.head, self.end = self._wrapping(_sample_ask())
        after = self.head + self.end
        if after == before:
            return None
        self.head_tokens = self._client.token_total(self.head)
        pairs = zip_longest(before.split("\n"), after.split("\n"), fillvalue="")
        then, now = next((a[:80], b[:80]) for a, b in pairs if a != b)
        return (
            f"the chat template wrote {then!r} at first and writes {now!r} now (a date?), so that "
            "the document was read anew: that is not the server's doing"
        )

    def tail_tokens(self, ask: Ask) -> int:
        """Tokens of the questions and of what the template puts after them."""
        if self._tokens_per_char is not None:
            return self.count([ask.tail])[0]
        return self._client.token_total(ask.tail + self.end)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Token counts by the server's tokenizer (estimated from characters in reduced mode)."""
        if self._tokens_per_char is None:
            return self._client.count_tokens(texts)
        return [max(1, round(len(t) * self._tokens_per_char)) for t in texts]

    def document(self, depth: int) -> str:
        """The document up to and with the rung `depth`."""
        return "".join(s.text for s in self.segments if s.depth <= depth)

    def segment(self, depth: int) -> Segment:
        """The rung's own segment."""
        return next(s for s in self.segments if s.depth == depth)

    def ask(self, depth: int, order: Order) -> Ask:
        """New questions (with a new local control) about the rung's needles."""
        needles = [placed.needle for placed in self.segment(depth).needles]
        ask = make_ask(needles, self.codes, order, self._rng)
        self._controls.append(ask.control.code)
        return ask

    def fixed_ask(self, depth: int) -> Ask:
        """The questions of `ask` with the same control at every run of this seed."""
        codes = CodeSource(rng := random.Random(f"fidelity/{self.plan.seed}/{depth}"))
        ask = make_ask([p.needle for p in self.segment(depth).needles], codes, "forward", rng)
        self._controls.append(ask.control.code)
        return ask

    def go_on(self, sitting: int, asked: Iterable[AskRecord]) -> None:
        """Draw other controls and orders than earlier sittings, whose controls count as foreign."""
        seed = f"{self.plan.seed}/sitting {sitting}"
        self._rng = random.Random(f"asks/{seed}")
        controls = [a.expected[a.control_number] for a in asked if a.control_number is not None]
        self._controls += controls
        self.codes.go_on(random.Random(f"codes/{seed}"), controls)

    def foreign_codes(self, ask: Ask) -> dict[str, ForeignOrigin]:
        """Codes `ask` does not ask for: other rungs' needles and earlier requests' controls."""
        foreign: dict[str, ForeignOrigin] = {
            placed.needle.code: "unasked_needle"
            for placed in (*(p for s in self.segments for p in s.needles), *self._decoys)
        }
        foreign |= dict.fromkeys(self._controls, "earlier_request")
        return {
            code: origin for code, origin in foreign.items() if code not in ask.expected.values()
        }

    def chat(
        self,
        text: str,
        *,
        max_tokens: int,
        reuse: bool,
        ignore_eos: bool = False,
        pause_s: float = 0.0,
    ) -> Exchange:
        """One chat request as this server takes it, cold unless `reuse`.

        Raises:
            ServerError: it failed, or a llama-server reused something in a cold request.
        """
        exchange = self._client.chat(
            text,
            max_tokens=max_tokens,
            reuse=reuse,
            ignore_eos=ignore_eos,
            native=self.native,
            pause_s=pause_s,
        )
        if self.native and not reuse:
            refuse_reuse(exchange)
        return exchange

    def filler(self, name: str, tokens: int) -> str:
        """About `tokens` tokens of plain background, the same for every run."""
        source = lines(random.Random(f"filler/{name}"), "plain")
        text, total = [], 0
        while total < tokens:
            block = [next(source) for _ in range(8)]
            text += block
            total += sum(self.count(block))
        return "".join(text) + "Continue this log."


def _sample_ask() -> Ask:
    """An ask of the usual size, for measuring; it is never sent."""
    rng = random.Random(0)
    codes = CodeSource(rng)
    needles = [Needle(f"MEMORY TARGET {name}", codes.take("MEM")) for name in needle_names(rng, 5)]
    return make_ask(needles, codes, "forward", rng)


def _tokens_per_character(client: "Client") -> float:
    source = lines(random.Random("calibration"), "plain")
    text = "".join(next(source) for _ in range(40))
    exchange = client.chat(text, max_tokens=1, reuse=False, native=False)
    if not exchange.prompt_tokens:
        raise ServerError(
            "the server reports no usage counts, so prompts of a known size cannot be made; use a "
            "server that answers stream_options.include_usage",
            cause="SETUP",
        )
    return exchange.prompt_tokens / len(text)


TOTAL_BUDGET = 1.1
"""All prefilled tokens of a run stay within this multiple of the context."""


TAIL_ALLOWANCE_TOKENS = 1600
"""Set aside of that budget for warm-up, controls and what questions re-read, per rung a share."""


MAX_COLD_REPEATS = 3


def make_plan(
    *,
    ctx_tokens: int,
    depths: Sequence[int],
    fill: float,
    tail_tokens: int,
    head_tokens: int,
    seed: int,
    background: str,
    generate_tokens: int,
    repeats: int,
) -> Plan:
    """Token budgets of every rung's document and how often short rungs are read again, cold.

    A rung's whole prompt (template head, document, questions) is `fill` of its depth. The
    shallow rungs take fractions of a second, too short for one reading to be believed, so they are
    read again while the run stays within `TOTAL_BUDGET` x context.
    """
    documents = tuple(round(fill * depth) - tail_tokens - head_tokens for depth in depths)
    spare = (
        TOTAL_BUDGET * ctx_tokens
        - (documents[-1] + head_tokens)
        - TAIL_ALLOWANCE_TOKENS
        - len(depths) * 6 * (tail_tokens + 8)
    )
    cold: dict[int, int] = {}
    for depth, document in zip(depths[:-1], documents[:-1], strict=True):
        while cold.get(depth, 0) < MAX_COLD_REPEATS and document + head_tokens <= spare:
            cold[depth] = cold.get(depth, 0) + 1
            spare -= document + head_tokens
    return Plan(
        ctx_tokens=ctx_tokens,
        depths=tuple(depths),
        document_tokens=documents,
        fill=fill,
        seed=seed,
        background="hard" if background == "hard" else "plain",
        grammar_version=GRAMMAR_VERSION,
        generate_tokens=generate_tokens,
        repeats=repeats,
        cold_repeats=cold,
    )
