"""Whether a record's numbers can be true at all: physical laws, and controls that held still."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import median

from harness.core import laws
from harness.core.baseline import Baseline
from harness.core.cells import generation_rate, prefill_rate, samples_of
from harness.core.drift import DRIFT_CONFIDENCE, Drift, drift_between
from harness.core.metrics import GENERATION, PREFILL, TTFT, Metric
from harness.core.pace import off_pace, on_cpu, pooled_pace
from harness.core.records import Control, Failure, Generation, Prefill, Rung, RunRecord
from harness.core.sittings import bracket, read_so_far
from harness.core.stats import Unjudgeable

MIN_CONTROL_MS = 50.0
"""A control's prefill shorter than this says nothing of drift."""
UNCACHED_BYTES = 2**30
"""No CPU's caches hold weights of this size."""
MIN_SERVER_MS = 1.0
"""No rung is read and no generation done in less: a shorter time was not measured."""


def broken_law(metric: Metric, record: RunRecord, rung: Rung) -> str | None:
    """Which law the samples of one cell break, as a sentence; `None` when they can be true."""
    found: Iterable[laws.Violation | None] = ()
    if metric is PREFILL:
        found = (v for prefill in rung.prefills for v in _prefill_laws(prefill))
    elif metric is TTFT:
        found = (
            laws.first_token_within("an answer", ask.ttft_ms, ask.wall_ms)
            for ask in rung.counted_asks
            if ask.ttft_ms is not None
        )
    elif metric is GENERATION:
        found = (
            *(v for g in rung.generations for v in _generation_laws(g, record)),
            None if any(g.draft_tokens for g in rung.generations) else _depth_law(record, rung),
            _bandwidth_law(record, rung),
        )
    return next((v.sentence for v in found if v is not None), None)


def _prefill_laws(prefill: Prefill) -> Iterator[laws.Violation | None]:
    yield laws.positive_time("the prefill", prefill.wall_ms)
    if prefill.server_ms is not None:
        yield laws.positive_time("the prefill", prefill.server_ms)
        yield laws.enough_tokens(
            "prefill", prefill.new_tokens, prefill.server_ms, min_ms=MIN_SERVER_MS
        )
        yield laws.clock_covers_server("prefill", prefill.wall_ms, prefill.server_ms)
    yield laws.batches_in_order("prefill", prefill.chunks)


def _generation_laws(generation: Generation, record: RunRecord) -> Iterator[laws.Violation | None]:
    asked, predicted = record.header.plan.generate_tokens, generation.predicted_tokens
    yield laws.no_more_than_asked("generation", predicted, asked)
    if generation.server_ms is not None:
        yield laws.enough_tokens(
            "generation", predicted, generation.server_ms, min_ms=MIN_SERVER_MS
        )
        yield laws.clock_covers_server("generation", generation.wall_ms, generation.server_ms)
    if generation.ttft_ms is not None:
        yield laws.first_token_within("generation", generation.ttft_ms, generation.wall_ms)


def _bandwidth_law(record: RunRecord, rung: Rung) -> laws.Violation | None:
    """Weights and cache read once a token, by a server on the CPU, against the memory's speed.

    Only where the weights are too large for any CPU's caches; the memory's speed is that of this
    run's own pace (a copy reads and writes), which caches make too high, never too low.
    """
    log, copies = record.event_data("server_log"), pooled_pace(record).get("copy")
    weights = log.get("weight_bytes_per_token")
    if not copies or not on_cpu(record) or not weights or weights < UNCACHED_BYTES:
        return None
    kv = (log.get("kv") or {}).get("bytes_per_token") or 0
    rates = samples_of(rung).generation_tok_s
    accepted = sum(g.draft_accepted_tokens or 0 for g in rung.generations)
    predicted = sum(g.predicted_tokens for g in rung.generations)
    if not rates or accepted >= predicted:
        return None
    return laws.within_bandwidth(
        "generation",
        median(rates),
        bytes_per_token=weights + kv * rung.document_tokens,
        bandwidth_bytes_s=2 * max(copies) * 1e9,
        tokens_per_pass=predicted / (predicted - accepted),
    )


def _depth_law(record: RunRecord, rung: Rung) -> laws.Violation | None:
    at_zero = [
        r
        for c in record.controls
        if c.sitting == rung.sitting
        for g in c.generations
        if (r := generation_rate(g))
    ]
    at_depth = samples_of(rung).generation_tok_s
    return laws.depth_costs(at_zero, at_depth, rung.depth, confidence=DRIFT_CONFIDENCE)


def unclosed(record: RunRecord) -> str | None:
    """Why drift cannot be told of a run whose last sitting ended before its second control."""
    last = [c for c in record.controls if c.sitting == record.sittings]
    if not _cut_short(record) or any(c.position == "after" for c in last):
        return None
    failure = record.footer.failure if record.footer is not None else None
    why = f"{failure.cause}: {failure.message}" if failure is not None else "it was killed"
    return f"the run ended before its second control ({why}), so drift cannot be told"


def never_reached(record: RunRecord, depth: int) -> Rung | None:
    """A planned rung that a run cut short has not reached, as a failed one; else `None`."""
    if not _cut_short(record):
        return None
    planned = dict(zip(record.header.plan.depths, record.header.plan.document_tokens, strict=True))
    message, read = "the run ended before this rung", read_so_far(record, depth)
    if read is not None:
        message = f"the run ended while this rung was read; {read}"
    return Rung(
        depth=depth,
        document_tokens=planned[depth],
        failure=Failure(cause="INTERRUPTED", message=message),
        elapsed_s=0.0,
    )


def _cut_short(record: RunRecord) -> bool:
    """Whether a run had begun (its first control is there) and did not end by itself."""
    if record.footer is not None:
        return record.footer.failure is not None
    return bool(record.controls)


def pace_moved(record: RunRecord, baseline: Baseline | None, band: float) -> dict[int, str]:
    """Why a sitting's speeds cannot be compared with the baseline's: the machine moved."""
    if baseline is None:
        return {}
    return off_pace(record, [run.pace for run in baseline.runs], band)


def drifts(record: RunRecord, bands: Mapping[str, float]) -> dict[int, tuple[Drift, ...]]:
    """What the controls around each sitting show, by sitting; those without two are left out."""
    found = {}
    for sitting in range(1, record.sittings + 1):
        before, after = bracket(record, sitting)
        if before is not None and after is not None:
            over = "the run" if record.sittings == 1 else f"sitting {sitting}"
            found[sitting] = tuple(
                replace(drift, over=over) for drift in _drifts_between(before, after, bands)
            )
    return found


def _drifts_between(
    before: Control, after: Control, bands: Mapping[str, float]
) -> tuple[Drift, ...]:
    found = []
    for metric, rates in (
        (
            GENERATION,
            [[r for g in c.generations if (r := generation_rate(g))] for c in (before, after)],
        ),
        (
            PREFILL,
            [
                [
                    r
                    for p in c.prefills
                    if (p.server_ms or p.wall_ms) >= MIN_CONTROL_MS and (r := prefill_rate(p))
                ]
                for c in (before, after)
            ],
        ),
    ):
        drift = drift_between(*rates, band=bands[metric.name], confidence=DRIFT_CONFIDENCE)
        if not isinstance(drift, Unjudgeable):
            found.append(drift)
    return tuple(found)
