"""Questions about any document on one server: read ahead, asked warm or cold, scored and recorded.

Every answer is recorded as it came. One that only its token budget cut is asked for once more with
a larger one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.measuring.recorded import ask_record, diagnose
from harness.measuring.refusals import refuse_cut_question, refuse_reuse, refuse_truncation
from harness.measuring.sitting import Sitting
from harness.questions.failures import Diagnosis, ForeignOrigin
from harness.questions.haystack import CountTokens, Placed, Segment, grow
from harness.questions.needles import Ask, Needle
from harness.records.lines import AskRecord, ProbeAsk
from harness.serving.wire import Exchange


@dataclass(frozen=True, slots=True)
class Answered:
    """One scored answer within a budget: request, record and diagnosis."""

    exchange: Exchange
    record: AskRecord
    diagnosis: Diagnosis
    budget_tokens: int

    @property
    def right(self) -> bool:
        """Whether everything in it is right, the control included."""
        return self.diagnosis.kind == "right"

    def class_of(self, ask: Ask, needle: Needle) -> str:
        """The class of the answer about one needle."""
        number = next(q.number for q in ask.questions if q.needle is needle)
        return next(f.kind for f in self.diagnosis.findings if f.number == number)


FACTOR = 4
"""How much larger the second budget is; there is no third."""


def put(
    sitting: Sitting,
    draw: Callable[[], Ask],
    document: str,
    document_tokens: int,
    foreign_codes: Callable[[Ask], Mapping[str, ForeignOrigin]],
    *,
    depth: int,
    reuse: bool,
) -> Iterator[Answered]:
    """Ask about a document; a second time, with a larger budget, where only that cut the answer.

    Each time the question is `draw`n. The first of two records is `superseded`.

    Raises:
        ServerError: the server cut the prompt, or reused something in a cold request.
    """
    script, n_ctx = sitting.script, sitting.session.identity.n_ctx
    first = budget = sitting.settings.answer_tokens
    while True:
        sitting.session.check_alive("waiting for the next request")
        ask = draw()
        exchange = script.chat(document + ask.tail, max_tokens=budget, reuse=reuse)
        tail_tokens = script.tail_tokens(ask)
        prompt_tokens = document_tokens + script.head_tokens + tail_tokens
        if script.native:
            refuse_cut_question(depth, exchange, prompt_tokens)
        planned, foreign = tail_tokens if reuse else prompt_tokens, foreign_codes(ask)
        diagnosed = diagnose(ask, exchange, foreign)
        record = ask_record(ask, exchange, planned, diagnosed, origin_ns=sitting.origin_ns)
        larger = larger_budget(record, budget, n_ctx) if budget == first else None
        record = record.model_copy(update={"superseded": larger is not None})
        yield Answered(exchange, record, diagnosed[1], budget)
        if larger is None:
            return
        budget = larger


def larger_budget(record: AskRecord, budget_tokens: int, n_ctx: int | None) -> int | None:
    """The budget, in tokens, to ask again with; `None` when asking again would tell nothing new.

    Only an answer whose sole fault is its budget is asked again: every other wrong answer counts as
    it is. `n_ctx` is the server's context, which prompt and answer share.
    """
    if record.invalid != ("budget",):
        return None
    larger = FACTOR * budget_tokens
    if n_ctx is not None and record.prompt_tokens is not None:
        larger = min(larger, n_ctx - record.prompt_tokens)
    return larger if larger > budget_tokens else None


@dataclass(slots=True)
class Spent:
    """Prompt tokens the server read anew, by its own counts."""

    document_tokens: int = 0
    question_tokens: int = 0
    cold_tokens: int = 0


class Interview:
    """One probe's talk with the server of a run. Native llama-servers only."""

    def __init__(
        self, sitting: Sitting, probe: Literal["heatmap", "fuzz", "harder", "family"]
    ) -> None:
        self.sitting = sitting
        self._probe = probe
        self._here: set[str] = set()
        self._earlier: set[str] = set()
        self.spent = Spent()

    def begin_document(self, needles: Iterable[Needle]) -> None:
        """Say which needles the document now holds; those of another become earlier requests'."""
        codes = {needle.code for needle in needles}
        self._earlier |= self._here - codes
        self._here = codes

    def grow(
        self,
        budgets: Sequence[tuple[int, int]],
        planned: Mapping[int, Sequence[Placed]],
        distractors: Sequence[Placed] = (),
        *,
        count: CountTokens | None = None,
    ) -> list[Segment]:
        """The probe's own document, by the run's seed and background."""
        settings = self.sitting.settings
        return grow(
            budgets,
            planned,
            count or self.sitting.script.count,
            seed=settings.seed,
            background=settings.background,
            distractors=distractors,
        )

    def read(self, document: str, document_tokens: int, *, reuse: bool) -> None:
        """Read a document that ends at a newline ahead of its questions.

        Raises:
            ServerError: the server cut it, or reused something it should not.
        """
        self.sitting.session.check_alive("waiting for the next request")
        exchange = self.sitting.session.client.prefill(
            self.sitting.script.head + document, reuse=reuse
        )
        counted = (exchange.new_tokens or 0) + (exchange.reused_tokens or 0)
        refuse_truncation(
            document_tokens, counted, document_tokens + self.sitting.script.head_tokens
        )
        if not reuse:
            refuse_reuse(exchange)
        self.spent.document_tokens += exchange.new_tokens or 0

    def ask(self, document: str, document_tokens: int, ask: Ask, *, cold: bool = False) -> Answered:
        """Ask, reusing what was read unless `cold`; again with a larger budget where that cut it.

        Raises:
            ServerError: the server cut the prompt, or reused something in a cold request.
        """
        foreign = self._foreign(ask)
        self._earlier.add(ask.control.code)
        for answered in put(
            self.sitting,
            lambda: ask,
            document,
            document_tokens,
            lambda _: foreign,
            depth=document_tokens,
            reuse=not cold,
        ):
            new_tokens = answered.exchange.new_tokens or 0
            if cold:
                self.spent.cold_tokens += new_tokens
            else:
                self.spent.question_tokens += new_tokens
            line = answered.record
            self.sitting.append(
                ProbeAsk(probe=self._probe, document_tokens=document_tokens, cold=cold, ask=line)
            )
        return answered

    def say(self, text: str, max_tokens: int, *, cold: bool) -> str:
        """What is answered to a message that is read otherwise than by question and code."""
        self.sitting.session.check_alive("waiting for the next request")
        exchange = self.sitting.script.chat(text, max_tokens=max_tokens, reuse=not cold)
        if cold:
            self.spent.cold_tokens += exchange.new_tokens or 0
        else:
            self.spent.question_tokens += exchange.new_tokens or 0
        return exchange.content

    def _foreign(self, ask: Ask) -> Mapping[str, ForeignOrigin]:
        """Codes this request does not ask for, and whose they are."""
        foreign: dict[str, ForeignOrigin] = {}
        foreign |= dict.fromkeys(self.sitting.script.foreign_codes(ask), "earlier_request")
        foreign |= dict.fromkeys(self._earlier, "earlier_request")
        foreign |= dict.fromkeys(self._here, "unasked_needle")
        return {c: origin for c, origin in foreign.items() if c not in ask.expected.values()}
