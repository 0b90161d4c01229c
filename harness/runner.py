"""Drives a plan through one server: controls, cold repeats, the climb, questions, generation.

One climb serves every rung: the document grows, each rung's new part is read by itself
(`n_predict` 0, so that models with recurrent state leave a checkpoint exactly there), then the
questions are asked with the document reused. What was reused is checked against what should have
been; a rung that was not reused as planned is read again cold, and that is said.
"""

import time
from datetime import datetime
from typing import TypeVar

from harness import outlook
from harness.budget import Budget
from harness.controls import REST_S, Controls
from harness.core import cells
from harness.core.answer_budget import larger_budget
from harness.core.needles import ORDERS, Order
from harness.core.records import (
    CURVE,
    AskRecord,
    Event,
    Failure,
    Footer,
    Plan,
    Prefill,
    Rung,
    Timed,
)
from harness.core.sittings import climb_ms
from harness.counts import (
    refuse_cut_question,
    refuse_impossible_reuse,
    refuse_reuse,
    refuse_truncation,
)
from harness.draft import RungDraft
from harness.errors import OverBudgetError, ServerError
from harness.measured import ask_record, generation_record, prefill_record
from harness.ports import MemoryReader, Reporter, Undecided, Watcher
from harness.prefill_progress import PrefillProgress, cliff_sentence
from harness.regain import regain
from harness.resume import Resumption
from harness.script import Script
from harness.serverlog import LogCounts, explain, log_event, newest_lines
from harness.serving.client import Exchange
from harness.serving.session import Session
from harness.settings import Settings
from harness.slots import Slots
from harness.store.runs import Recorder

MAX_ASKS = 9
MAX_COLD_READINGS = 4
_READING_S = 0.3
"""Counters of the kernel have a grain of 10 ms: a shorter reading says nothing."""

TimedSample = TypeVar("TimedSample", bound=Timed)


