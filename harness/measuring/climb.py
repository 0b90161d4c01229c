"""Drives a plan through one server: controls, cold repeats, the climb, questions, generation.

One climb serves every rung: the document grows, each rung's new part is read by itself
(`n_predict` 0, so that models with recurrent state leave a checkpoint exactly there), then the
questions are asked with the document reused. What was reused is checked against what should have
been; a rung that was not reused as planned is read again cold, and that is said.
"""

import time
from collections.abc import Callable
from functools import partial

from harness.errors import OverBudgetError, ServerError
from harness.measuring.budget import Budget, answering, attention_share, probe, sentence
from harness.measuring.controls import Controls
from harness.measuring.refusals import refuse_impossible_reuse, refuse_truncation
from harness.measuring.resume import Resumption, regain
from harness.measuring.rung import Meter, RungDraft
from harness.measuring.sitting import Sitting
from harness.measuring.spot import Spot, not_spot
from harness.quantities import depth_label
from harness.questions.needles import ORDERS, Order
from harness.records import samples as cells
from harness.records.files import now
from harness.records.lines import AskRecord, Failure, Footer, Plan, Prefill, Rung
from harness.records.metrics import GENERATION, MEMORY, PREFILL, TTFT, Metric
from harness.records.samples import caching_at
from harness.records.sittings import climb_ms
from harness.serving.log import LogCounts, explain, log_event, newest_lines
from harness.serving.slots import Slots
from harness.serving.wire import Exchange
from harness.verdicts.leak import LONG_REQUESTS

MAX_ASKS = 9
MAX_COLD_READINGS = 4
GENERATIONS_AGAIN = 3
MEMORY_AGAIN = 4
UNMET_READINGS = 3
UNMET_AGAIN_MS = 3000.0
"""A cold reading in reduced mode costs a whole document each: repeated only while it is short."""


