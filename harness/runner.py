"""Drives a plan through one server: controls, cold repeats, the climb, questions, generation.

One climb serves every rung: the document grows, each rung's new part is read by itself
(`n_predict` 0, so that models with recurrent state leave a checkpoint exactly there), then the
questions are asked with the document reused. What was reused is checked against what should have
been; a rung that was not reused as planned is read again cold, and that is said.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from harness.core import cells
from harness.core.background import lines
from harness.core.haystack import Segment, build
from harness.core.needles import (
    ORDERS,
    Ask,
    CodeSource,
    Needle,
    Order,
    make_ask,
    needle_names,
)
from harness.core.plan import make_plan
from harness.core.records import (
    AskRecord,
    Chunk,
    Control,
    Event,
    Failure,
    Footer,
    Generation,
    MemorySample,
    Plan,
    Prefill,
    Rung,
)
from harness.core.scoring import score
from harness.errors import ServerError
from harness.serving.client import Client, Exchange
from harness.serving.session import Session
from harness.settings import Settings
from harness.store.runs import Recorder

CONTROL_TOKENS = 160
CONTROL_REPEATS = 3
WARM_UP_TOKENS = 600
_TAIL_MARGIN_TOKENS = 4
_PLACEHOLDER = "The document goes here.\n"


class Reporter(Protocol):
    """What the runner tells a person while it works."""

    def say(self, text: str) -> None:
        """One line about the run."""

    def progress(self, depth: int, done_tokens: int, total_tokens: int) -> None:
        """`done_tokens` of the rung's prompt have been read."""


class MemoryReader(Protocol):
    """Reads the memory of the server's process tree."""

    def sample(self) -> MemorySample:
        """Memory now."""


Undecided = Callable[[Rung], frozenset[str]]
"""Names of metrics whose verdict at this rung needs more samples (empty: enough)."""


