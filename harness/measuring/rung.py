"""The requests of a rung and what they yield: reading, asking, generating, memory, disturbance."""

import secrets
import time
from typing import Any, TypeVar

from harness.llamacpp.forecast import GENERATION_S
from harness.measuring.asking import Answered, put
from harness.measuring.budget import Budget
from harness.measuring.fidelity import look
from harness.measuring.prefill import PrefillProgress, cliff_sentence
from harness.measuring.recorded import generation_record
from harness.measuring.refusals import refuse_cut_estimate, refuse_reuse
from harness.measuring.sitting import Sitting
from harness.questions.needles import Ask, Order
from harness.records import samples as cells
from harness.records.fidelity import Numbers
from harness.records.lines import (
    CURVE,
    AskRecord,
    Failure,
    Generation,
    MemorySample,
    Prefill,
    Rung,
    Timed,
)
from harness.serving.log import newest_lines
from harness.serving.wire import Exchange

TimedSample = TypeVar("TimedSample", bound=Timed)


_LISTS = tuple(name for name, field in Rung.model_fields.items() if field.default == ())
"""What of a rung is a list, and grows while it is measured."""


class RungDraft:
    """What has been measured of a rung so far, and the prompt its generation repeats send."""

    def __init__(self, depth: int, document_tokens: int, sitting: int = 1) -> None:
        self.depth = depth
        self.sitting = sitting
        self.document_tokens = document_tokens
        self.prefills: list[Prefill] = []
        self.asks: list[AskRecord] = []
        self.generations: list[Generation] = []
        self.memory: list[MemorySample] = []
        self.numbers: list[Numbers] = []
        self.cold_ttft_ms: float | None = None
        self.notes: list[str] = []
        self.log_counts: dict[str, int] = {}
        self.failure: Failure | None = None
        self.last_text = ""
        self.climb_ms = 0.0
        self._started_s = time.perf_counter()

    @classmethod
    def again(cls, rung: Rung) -> "RungDraft":
        """A finished rung, to be added to."""
        draft = cls(rung.depth, rung.document_tokens, rung.sitting)
        for name in _LISTS:
            setattr(draft, name, list(getattr(rung, name)))
        draft.cold_ttft_ms, draft.log_counts = rung.cold_ttft_ms, dict(rung.log_counts)
        draft._started_s -= rung.elapsed_s
        return draft

    @property
    def fast(self) -> bool:
        """Whether the server answered this rung's questions faster than `FAST_TOK_S`."""
        return any(
            a.predicted_ms and (a.predicted_tokens or 0) / a.predicted_ms * 1e3 > FAST_TOK_S
            for a in self.asks
        )

    def rung(self) -> Rung:
        """The record of what has been measured so far."""
        lists: dict[str, Any] = {name: tuple(getattr(self, name)) for name in _LISTS}
        return Rung(
            **lists,
            depth=self.depth,
            sitting=self.sitting,
            document_tokens=self.document_tokens,
            cold_ttft_ms=self.cold_ttft_ms,
            log_counts=self.log_counts,
            failure=self.failure,
            elapsed_s=self.elapsed_s,
        )

    @property
    def elapsed_s(self) -> float:
        """How long it has been measured, s."""
        return time.perf_counter() - self._started_s

    def needs_repeat(self, repeats: int, max_repeats: int) -> bool:
        """Whether to generate once more: up to `repeats`, or for `GENERATION_S` in all."""
        done = len(self.generations)
        if done < repeats:
            return True
        took_s = sum((g.server_ms or g.wall_ms) for g in self.generations) / 1e3
        return done < max_repeats and took_s < GENERATION_S


