"""Questions about any document on one server: read ahead, asked warm or cold, scored and recorded.

Every answer is recorded as it came. One that only its token budget cut is asked for once more with
a larger one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.measuring.recorded import ask_record, diagnose
from harness.measuring.refusals import refuse_cut_question, refuse_reuse, refuse_truncation
from harness.measuring.script import Script
from harness.questions.failures import Diagnosis, ForeignOrigin
from harness.questions.needles import Ask, Needle
from harness.records.lines import AskRecord, ProbeAsk
from harness.serving.session import Session
from harness.settings import Settings


@dataclass(frozen=True, slots=True)
class Answered:
    """One scored answer: its record and its diagnosis."""

    record: AskRecord
    diagnosis: Diagnosis

    @property
    def right(self) -> bool:
        """Whether everything in it is right, the control included."""
        return self.diagnosis.kind == "right"

    def class_of(self, ask: Ask, needle: Needle) -> str:
        """The class of the answer about one needle."""
        number = next(q.number for q in ask.questions if q.needle is needle)
        return next(f.kind for f in self.diagnosis.findings if f.number == number)


@dataclass(slots=True)
class Spent:
    """Prompt tokens the server read anew, by its own counts."""

    document_tokens: int = 0
    question_tokens: int = 0
    cold_tokens: int = 0


class Interview:
    """One probe's talk with the server of a run. Native llama-servers only."""

    def __init__(
        self,
        session: Session,
        script: Script,
        settings: Settings,
        record: Callable[[ProbeAsk], None],
        *,
        probe: Literal["heatmap", "fuzz", "harder"],
        origin_ns: int,
    ) -> None:
        self._session = session
        self._script = script
        self._settings = settings
        self._record = record
        self._probe = probe
        self._origin_ns = origin_ns
        self._here: set[str] = set()
        self._earlier: set[str] = set()
        self.spent = Spent()

    def begin_document(self, needles: Iterable[Needle]) -> None:
        """Say which needles the document now holds; those of another become earlier requests'."""
        codes = {needle.code for needle in needles}
        self._earlier |= self._here - codes
        self._here = codes

    def read(self, document: str, document_tokens: int, *, reuse: bool) -> None:
        """Read a document that ends at a newline ahead of its questions.

        Raises:
            ServerError: the server cut it, or reused something it should not.
        """
        self._session.check_alive("waiting for the next request")
        exchange = self._session.client.prefill(self._script.head + document, reuse=reuse)
        counted = (exchange.new_tokens or 0) + (exchange.reused_tokens or 0)
        refuse_truncation(document_tokens, counted, document_tokens + self._script.head_tokens)
        if not reuse:
            refuse_reuse(exchange)
        self.spent.document_tokens += exchange.new_tokens or 0

    def ask(self, document: str, document_tokens: int, ask: Ask, *, cold: bool = False) -> Answered:
        """Ask, reusing what was read unless `cold`; again with a larger budget where that cut it.

        Raises:
            ServerError: the server cut the prompt, or reused something in a cold request.
        """
        tail_tokens = self._script.tail_tokens(ask)
        foreign = self._foreign(ask)
        self._earlier.add(ask.control.code)
        budget: int | None = self._settings.answer_tokens
        while budget is not None:
            self._session.check_alive("waiting for the next request")
            exchange = self._session.client.chat(
                document + ask.tail, max_tokens=budget, reuse=not cold
            )
            if cold:
                refuse_reuse(exchange)
                self.spent.cold_tokens += exchange.new_tokens or 0
            else:
                self.spent.question_tokens += exchange.new_tokens or 0
            prompt_tokens = document_tokens + self._script.head_tokens + tail_tokens
            refuse_cut_question(document_tokens, exchange, prompt_tokens)
            planned = prompt_tokens if cold else tail_tokens
            record = ask_record(ask, exchange, planned, foreign=foreign, origin_ns=self._origin_ns)
            first = budget == self._settings.answer_tokens
            larger = larger_budget(record, budget, self._session.identity.n_ctx) if first else None
            record = record.model_copy(update={"superseded": larger is not None})
            self._record(
                ProbeAsk(probe=self._probe, document_tokens=document_tokens, cold=cold, ask=record)
            )
            budget = larger
        return Answered(record, diagnose(ask, exchange, foreign)[1])

    def _foreign(self, ask: Ask) -> Mapping[str, ForeignOrigin]:
        """Codes this request does not ask for, and whose they are."""
        foreign: dict[str, ForeignOrigin] = {}
        foreign |= dict.fromkeys(self._script.foreign_codes(ask), "earlier_request")
        foreign |= dict.fromkeys(self._earlier, "earlier_request")
        foreign |= dict.fromkeys(self._here, "unasked_needle")
        return {c: origin for c, origin in foreign.items() if c not in ask.expected.values()}


FACTOR = 4
"""How much larger the second budget is; there is no third."""


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