class Script:
    """The prompts of a run: the growing document, the questions, how the template wraps them."""

    def __init__(self, client: Client, settings: Settings, *, native: bool) -> None:
        self._client = client
        self._rng = random.Random(f"asks/{settings.seed}")
        self.codes = CodeSource(random.Random(f"codes/{settings.seed}"))
        self.native = native
        self._tokens_per_char = None if native else _tokens_per_character(client)
        sample = _sample_ask()
        self.head, self._end = self._wrapping(sample) if native else ("", "")
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
        )
        self.segments: list[Segment] = build(
            list(zip(self.plan.depths, self.plan.document_tokens, strict=True)),
            self.count,
            self.codes,
            seed=settings.seed,
            background=settings.background,
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

    def tail_tokens(self, ask: Ask) -> int:
        """Tokens of the questions and of what the template puts after them."""
        if self._tokens_per_char is not None:
            return self.count([ask.tail])[0]
        return self._client.token_total(ask.tail + self._end)

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
        return make_ask(needles, self.codes, order, self._rng)

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


def _tokens_per_character(client: Client) -> float:
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


class Runner:
    """One climb of one server, recorded line by line."""

    def __init__(
        self,
        session: Session,
        script: Script,
        recorder: Recorder,
        reporter: Reporter,
        memory: MemoryReader,
        *,
        settings: Settings,
        undecided: Undecided,
        deepest: int,
    ) -> None:
        self._session = session
        self._client = session.client
        self._script = script
        self._recorder = recorder
        self._reporter = reporter
        self._memory = memory
        self._settings = settings
        self._undecided = undecided
        self._deepest = deepest
        self._started_s = time.perf_counter()
        self._cold: dict[int, list[Prefill]] = {}
        self._climb_ms = 0.0
        self._reached_tokens = 0
        self._prefilled_tokens = 0
        self.rungs: dict[int, Rung] = {}
        self.failure: Failure | None = None

    @property
    def plan(self) -> Plan:
        """The plan being driven."""
        return self._script.plan

    # -- phases ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Short warm-up, first control, cold repeats of the short rungs."""
        text = self._script.filler("warm-up", WARM_UP_TOKENS)
        warm = self._chat(text, max_tokens=16, reuse=False)
        self._prefilled_tokens += warm.new_tokens or 0
        self._control("before")
        if not self._script.native:
            return
        for depth, repeats in self.plan.cold_repeats.items():
            if depth > self._deepest:
                continue
            for _ in range(repeats):
                exchange = self._prefill(depth, reuse=False)
                self._cold.setdefault(depth, []).append(
                    self._prefill_record(exchange, "cold_repeat", planned_cached=0)
                )

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
        if self.failure is None and self.rungs:
            self._control("after")
        self._finish()

    def abandon(self, message: str) -> None:
        """Close the record of a run that was cut short."""
        self.failure = self.failure or Failure(cause="INTERRUPTED", message=message)
        self._finish()

    def _finish(self) -> None:
        self._recorder.append(
            Footer(
                ended_at=_now(),
                complete=self.failure is None,
                prefilled_tokens=self._prefilled_tokens,
                elapsed_s=time.perf_counter() - self._started_s,
                failure=self.failure,
            )
        )
        self._recorder.close()

    # -- one rung ----------------------------------------------------------------------------

    def _measure(self, depth: int) -> None:
        draft = _Draft(depth, self._script.segment(depth).total_tokens)
        draft.prefills = list(self._cold.get(depth, ()))
        if self.failure is not None:
            draft.failure = self.failure
        else:
            try:
                self._measure_rung(draft)
            except ServerError as error:
                draft.failure = self.failure = self._explain(error)
            except BaseException as error:
                draft.failure = self.failure = Failure(
                    cause="INTERRUPTED",
                    message=f"stopped while measuring the rung {depth} ({type(error).__name__})",
                )
                self._store(draft)
                raise
        self._store(draft)

    def _store(self, draft: "_Draft") -> None:
        rung = draft.rung()
        self.rungs[draft.depth] = rung
        self._recorder.append(rung)

    def _explain(self, error: ServerError) -> Failure:
        running = self._session.running
        if error.cause == "SERVER_DIED" and running is not None:
            deadline = time.monotonic() + 5.0
            while running.alive and time.monotonic() < deadline:
                time.sleep(0.05)
            if not running.alive:
                error = running.death("answering a request")
        tail = error.log_tail or (running.log_tail() if running is not None else ())
        cause = error.cause if error.cause in _CAUSES else "SERVER_ERROR"
        return Failure.model_validate({"cause": cause, "message": str(error), "log_tail": tail})

    def _measure_rung(self, draft: "_Draft") -> None:
        if self._script.native:
            self._climb(draft)
        draft.memory.append(self._memory.sample())
        orders: list[Order] = list(ORDERS)
        for order in orders:
            self._ask(draft, order)
        for _ in range(self._settings.repeats):
            self._generate(draft)
        draft.memory.append(self._memory.sample())
        while wanted := self._undecided(draft.rung()):
            spent = (len(draft.generations), len(draft.asks))
            if "generation" in wanted and len(draft.generations) < self._settings.max_repeats:
                for _ in range(3):
                    self._generate(draft)
            if "ttft" in wanted and len(draft.asks) < len(ORDERS) + 6:
                for order in orders:
                    self._ask(draft, order)
            if spent == (len(draft.generations), len(draft.asks)):
                break
        draft.memory.append(self._memory.sample())

    def _climb(self, draft: "_Draft") -> None:
        planned = self._reached_tokens
        exchange = self._prefill(draft.depth, reuse=planned > 0)
        cached = exchange.reused_tokens or 0
        total = (exchange.new_tokens or 0) + cached
        self._refuse_truncation(draft.depth, total, draft.document_tokens + self._script.head_tokens)
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
        prefill = self._prefill_record(exchange, kind, planned_cached=planned)
        draft.prefills.append(prefill)
        self._climb_ms = prefill.wall_ms + (self._climb_ms if kind == "climb" else 0.0)
        self._reached_tokens = total

    def _prefill(self, depth: int, *, reuse: bool) -> Exchange:
        self._session.check_alive("waiting for the next request")
        exchange = self._client.prefill(
            self._script.head + self._script.document(depth),
            reuse=reuse,
            on_progress=lambda done, total: self._reporter.progress(depth, done, total),
        )
        self._prefilled_tokens += exchange.new_tokens or 0
        if not reuse and exchange.reused_tokens:
            raise ServerError(
                f"a cold prefill was asked for but the server reused {exchange.reused_tokens} "
                "tokens; stop whatever else uses this server, or restart it",
                cause="SERVER_ERROR",
            )
        return exchange

    def _refuse_truncation(self, depth: int, counted: int, expected: int) -> None:
        if abs(counted - expected) > max(8, 0.005 * expected):
            raise ServerError(
                f"the server read {counted} tokens where its own tokenizer counts {expected} at "
                f"rung {depth}; it cut or changed the prompt",
                cause="TRUNCATED",
            )

    def _prefill_record(self, exchange: Exchange, kind: str, *, planned_cached: int) -> Prefill:
        return Prefill.model_validate(
            {
                "kind": kind,
                "new_tokens": exchange.new_tokens or 0,
                "cached_tokens": exchange.reused_tokens,
                "planned_cached_tokens": planned_cached,
                "server_ms": exchange.timings.get("prompt_ms"),
                "wall_ms": exchange.wall_ms,
                "chunks": chunks_of(exchange),
            }
        )

    def _ask(self, draft: "_Draft", order: Order) -> None:
        self._session.check_alive("waiting for the next request")
        ask = self._script.ask(draft.depth, order)
        text = self._script.document(draft.depth) + ask.tail
        exchange = self._chat(text, max_tokens=self._settings.answer_tokens, reuse=True)
        self._prefilled_tokens += exchange.new_tokens or 0
        draft.last_text = text
        if not draft.asks and exchange.first_token_ms is not None:
            draft.cold_ttft_ms = self._climb_ms + exchange.first_token_ms
        record = ask_record(ask, exchange, self._script.tail_tokens(ask))
        draft.asks.append(record)
        if self._script.native and not cells.warm(record):
            draft.notes.append(
                f"a question re-read {record.new_tokens} tokens instead of "
                f"{record.planned_new_tokens}; its TTFT is not counted as warm"
            )

    def _generate(self, draft: "_Draft") -> None:
        self._session.check_alive("waiting for the next request")
        exchange = self._chat(
            draft.last_text,
            max_tokens=self._settings.generate_tokens,
            reuse=True,
            ignore_eos=True,
        )
        self._prefilled_tokens += exchange.new_tokens or 0
        draft.generations.append(generation_record(exchange))

    def _control(self, position: str) -> None:
        text = self._script.filler("control", CONTROL_TOKENS)
        exchanges = [
            self._chat(
                text, max_tokens=self._settings.generate_tokens, reuse=False, ignore_eos=True
            )
            for _ in range(CONTROL_REPEATS)
        ]
        self._prefilled_tokens += sum(x.new_tokens or 0 for x in exchanges)
        self._recorder.append(
            Control.model_validate(
                {
                    "position": position,
                    "prefills": [
                        self._prefill_record(x, "cold_repeat", planned_cached=0) for x in exchanges
                    ],
                    "generations": [
                        generation_record(x).model_copy(update={"new_tokens": None})
                        for x in exchanges
                    ],
                }
            )
        )

    def _chat(self, text: str, *, max_tokens: int, reuse: bool, ignore_eos: bool = False) -> Exchange:
        return self._client.chat(
            text,
            max_tokens=max_tokens,
            reuse=reuse,
            ignore_eos=ignore_eos,
            native=self._script.native,
        )

    def event(self, code: str, message: str, **data: object) -> None:
        """Put something about the run as a whole on the record."""
        self._recorder.append(Event(code=code, message=message, data=dict(data)))


_CAUSES = frozenset(Failure.model_fields["cause"].annotation.__args__)  # type: ignore[union-attr]


class _Draft:
    """A rung while it is being measured."""

    def __init__(self, depth: int, document_tokens: int) -> None:
        self.depth = depth
        self.document_tokens = document_tokens
        self.prefills: list[Prefill] = []
        self.asks: list[AskRecord] = []
        self.generations: list[Generation] = []
        self.memory: list[MemorySample] = []
        self.cold_ttft_ms: float | None = None
        self.notes: list[str] = []
        self.failure: Failure | None = None
        self.last_text = ""
        self._started_s = time.perf_counter()

    def rung(self) -> Rung:
        """The record of what has been measured so far."""
        return Rung(
            depth=self.depth,
            document_tokens=self.document_tokens,
            prefills=tuple(self.prefills),
            asks=tuple(self.asks),
            generations=tuple(self.generations),
            memory=tuple(self.memory),
            cold_ttft_ms=self.cold_ttft_ms,
            notes=tuple(self.notes),
            failure=self.failure,
            elapsed_s=time.perf_counter() - self._started_s,
        )


def chunks_of(exchange: Exchange) -> list[Chunk]:
    """The per-batch curve of a prefill.

    Spans come from the server's progress events and their durations from the arrival of those
    events (the server rounds its own to whole ms), scaled to add up to the server's prompt time.
    """
    points = exchange.progress
    if len(points) < 2:
        return []
    arrived = points[-1].arrived_ms - points[0].arrived_ms
    total = exchange.timings.get("prompt_ms") or arrived
    scale = total / arrived if arrived > 0 else 1.0
    return [
        Chunk(
            start_tokens=a.processed_tokens,
            end_tokens=b.processed_tokens,
            ms=(b.arrived_ms - a.arrived_ms) * scale,
        )
        for a, b in zip(points, points[1:], strict=False)
        if b.processed_tokens > a.processed_tokens
    ]


def ask_record(ask: Ask, exchange: Exchange, tail_tokens: int) -> AskRecord:
    """Score an answer and keep everything about it."""
    result = score(ask, exchange.content)
    control = next((q.number for q in ask.questions if q.is_control), None)
    return AskRecord(
        order=ask.order,
        expected=ask.expected,
        given=dict(result.given),
        control_number=control,
        answer=exchange.content,
        reasoning=exchange.reasoning,
        finish_reason=exchange.finish_reason,
        needles_right=result.needles_right,
        needles_asked=result.asked,
        codes_present=result.codes_present,
        control_right=result.control_right,
        prompt_tokens=exchange.prompt_tokens,
        new_tokens=exchange.new_tokens,
        cached_tokens=exchange.reused_tokens,
        planned_new_tokens=tail_tokens,
        predicted_tokens=exchange.predicted_tokens,
        predicted_ms=exchange.timings.get("predicted_ms"),
        ttft_ms=exchange.first_token_ms,
        wall_ms=exchange.wall_ms,
    )


def generation_record(exchange: Exchange) -> Generation:
    """One generation repeat; gaps between text-carrying events are kept to 1 µs."""
    events = exchange.token_event_ms
    drafted = exchange.timings.get("draft_n")
    accepted = exchange.timings.get("draft_n_accepted")
    return Generation(
        predicted_tokens=int(exchange.timings.get("predicted_n") or exchange.predicted_tokens or 0),
        server_ms=exchange.timings.get("predicted_ms"),
        wall_ms=exchange.wall_ms,
        ttft_ms=exchange.first_token_ms,
        new_tokens=exchange.new_tokens,
        cached_tokens=exchange.reused_tokens,
        draft_tokens=None if drafted is None else int(drafted),
        draft_accepted_tokens=None if accepted is None else int(accepted),
        itl_ms=tuple(round(b - a, 3) for a, b in zip(events, events[1:], strict=False)),
    )


def _now() -> str:
    from datetime import datetime

    return datetime.now().astimezone().isoformat(timespec="seconds")