class Runner:
    """One climb of one server, recorded line by line.

    `wanted` says which metrics of a rung need more samples (none: enough).
    """

    def __init__(
        self,
        sitting: Sitting,
        *,
        wanted: Callable[[Rung], frozenset[Metric]],
        deepest: int,
        resumption: Resumption | None = None,
        slots: Slots | None = None,
        spot: Spot | None = None,
    ) -> None:
        self.sitting = sitting
        self._session = sitting.session
        self._script = sitting.script
        self._settings = settings = sitting.settings
        self._resumption = resumption
        self._slots = slots
        self._spot = spot
        self._wanted = wanted
        self._deepest = deepest
        self._started_s = time.perf_counter()
        self._cold: dict[int, list[Prefill]] = {}
        self._climb_ms = 0.0
        self._reached_tokens = 0
        self._budget = Budget(
            self._script.plan,
            deepest,
            limit_s=settings.budget_s,
            again_s=settings.remeasure_s,
            max_repeats=settings.max_repeats,
            ratio=attention_share(self._session.gguf),
        )
        before = cells.prefilled_tokens(resumption.record) if resumption else 0
        self._meter = Meter(sitting, self._budget, prefilled_tokens=before)
        self._log_counts = LogCounts(self._session.running)
        self._controls = Controls(sitting)
        self.rungs: dict[int, Rung] = dict(resumption.rungs) if resumption is not None else {}
        for depth in self.rungs:
            self._budget.finished(depth)
        self.failure: Failure | None = None

    @property
    def plan(self) -> Plan:
        """The plan being driven."""
        return self._script.plan

    # -- phases ------------------------------------------------------------------------------

    def begin(self) -> None:
        """The machine's pace, warm-up, first control, cold repeats of the short rungs between."""
        self.sitting.append(self._controls.pace("before"))
        warm = self._controls.warm_up()
        self._controls.look()
        if self._script.native:
            self._read_cold()
        self.sitting.append(self._controls.taken("before"))
        if self._script.native and self._spot is None:
            self._look_ahead(warm)

    def _read_cold(self) -> None:
        for depth, repeats in self.plan.cold_repeats.items():
            if depth > self._deepest or depth in self.rungs:
                continue
            for _ in range(repeats - 1):
                exchange = self._meter.prefill(depth, reuse=False)
                reading = self.sitting.reading(exchange, "cold_repeat")
                self._cold.setdefault(depth, []).append(reading)
            self._controls.look()

    def _look_ahead(self, warm: Exchange) -> None:
        """Forecast the climb from what was read so far; refuse one that cannot fit its budget."""
        if not self._deepest:
            return
        chunks = [c for readings in self._cold.values() for p in readings for c in p.chunks]
        deep = probe(
            self._script,
            warm,
            deepest=self._deepest,
            budget_s=self._budget.limit_s,
            seen_tokens=max((c.end_tokens for c in chunks), default=0),
        )
        if deep is not None:
            self._meter.prefilled_tokens += deep.new_tokens or 0
            chunks += self.sitting.reading(deep, "cold_repeat").chunks
        self._budget.learn(chunks, answering(warm, deep))
        if ahead := self._budget.forecast():
            rungs = {f.depth: (f.until.ms, f.until.low_ms, f.until.high_ms) for f in ahead}
            self.sitting.event(
                "forecast", "ms until each rung is measured: about, low, high", rungs=rungs
            )
        if said := sentence(self._budget):
            self.sitting.reporter.say(said)
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
            self._controls.look()
            self._visit_again()
            self.sitting.append(self._controls.taken("after"))
            self.sitting.append(self._controls.pace("after"))
            if self._slots is not None and self.failure is None:
                self._slots.discard()
        self._finish()

    def _visit_again(self) -> None:
        """The last cold repeat of the short rungs comes after the climb, with some generations."""
        for depth, repeats in self.plan.cold_repeats.items():
            rung, left_s = self.rungs.get(depth), self._budget.left_s
            own = rung is not None and rung.failure is None and rung.sitting == self.sitting.number
            if rung is None or not own or not repeats or depth >= self._deepest:
                continue
            if left_s is not None and left_s < 2 * rung.elapsed_s:
                continue
            self._store(self._meter.visit_again(rung, GENERATIONS_AGAIN))
            self._controls.look()

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
            self.sitting.append(log)
        self.sitting.event("machine", "the machine's other load", **self.sitting.watcher.account())
        self.sitting.append(
            Footer(
                ended_at=now(),
                complete=self.failure is None,
                prefilled_tokens=self._meter.prefilled_tokens + self._controls.new_tokens,
                elapsed_s=time.perf_counter() - self._started_s,
                failure=self.failure,
            )
        )

    # -- one rung ----------------------------------------------------------------------------

    def _measure(self, depth: int) -> None:
        draft = RungDraft(depth, self._script.segment(depth).total_tokens, self.sitting.number)
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
        self.sitting.append(rung)
        self.sitting.reporter.doing(draft.depth, "")

    def _measure_rung(self, draft: RungDraft) -> None:
        if self._script.native:
            self._regain(draft.depth)
            self._climb(draft)
        else:
            self._read_unmet(draft)
        self._meter.sample_memory(draft)
        self.sitting.watcher.mark()
        doing = partial(self.sitting.reporter.doing, draft.depth)
        for number, order in enumerate(ORDERS, 1):
            doing(f"asking, {number} of {len(ORDERS)}")
            self._meter.ask(draft, order)
        if self._restores(draft):
            draft.cold_ttft_ms = None
        self._controls.pace_at(draft.depth)
        if not self._script.native:
            draft.notes.append(caching_at(draft.rung()).sentence)
        while draft.needs_repeat(self._settings.repeats, self._settings.max_repeats):
            doing(f"generating, {len(draft.generations) + 1} of {self._settings.repeats}")
            self._meter.generate(draft)
        self._meter.look(draft)
        self._meter.mark_disturbed(draft)
        self._budget.reached(draft.depth, self._reached_tokens)
        while self._budget.for_again_s() > 0:
            since_s = time.perf_counter()
            doing("measuring again what is not decided")
            measured = self._measure_again(draft, self._wanted(draft.rung()))
            self._budget.spent_again(time.perf_counter() - since_s)
            if not measured:
                break
            self._meter.mark_disturbed(draft)
        self._controls.pace_at(draft.depth)

    def _measure_again(self, draft: RungDraft, wanted: frozenset[Metric]) -> bool:
        """Take more samples of the `wanted` metrics; False when none may be taken."""
        before = (len(draft.generations), len(draft.asks), len(draft.prefills))
        if PREFILL in wanted and self._may_read_again(draft):
            if self._restores(draft):
                self._climb(draft)
            elif self._script.native:
                exchange = self._meter.prefill(draft.depth, reuse=False)
                draft.prefills.append(self.sitting.reading(exchange, "cold_repeat"))
            else:
                self._meter.read_unmet(draft)
        if GENERATION in wanted and len(draft.generations) < self._settings.max_repeats:
            for _ in range(3):
                self._meter.generate(draft)
        if MEMORY in wanted and len(draft.memory) <= LONG_REQUESTS:
            for _ in range(MEMORY_AGAIN):
                self._meter.generate(draft)
        if TTFT in wanted and len(draft.asks) < MAX_ASKS:
            for order in ORDERS:
                self._meter.ask(draft, order)
        return before != (len(draft.generations), len(draft.asks), len(draft.prefills))

    def _may_read_again(self, draft: RungDraft) -> bool:
        """A cold reading must be asked for, fit into the time for it, and not be the fourth."""
        asked = self._settings.budget_s is not None or self._settings.remeasure_s is not None
        if (
            not (asked or self._restores(draft))
            or not draft.prefills
            or len(draft.prefills) > MAX_COLD_READINGS
        ):
            return False
        again_s = max(p.wall_ms for p in draft.prefills) / 1e3 * 2
        return again_s <= self._budget.for_again_s()

    def _read_unmet(self, draft: RungDraft) -> None:
        """Cold readings of a server in reduced mode: one, and more of what takes no time."""
        self._session.check_alive("waiting for the next request")
        while len(draft.prefills) < UNMET_READINGS:
            before = len(draft.prefills)
            self._meter.read_unmet(draft)
            if len(draft.prefills) == before or draft.prefills[-1].wall_ms > UNMET_AGAIN_MS:
                break

    def _climb(self, draft: RungDraft) -> None:
        planned = self._restored(draft) or self._reached_tokens
        self._budget.refuse_rung(draft.depth, draft.document_tokens)
        exchange = self._meter.prefill(draft.depth, reuse=planned > 0, climbing=True)
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
            self.sitting.reporter.say(f"rung {draft.depth}: {draft.notes[-1]}")
            kind, planned = "cold_fallback", 0
            if cached:
                exchange = self._meter.prefill(draft.depth, reuse=False)
        prefill = self.sitting.reading(exchange, kind, planned)
        draft.prefills.append(prefill)
        self._climb_ms = prefill.wall_ms + (self._climb_ms if kind == "climb" else 0.0)
        draft.climb_ms = self._climb_ms
        self._reached_tokens = total
        if self._slots is not None:
            self._slots.save(draft.depth, total, self._climb_ms)

    def _restores(self, draft: RungDraft) -> bool:
        return self._spot is not None and draft.depth in self._spot.depths

    def _restored(self, draft: RungDraft) -> int | None:
        """Tokens of the rung's document in the cache, restored; `None` where it is to be read."""
        if self._spot is None or not self._restores(draft):
            return None
        try:
            return self._spot.restore(draft.depth)
        except ServerError as error:
            self._session.check_alive("restoring a kept document")
            said = not_spot(f"at {depth_label(draft.depth)} {error}")
            self.sitting.append(said)
            self.sitting.reporter.say(said.message)
            return None

    def _regain(self, depth: int) -> None:
        """Have the document of the finished rungs below `depth` in the KV cache again."""
        below = [d for d in self.rungs if d < depth]
        if self._resumption is None or self._reached_tokens or not below:
            return

        def again(order: Order) -> AskRecord:
            known = RungDraft(max(below), self._script.segment(max(below)).total_tokens)
            self._meter.ask(known, order)
            return known.asks[-1]

        event, self._reached_tokens = regain(
            max(below),
            self._resumption.record,
            self._slots,
            prefill=lambda reuse: self._meter.prefill(max(below), reuse=reuse),
            ask=again,
        )
        self.sitting.append(event)
        self.sitting.reporter.say(event.message)
        self._climb_ms = climb_ms(self._resumption.record, max(below))