class Runner:
    """One climb of one server, recorded line by line."""

    def __init__(
        self,
        session: Session,
        script: Script,
        recorder: Recorder,
        reporter: Reporter,
        memory: MemoryReader,
        watcher: Watcher,
        *,
        settings: Settings,
        undecided: Undecided,
        deepest: int,
        resumption: Resumption | None = None,
        slots: Slots | None = None,
    ) -> None:
        self._session = session
        self._client = session.client
        self._script = script
        self._recorder = recorder
        self._reporter = reporter
        self._memory = memory
        self._watcher = watcher
        self._resumption = resumption
        self._slots = slots
        self._sitting = resumption.sitting if resumption is not None else 1
        since_ns = round(resumption.offset_s * 1e9) if resumption is not None else 0
        self._origin_ns = time.perf_counter_ns() - since_ns
        self._settings = settings
        self._undecided = undecided
        self._deepest = deepest
        self._started_s = time.perf_counter()
        self._cold: dict[int, list[Prefill]] = {}
        self._climb_ms = 0.0
        self._reached_tokens = 0
        self._prefilled_tokens = (
            cells.prefilled_tokens(resumption.record) if resumption is not None else 0
        )
        self._generated_tokens = 0
        self._budget = Budget(
            script.plan,
            deepest,
            limit_s=settings.budget_s,
            again_s=settings.remeasure_s,
            ratio=outlook.attention_share(session.gguf),
        )
        self._log_counts = LogCounts(session.running)
        self._controls = Controls(
            self._client,
            script,
            watcher,
            generate_tokens=settings.generate_tokens,
            origin_ns=self._origin_ns,
            sitting=self._sitting,
        )
        self.rungs: dict[int, Rung] = dict(resumption.rungs) if resumption is not None else {}
        for depth in self.rungs:
            self._budget.finished(depth)
        self.failure: Failure | None = None

    @property
    def origin_ns(self) -> int:
        """When the run began, by `time.perf_counter_ns`."""
        return self._origin_ns

    @property
    def plan(self) -> Plan:
        """The plan being driven."""
        return self._script.plan

    # -- phases ------------------------------------------------------------------------------

    def begin(self) -> None:
        """The machine's pace, short warm-up, first control, cold repeats of the short rungs."""
        self._recorder.append(self._controls.pace("before"))
        warm = self._controls.warm_up()
        self._recorder.append(self._controls.measure("before"))
        if not self._script.native:
            return
        for depth, repeats in self.plan.cold_repeats.items():
            if depth > self._deepest or depth in self.rungs:
                continue
            for _ in range(repeats):
                exchange = self._prefill(depth, reuse=False)
                self._cold.setdefault(depth, []).append(self._sample(exchange, "cold_repeat", 0))
        self._look_ahead(warm)

    def _look_ahead(self, warm: Exchange) -> None:
        """Forecast the climb from what was read so far; refuse one that cannot fit its budget."""
        if not self._deepest:
            return
        reading = self._cold[max(self._cold)][-1] if self._cold else None
        if reading is None and self._budget.limit_s is not None:
            exchange = outlook.probe(
                self._client,
                self._script,
                warm,
                deepest=self._deepest,
                budget_s=self._budget.limit_s,
            )
            if exchange is not None:
                self._prefilled_tokens += exchange.new_tokens or 0
                reading = self._sample(exchange, "cold_repeat", 0)
        self._budget.learn(reading.chunks if reading else (), outlook.token_ms(warm))
        if ahead := self._budget.forecast():
            rungs = {f.depth: (f.until.ms, f.until.low_ms, f.until.high_ms) for f in ahead}
            self.event("forecast", "ms until each rung is measured: about, low, high", rungs=rungs)
        if said := outlook.sentence(self._budget):
            self._reporter.say(said)
        self._budget.refuse_hopeless()

    def climb_to(self, depth: int) -> Rung:
        """Measure every planned rung up to `depth` that has not been measured yet.

        A rung that fails is recorded with its failure; deeper ones are then not tried.
        """
        for step in self.plan.depths:
            if step > depth:
                break
            if step not in self.rungs:
                self._measure(step)
        return self.rungs[depth]

    def end(self) -> None:
        """Second control (A-B-A) and the record's footer."""
        stopped = self.failure is not None and self.failure.cause != "OVER_BUDGET"
        if not stopped and self.rungs:
            self._recorder.append(self._controls.measure("after"))
            self._recorder.append(self._controls.pace("after"))
            if self._slots is not None and self.failure is None:
                self._slots.discard()
        self._finish()

    def abandon(self, message: str) -> None:
        """Close the record of a run that was cut short."""
        self.failure = self.failure or Failure(cause="INTERRUPTED", message=message)
        self._finish()

    def fail(self, error: ServerError) -> Failure:
        """Name a failure outside the rungs; a run that is not ended yet ends as failed."""
        failure = explain(error, self._session.running)
        self.failure = self.failure or failure
        return failure

    def _finish(self) -> None:
        if (log := log_event(self._session)) is not None:
            self._recorder.append(log)
        self.event("machine", "the machine's other load", **self._watcher.account())
        self._recorder.append(
            Footer(
                ended_at=_now(),
                complete=self.failure is None,
                prefilled_tokens=self._prefilled_tokens + self._controls.new_tokens,
                elapsed_s=time.perf_counter() - self._started_s,
                failure=self.failure,
            )
        )

    # -- one rung ----------------------------------------------------------------------------

    def _measure(self, depth: int) -> None:
        draft = RungDraft(depth, self._script.segment(depth).total_tokens, self._sitting)
        draft.prefills = list(self._cold.get(depth, ()))
        if self.failure is not None:
            draft.failure = self.failure
        else:
            try:
                self._measure_rung(draft)
            except OverBudgetError as error:
                draft.failure = self.failure = Failure(
                    cause="OVER_BUDGET",
                    message=str(error),
                    log_tail=newest_lines(self._session.running),
                )
            except ServerError as error:
                draft.failure = self.failure = explain(error, self._session.running)
            except BaseException as error:
                draft.failure = self.failure = Failure(
                    cause="INTERRUPTED",
                    message=f"stopped while measuring the rung {depth} ({type(error).__name__})",
                )
                self._store(draft)
                raise
        self._store(draft)

    def _store(self, draft: RungDraft) -> None:
        draft.log_counts = self._log_counts.since()
        rung = draft.rung()
        self.rungs[draft.depth] = rung
        self._recorder.append(rung)

    def _measure_rung(self, draft: RungDraft) -> None:
        if self._script.native:
            self._regain(draft.depth)
            self._climb(draft)
        self._sample_memory(draft)
        self._watcher.mark()
        for order in ORDERS:
            self._ask(draft, order)
        while draft.needs_repeat(self._settings.repeats, self._settings.max_repeats):
            self._generate(draft)
        self._mark_disturbed(draft)
        self._budget.reached(draft.depth, self._reached_tokens)
        while self._budget.for_again_s() > 0:
            since_s = time.perf_counter()
            measured = self._measure_again(draft, self._undecided(draft.rung()))
            self._budget.spent_again(time.perf_counter() - since_s)
            if not measured:
                break
            self._mark_disturbed(draft)

    def _sample_memory(self, draft: RungDraft) -> None:
        sample = self._memory.sample()
        draft.memory.append(sample.model_copy(update={"generated_tokens": self._generated_tokens}))

    def _measure_again(self, draft: RungDraft, wanted: frozenset[str]) -> bool:
        """Take more samples of the `wanted` metrics; False when none may be taken."""
        before = (len(draft.generations), len(draft.asks), len(draft.prefills))
        if "prefill" in wanted and self._may_read_again(draft):
            exchange = self._prefill(draft.depth, reuse=False)
            draft.prefills.append(self._sample(exchange, "cold_repeat", 0))
        if "generation" in wanted and len(draft.generations) < self._settings.max_repeats:
            for _ in range(3):
                self._generate(draft)
        if "ttft" in wanted and len(draft.asks) < MAX_ASKS:
            for order in ORDERS:
                self._ask(draft, order)
        return before != (len(draft.generations), len(draft.asks), len(draft.prefills))

    def _may_read_again(self, draft: RungDraft) -> bool:
        """A cold reading must be asked for, fit into the time for it, and not be the fourth."""
        asked = self._settings.budget_s is not None or self._settings.remeasure_s is not None
        if not asked or len(draft.prefills) > MAX_COLD_READINGS:
            return False
        again_s = max(p.wall_ms for p in draft.prefills) / 1e3 * 2
        return again_s <= self._budget.for_again_s()

    def _mark_disturbed(self, draft: RungDraft) -> None:
        """Say on each sample who disturbed it, once readings cover the newest one."""
        time.sleep(_READING_S)
        self._watcher.mark()
        draft.prefills = [self._disturbed(x) for x in draft.prefills]
        draft.asks = [self._disturbed(x) for x in draft.asks]
        draft.generations = [self._disturbed(x) for x in draft.generations]

    def _disturbed(self, sample: TimedSample) -> TimedSample:
        if sample.start_s is None or sample.end_s is None:
            return sample
        start_ns, end_ns = (
            self._origin_ns + round(s * 1e9) for s in (sample.start_s, sample.end_s)
        )
        found = self._watcher.contention(start_ns, end_ns)
        return sample.model_copy(update={"contention": found})

    def _climb(self, draft: RungDraft) -> None:
        planned = self._reached_tokens
        self._budget.refuse_rung(draft.depth, draft.document_tokens)
        exchange = self._prefill(draft.depth, reuse=planned > 0, climbing=True)
        cached = exchange.reused_tokens or 0
        total = (exchange.new_tokens or 0) + cached
        refuse_truncation(draft.depth, total, draft.document_tokens + self._script.head_tokens)
        refuse_impossible_reuse(draft.depth, cached, planned)
        kind = "climb"
        if planned - cached > cells.REUSE_TOLERANCE_TOKENS:
            draft.notes.append(
                f"the server reused {cached} of the {planned} tokens it had read; the rung was "
                "measured cold instead"
            )
            self._reporter.say(f"rung {draft.depth}: {draft.notes[-1]}")
            kind, planned = "cold_fallback", 0
            if cached:
                exchange = self._prefill(draft.depth, reuse=False)
        prefill = prefill_record(
            exchange, kind, planned_cached_tokens=planned, origin_ns=self._origin_ns
        )
        draft.prefills.append(prefill)
        self._climb_ms = prefill.wall_ms + (self._climb_ms if kind == "climb" else 0.0)
        self._reached_tokens = total
        if self._slots is not None:
            self._slots.save(draft.depth, total, self._climb_ms)

    def _regain(self, depth: int) -> None:
        """Have the document of the finished rungs below `depth` in the KV cache again."""
        below = [d for d in self.rungs if d < depth]
        if self._resumption is None or self._reached_tokens or not below:
            return

        def again(order: Order) -> AskRecord:
            known = RungDraft(max(below), self._script.segment(max(below)).total_tokens)
            self._ask(known, order)
            return known.asks[-1]

        event, self._reached_tokens = regain(
            max(below),
            self._resumption.record,
            self._slots,
            prefill=lambda reuse: self._prefill(max(below), reuse=reuse),
            ask=again,
        )
        self._recorder.append(event)
        self._reporter.say(event.message)
        self._climb_ms = climb_ms(self._resumption.record, max(below))

    def _keep_curve(self, depth: int, points: list[tuple[int, float]]) -> None:
        self.event(CURVE, "", depth=depth, sitting=self._sitting, points=points)

    def _prefill(self, depth: int, *, reuse: bool, climbing: bool = False) -> Exchange:
        self._session.check_alive("waiting for the next request")
        progress = PrefillProgress(
            depth,
            self._budget,
            self._reporter,
            lambda: newest_lines(self._session.running),
            self._keep_curve,
            climbing=climbing,
        )
        try:
            exchange = self._client.prefill(
                self._script.head + self._script.document(depth),
                reuse=reuse,
                on_progress=progress,
            )
        finally:
            for cliff, lines in progress.cliffs:
                self.event(
                    "cliff",
                    cliff_sentence(cliff),
                    at_tokens=cliff.at_tokens,
                    chunks=cliff.chunks,
                    log_lines=lines,
                )
        self._prefilled_tokens += exchange.new_tokens or 0
        if not reuse:
            refuse_reuse(exchange)
        return exchange

    def _sample(self, exchange: Exchange, kind: str, planned_cached_tokens: int) -> Prefill:
        return prefill_record(
            exchange,
            kind,
            planned_cached_tokens=planned_cached_tokens,
            origin_ns=self._origin_ns,
        )

    def _ask(self, draft: RungDraft, order: Order) -> None:
        """Ask once; again, with a new control, where only the token budget cut the answer."""
        budget = self._settings.answer_tokens
        record = self._ask_within(draft, order, budget)
        larger = larger_budget(record, budget, self._session.identity.n_ctx)
        if larger is not None:
            draft.asks[-1] = record.model_copy(update={"superseded": True})
            draft.notes.append(
                f"an answer was cut at {budget} tokens; the question was asked again with {larger}"
            )
            self._ask_within(draft, order, larger)

    def _ask_within(self, draft: RungDraft, order: Order, budget_tokens: int) -> AskRecord:
        self._session.check_alive("waiting for the next request")
        ask = self._script.ask(draft.depth, order)
        text = self._script.document(draft.depth) + ask.tail
        exchange = self._chat(text, max_tokens=budget_tokens, reuse=True)
        self._prefilled_tokens += exchange.new_tokens or 0
        tail_tokens = self._script.tail_tokens(ask)
        if self._script.native:
            expected = draft.document_tokens + self._script.head_tokens + tail_tokens
            refuse_cut_question(draft.depth, exchange, expected)
        draft.last_text = text
        if not draft.asks and exchange.first_token_ms is not None:
            draft.cold_ttft_ms = self._climb_ms + exchange.first_token_ms
        record = ask_record(
            ask,
            exchange,
            tail_tokens,
            foreign=self._script.foreign_codes(ask),
            origin_ns=self._origin_ns,
        )
        draft.asks.append(record)
        self._generated_tokens += record.predicted_tokens or 0
        self._sample_memory(draft)
        if self._script.native and not cells.warm(record):
            draft.notes.append(
                f"a question re-read {record.new_tokens} tokens instead of "
                f"{record.planned_new_tokens}; its TTFT is not counted as warm"
            )
        return record

    def _generate(self, draft: RungDraft) -> None:
        self._session.check_alive("waiting for the next request")
        exchange = self._chat(
            draft.last_text,
            max_tokens=self._settings.generate_tokens,
            reuse=True,
            ignore_eos=True,
            pause_s=REST_S if draft.fast else 0.0,
        )
        self._prefilled_tokens += exchange.new_tokens or 0
        record = generation_record(exchange, origin_ns=self._origin_ns)
        draft.generations.append(record)
        self._generated_tokens += record.predicted_tokens
        self._sample_memory(draft)

    def _chat(
        self,
        text: str,
        *,
        max_tokens: int,
        reuse: bool,
        ignore_eos: bool = False,
        pause_s: float = 0.0,
    ) -> Exchange:
        exchange = self._client.chat(
            text,
            max_tokens=max_tokens,
            reuse=reuse,
            ignore_eos=ignore_eos,
            native=self._script.native,
            pause_s=pause_s,
        )
        if self._script.native and not reuse:
            refuse_reuse(exchange)
        return exchange

    def event(self, code: str, message: str, **data: object) -> None:
        """Put something about the run as a whole on the record."""
        self._recorder.append(Event(code=code, message=message, data=dict(data)))


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
