"""From finished requests to the samples a record keeps."""

import itertools
from collections.abc import Mapping

from harness.questions.failures import Diagnosis, ForeignOrigin, classify
from harness.questions.needles import Ask
from harness.questions.scoring import Score, score
from harness.records.lines import AskRecord, Chunk, Generation, Prefill
from harness.serving.wire import Exchange, ProgressPoint

CURVE_FACTOR = 1.5
"""A curve that sums to so many times less or more than the whole reading is not the reading's."""


def prefill_record(
    exchange: Exchange, kind: str, *, planned_cached_tokens: int, origin_ns: int
) -> Prefill:
    """One prefill; `kind` as in `Prefill`, `origin_ns` is when the run began."""
    return Prefill.model_validate(
        {
            **_span(exchange, origin_ns),
            "kind": kind,
            "new_tokens": exchange.new_tokens or 0,
            "cached_tokens": exchange.reused_tokens,
            "planned_cached_tokens": planned_cached_tokens,
            "server_ms": exchange.timings.get("prompt_ms"),
            "wall_ms": exchange.wall_ms,
            "chunks": chunks_of(exchange),
        }
    )


def chunks_of(exchange: Exchange) -> list[Chunk]:
    """The per-batch curve of a prefill; none where it does not add up to the whole reading.

    Spans come from the server's progress events, their durations from the events' own times, which
    are whole ms; within those, from when they arrived. Where the server gives no times arrival
    alone counts: it is late where this process was stopped or events came in clumps, and then no
    curve. Durations are scaled to add up to the server's prompt time.
    """
    steps = [
        (a, b, _took_ms(a, b))
        for a, b in itertools.pairwise(exchange.progress)
        if b.processed_tokens > a.processed_tokens
    ]
    summed = sum(ms for *_, ms in steps)
    total = exchange.timings.get("prompt_ms") or summed
    if summed <= 0.0 or not 1 / CURVE_FACTOR <= total / summed <= CURVE_FACTOR:
        return []
    return [
        Chunk(
            start_tokens=a.processed_tokens,
            end_tokens=b.processed_tokens,
            ms=ms * total / summed,
        )
        for a, b, ms in steps
    ]


def _took_ms(a: ProgressPoint, b: ProgressPoint) -> float:
    """Time between two events: as they arrived, within a ms of what the server says."""
    arrived_ms = b.arrived_ms - a.arrived_ms
    if not b.server_ms:
        return arrived_ms
    server_ms = b.server_ms - a.server_ms
    return min(max(arrived_ms, server_ms - 1.0, 0.0), server_ms + 1.0)


def ask_record(
    ask: Ask,
    exchange: Exchange,
    planned_new_tokens: int,
    diagnosed: tuple[Score, Diagnosis],
    *,
    origin_ns: int,
) -> AskRecord:
    """Everything about an answer; `diagnosed` is what `diagnose` says of it."""
    result, diagnosis = diagnosed
    control = next((q.number for q in ask.questions if q.is_control), None)
    return AskRecord(
        **_span(exchange, origin_ns),
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
        planned_new_tokens=planned_new_tokens,
        predicted_tokens=exchange.predicted_tokens,
        predicted_ms=exchange.timings.get("predicted_ms"),
        ttft_ms=exchange.first_token_ms,
        wall_ms=exchange.wall_ms,
        failure_class=diagnosis.kind,
        failure_reason=diagnosis.reason,
        invalid=diagnosis.invalid,
        evidence=diagnosis.evidence,
    )


def diagnose(
    ask: Ask, exchange: Exchange, foreign: Mapping[str, ForeignOrigin]
) -> tuple[Score, Diagnosis]:
    """Score and class of an answer.

    `foreign` maps codes this request did not ask for to where they belong.
    """
    result = score(ask, exchange.content)
    return result, classify(
        ask, result, exchange.content, exchange.reasoning, exchange.finish_reason, foreign
    )


def generation_record(exchange: Exchange, *, origin_ns: int) -> Generation:
    """One generation repeat; gaps between text-carrying events are kept to 1 µs."""
    events = exchange.token_event_ms
    drafted = exchange.timings.get("draft_n")
    accepted = exchange.timings.get("draft_n_accepted")
    return Generation(
        **_span(exchange, origin_ns),
        predicted_tokens=int(exchange.timings.get("predicted_n") or exchange.predicted_tokens or 0),
        server_ms=exchange.timings.get("predicted_ms"),
        wall_ms=exchange.wall_ms,
        ttft_ms=exchange.first_token_ms,
        new_tokens=exchange.new_tokens,
        cached_tokens=exchange.reused_tokens,
        draft_tokens=None if drafted is None else int(drafted),
        draft_accepted_tokens=None if accepted is None else int(accepted),
        itl_ms=tuple(round(b - a, 3) for a, b in itertools.pairwise(events)),
    )


def _span(exchange: Exchange, origin_ns: int) -> dict[str, float]:
    return {
        "start_s": (exchange.started_ns - origin_ns) / 1e9,
        "end_s": (exchange.ended_ns - origin_ns) / 1e9,
    }