class Meter:
    """Measures one rung after another on one server.

    `prefilled_tokens` and `generated_tokens` count what the server did for it.
    """

    def __init__(self, sitting: Sitting, budget: Budget, *, prefilled_tokens: int) -> None:
        self._sitting = sitting
        self._script = sitting.script
        self._budget = budget
        self.prefilled_tokens = prefilled_tokens
        self.generated_tokens = 0

    def prefill(self, depth: int, *, reuse: bool, climbing: bool = False) -> Exchange:
        """Read the document of the rung at `depth`, cold unless `reuse`; cliffs go on the record.

        Raises:
            OverBudgetError: the rest of it, while `climbing`, would not fit the budget.
            ServerError: it failed, or reused what it should have read.
        """
        self._sitting.session.check_alive("waiting for the next request")
        progress = PrefillProgress(
            depth,
            self._budget,
            self._sitting.reporter,
            lambda: newest_lines(self._sitting.session.running),
            self._keep_curve,
            climbing=climbing,
        )
        try:
            with self._sitting.alone():
                exchange = self._sitting.session.client.prefill(
                    self._script.head + self._script.document(depth),
                    reuse=reuse,
                    on_progress=progress,
                )
        finally:
            for cliff, lines in progress.cliffs:
                self._sitting.event(
                    "cliff",
                    cliff_sentence(cliff),
                    at_tokens=cliff.at_tokens,
                    chunks=cliff.chunks,
                    log_lines=lines,
                )
        self.prefilled_tokens += exchange.new_tokens or 0
        if not reuse:
            refuse_reuse(exchange)
        return exchange

    def read_unmet(self, draft: RungDraft) -> None:
        """In reduced mode: read the rung's document behind a line that no request ever had.

        A server that keeps prompts cannot have kept this one, whatever it met in earlier runs.

        Raises:
            ServerError: it failed, or read much less than it was sent.
        """
        text = f"Log {secrets.token_hex(16)}.\n{self._script.document(draft.depth)}Continue."
        exchange = self._script.chat(text, max_tokens=1, reuse=False)
        ttft_ms, read = exchange.first_token_ms, exchange.prompt_tokens
        if ttft_ms is None or not read:
            draft.notes.append("no cold reading: the server sent no token or counted no prompt")
            return
        refuse_cut_estimate(draft.depth, read, draft.document_tokens)
        self.prefilled_tokens += read
        reading = self._sitting.reading(exchange, "cold_repeat").model_copy(
            update={"new_tokens": read, "server_ms": None, "wall_ms": ttft_ms, "chunks": ()}
        )
        draft.prefills.append(reading)
        draft.cold_ttft_ms = ttft_ms

    def ask(self, draft: RungDraft, order: Order) -> None:
        """Ask once; again, with a new control, where only the token budget cut the answer."""
        document = self._script.document(draft.depth)

        def draw() -> Ask:
            ask = self._script.ask(draft.depth, order)
            draft.last_text = document + ask.tail
            return ask

        answers = put(
            self._sitting,
            draw,
            document,
            draft.document_tokens,
            self._script.foreign_codes,
            depth=draft.depth,
            reuse=True,
        )
        with self._sitting.alone():
            for answered in answers:
                self._keep_answer(draft, answered)

    def _keep_answer(self, draft: RungDraft, answered: Answered) -> None:
        record = answered.record
        self.prefilled_tokens += record.new_tokens or 0
        self.generated_tokens += record.predicted_tokens or 0
        if self._script.native and not draft.asks and record.ttft_ms is not None:
            draft.cold_ttft_ms = draft.climb_ms + record.ttft_ms
        if draft.asks and draft.asks[-1].superseded:
            first = self._sitting.settings.answer_tokens
            draft.notes.append(
                f"an answer was cut at {first} tokens; the question was asked again with "
                f"{answered.budget_tokens}"
            )
        draft.asks.append(record)
        self.sample_memory(draft)
        if self._script.native and not cells.warm(record):
            changed = self._script.renewed()
            draft.notes.append(
                f"a question re-read {record.new_tokens} tokens instead of "
                f"{record.planned_new_tokens}; its TTFT is not counted as warm"
                + (f"; {changed}" if changed else "")
            )

    def visit_again(self, rung: Rung, generations: int) -> RungDraft:
        """Read a finished rung once more, cold, and generate behind it: later samples beside early
        ones, so that what moved meanwhile widens its interval.

        Memory is not looked at: it holds what deeper rungs have left.
        """
        draft = RungDraft.again(rung)
        draft.prefills.append(
            self._sitting.reading(self.prefill(rung.depth, reuse=False), "cold_repeat")
        )
        ask = self._script.ask(rung.depth, "forward")
        draft.last_text = self._script.document(rung.depth) + ask.tail
        for _ in range(generations):
            self.generate(draft, memory=False)
        self.look(draft)
        self.mark_disturbed(draft)
        return draft

    def generate(self, draft: RungDraft, *, memory: bool = True) -> None:
        """One generation repeat behind the rung's last question, and a look at the `memory`."""
        self._sitting.session.check_alive("waiting for the next request")
        with self._sitting.alone():
            exchange = self._script.chat(
                draft.last_text,
                max_tokens=self._sitting.settings.generate_tokens,
                reuse=True,
                ignore_eos=True,
                pause_s=self._sitting.watcher.rest_s if draft.fast else 0.0,
            )
        self.prefilled_tokens += exchange.new_tokens or 0
        record = generation_record(exchange, origin_ns=self._sitting.origin_ns)
        draft.generations.append(record)
        self.generated_tokens += record.predicted_tokens
        if memory:
            self.sample_memory(draft)

    def look(self, draft: RungDraft) -> None:
        """Look at the numbers behind the document that is in the KV cache."""
        if draft.numbers and draft.numbers[0].missing:
            return
        rates_s = [
            (g.server_ms or g.wall_ms) / g.predicted_tokens / 1e3
            for g in draft.generations
            if g.predicted_tokens
        ]
        token_s = min(rates_s, default=1.0) or 1.0
        found = look(self._sitting, draft.depth, draft.elapsed_s, token_s)
        draft.numbers.append(found)
        self.prefilled_tokens += found.new_tokens
        self.generated_tokens += sum(map(len, found.steps))
        if found.missing:
            draft.notes.append(f"no numbers to compare: {found.missing}")

    def sample_memory(self, draft: RungDraft) -> None:
        """The server's memory now, with what it has generated until now."""
        sample = self._sitting.memory.sample()
        draft.memory.append(sample.model_copy(update={"generated_tokens": self.generated_tokens}))

    def mark_disturbed(self, draft: RungDraft) -> None:
        """Say on each sample who disturbed it, once readings cover the newest one."""
        self._sitting.watcher.settle()
        draft.prefills = [self._disturbed(x) for x in draft.prefills]
        draft.asks = [self._disturbed(x) for x in draft.asks]
        draft.generations = [self._disturbed(x) for x in draft.generations]

    def _disturbed(self, sample: TimedSample) -> TimedSample:
        if sample.start_s is None or sample.end_s is None:
            return sample
        start_ns, end_ns = (
            self._sitting.origin_ns + round(s * 1e9) for s in (sample.start_s, sample.end_s)
        )
        found = self._sitting.others.during(start_ns, end_ns)
        found = found or self._sitting.watcher.contention(start_ns, end_ns)
        gpu = self._sitting.watcher.gpu_at(start_ns, end_ns)
        return sample.model_copy(update={"contention": found, "gpu": gpu})

    def _keep_curve(self, depth: int, points: list[tuple[int, float]]) -> None:
        self._sitting.event(CURVE, "", depth=depth, sitting=self._sitting.number, points=points)


FAST_TOK_S = 200.0
