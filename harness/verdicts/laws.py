"""Whether a record's numbers can be true at all: physical laws, and controls that held still."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from harness.llamacpp.cost import ChunkLike
from harness.quantities import percent, span
from harness.records.lines import Failure, Generation, Prefill, Rung, RunRecord
from harness.records.metrics import GENERATION, PREFILL, TTFT, Metric
from harness.records.pace import on_cpu, pooled_pace
from harness.records.samples import generation_rate, generation_rates
from harness.records.sittings import read_so_far
from harness.verdicts.drift import DRIFT_CONFIDENCE
from harness.verdicts.stats import CONFIDENCE, Unjudgeable, ratio_estimate, same_run_ratio

Law = Literal[
    "times are positive",
    "our clock covers the server's",
    "first token within the request",
    "enough tokens to time",
    "no more tokens than asked for",
    "as many tokens as asked for",
    "both clocks agree",
    "the parts add up",
    "batches follow one another",
    "bytes read fit the memory bandwidth",
    "depth never speeds generation up",
]


MIN_PREDICTED_TOKENS = 16
MIN_PREDICTED_MS = 20.0
CLOCK_SLACK_SHARE = 0.01
CLOCK_SLACK_MS = 2.0
APART_SHARE = 0.5
APART_MS = 1000.0
PARTS_SHARE = 0.02
FEWER_SHARE = 0.1
BANDWIDTH_SLACK_SHARE = 0.05
DEPTH_GAIN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Violation:
    """A law broken: its name, and what was seen against what can be."""

    law: Law
    sentence: str


def positive_time(what: str, ms: float) -> Violation | None:
    """A duration that is zero or negative."""
    if ms > 0.0:
        return None
    return Violation("times are positive", f"{what} took {ms:g} ms: nothing takes no time or less")


def clock_covers_server(what: str, wall_ms: float, server_ms: float) -> Violation | None:
    """The server says it worked longer than the request lasted for us (1 % and 2 ms allowed)."""
    if wall_ms >= server_ms * (1.0 - CLOCK_SLACK_SHARE) - CLOCK_SLACK_MS:
        return None
    return Violation(
        "our clock covers the server's",
        f"{what}: the server reports {server_ms:.1f} ms of work inside a request that lasted "
        f"{wall_ms:.1f} ms",
    )


def clocks_agree(
    what: str, ours_ms: float, server_ms: float, *, slack_ms: float = APART_MS
) -> Violation | None:
    """The server says it worked far shorter than we waited (half as long again, and `slack_ms`).

    What comes between is the transport, queueing and the prompt's tokens; a server's clock that is
    ten times too short makes it ten times too fast.
    """
    if ours_ms <= server_ms * (1.0 + APART_SHARE) + slack_ms:
        return None
    return Violation(
        "both clocks agree",
        f"{what}: {server_ms:,.1f} ms by the server's clock and {ours_ms:,.1f} ms by ours, which "
        "no transport explains: one of them is wrong, or something stood still",
    )


def parts_add_up(what: str, chunks: Sequence[ChunkLike], whole_ms: float) -> Violation | None:
    """A curve whose batches took longer together than the reading that they are parts of."""
    parts_ms = sum(chunk.ms for chunk in chunks)
    if parts_ms <= whole_ms * (1.0 + PARTS_SHARE) + CLOCK_SLACK_MS * max(len(chunks), 1):
        return None
    return Violation(
        "the parts add up",
        f"{what}: its batches took {parts_ms:,.1f} ms together, the whole of it {whole_ms:,.1f} ms",
    )


def first_token_within(what: str, ttft_ms: float, wall_ms: float) -> Violation | None:
    """The first token came after the request had ended."""
    if ttft_ms <= wall_ms:
        return None
    return Violation(
        "first token within the request",
        f"{what}: first token after {ttft_ms:.1f} ms of a request of {wall_ms:.1f} ms",
    )


def enough_tokens(
    what: str,
    predicted_tokens: int,
    predicted_ms: float,
    *,
    min_tokens: int = MIN_PREDICTED_TOKENS,
    min_ms: float = MIN_PREDICTED_MS,
) -> Violation | None:
    """Too few tokens, or too short a time, to make a rate (EOS at once gives 1,000,000 tok/s)."""
    if predicted_tokens >= min_tokens and predicted_ms >= min_ms:
        return None
    return Violation(
        "enough tokens to time",
        f"{what}: {predicted_tokens} tokens in {predicted_ms:.1f} ms; a rate needs at least "
        f"{min_tokens} tokens and {min_ms:g} ms",
    )


def no_more_than_asked(what: str, predicted_tokens: int, asked_tokens: int) -> Violation | None:
    """More tokens reported than the request's `max_tokens` allowed."""
    if predicted_tokens <= asked_tokens:
        return None
    return Violation(
        "no more tokens than asked for",
        f"{what}: the server reports {predicted_tokens} tokens where {asked_tokens} were asked for",
    )


def as_many_as_asked(what: str, predicted_tokens: int, asked_tokens: int) -> Violation | None:
    """Fewer tokens than `ignore_eos` makes a server go on to."""
    if predicted_tokens >= asked_tokens * (1.0 - FEWER_SHARE):
        return None
    return Violation(
        "as many tokens as asked for",
        f"{what}: {predicted_tokens} of the {asked_tokens} tokens asked for: the server stopped "
        "though it was told to go on (ignore_eos), so the rate is that of a beginning",
    )


def batches_in_order(what: str, chunks: Sequence[ChunkLike]) -> Violation | None:
    """A prefill batch without tokens or time, or one that starts before its predecessor ended."""
    end = 0
    for chunk in chunks:
        if chunk.start_tokens < end or chunk.end_tokens <= chunk.start_tokens or chunk.ms <= 0.0:
            return Violation(
                "batches follow one another",
                f"{what}: batch {chunk.start_tokens:,}..{chunk.end_tokens:,} in {chunk.ms:g} ms "
                f"after one that ended at {end:,}",
            )
        end = chunk.end_tokens
    return None


def within_bandwidth(
    what: str,
    tok_s: float,
    *,
    bytes_per_token: float,
    bandwidth_bytes_s: float,
    tokens_per_pass: float = 1.0,
) -> Violation | None:
    """Faster than memory can deliver what one pass must read (5 % allowed).

    `bytes_per_token` are weights and KV read for one forward pass; `tokens_per_pass` is above 1
    with speculation (accepted draft tokens come along with one pass).
    """
    possible_tok_s = bandwidth_bytes_s / bytes_per_token * tokens_per_pass
    if tok_s <= possible_tok_s * (1.0 + BANDWIDTH_SLACK_SHARE):
        return None
    read_gb_s = tok_s * bytes_per_token / tokens_per_pass / 1e9
    return Violation(
        "bytes read fit the memory bandwidth",
        f"{what}: {tok_s:,.1f} tok/s would read {read_gb_s:,.1f} GB/s; the memory "
        f" gives {bandwidth_bytes_s / 1e9:,.1f} GB/s ({possible_tok_s:,.1f} tok/s)",
    )


def depth_costs(
    looks_tok_s: Sequence[Sequence[float]],
    at_depth_tok_s: Sequence[float],
    depth_tokens: int,
    *,
    allowed: float = DEPTH_GAIN_SHARE,
    confidence: float = CONFIDENCE,
) -> Violation | None:
    """Generation at depth 0 slower than with a filled KV cache, beyond noise and `allowed`.

    `looks_tok_s` are the controls, taken at different times. The fastest is what can be had at
    depth 0; how far they lie apart is noise, too, and one look alone (it may have been a cold one)
    claims nothing. Does not hold for speculative decoding, whose acceptance may differ by depth:
    don't call it there.
    """
    ratio = ratio_estimate(at_depth_tok_s, looks_tok_s, confidence=confidence)
    if isinstance(ratio, Unjudgeable):
        return None
    fastest = ratio.baseline / max(median(look) for look in looks_tok_s if look)
    if ratio.low * fastest <= 1.0 + allowed:
        return None
    return Violation(
        "depth never speeds generation up",
        f"generation with {depth_tokens:,} tokens in the KV cache is "
        f"{percent(ratio.ratio * fastest - 1.0)} against an empty one "
        f"({span(ratio.low * fastest - 1.0, ratio.high * fastest - 1.0)}): something else "
        "slowed the measurement at depth 0",
    )


UNCACHED_BYTES = 2**30
"""No CPU's caches hold weights of this size."""
MIN_SERVER_MS = 1.0
"""No rung is read and no generation done in less: a shorter time was not measured."""


def broken_law(metric: Metric, record: RunRecord, rung: Rung) -> str | None:
    """Which law the samples of one cell break, as a sentence; `None` when they can be true."""
    found: Iterable[Violation | None] = ()
    if metric is PREFILL:
        found = (v for prefill in rung.prefills for v in _prefill_laws(prefill))
    elif metric is TTFT:
        found = (
            first_token_within("an answer", ask.ttft_ms, ask.wall_ms)
            for ask in rung.counted_asks
            if ask.ttft_ms is not None
        )
    elif metric is GENERATION:
        found = (
            *(v for g in rung.generations for v in _generation_laws(g, record)),
            _clocks_law(rung),
            None if any(g.draft_tokens for g in rung.generations) else _depth_law(record, rung),
            _bandwidth_law(record, rung),
        )
    return next((v.sentence for v in found if v is not None), None)


def _prefill_laws(prefill: Prefill) -> Iterator[Violation | None]:
    yield positive_time("the prefill", prefill.wall_ms)
    if prefill.server_ms is not None:
        yield positive_time("the prefill", prefill.server_ms)
        yield enough_tokens("prefill", prefill.new_tokens, prefill.server_ms, min_ms=MIN_SERVER_MS)
        yield clock_covers_server("prefill", prefill.wall_ms, prefill.server_ms)
        yield clocks_agree("prefill", prefill.wall_ms, prefill.server_ms)
    elif prefill.kind != "cold_fallback":
        yield enough_tokens("prefill", prefill.new_tokens, prefill.wall_ms, min_ms=MIN_SERVER_MS)
    yield parts_add_up("prefill", prefill.chunks, prefill.server_ms or prefill.wall_ms)
    yield batches_in_order("prefill", prefill.chunks)


def _generation_laws(generation: Generation, record: RunRecord) -> Iterator[Violation | None]:
    asked, predicted = record.header.plan.generate_tokens, generation.predicted_tokens
    yield no_more_than_asked("generation", predicted, asked)
    if generation.server_ms is not None:
        yield enough_tokens("generation", predicted, generation.server_ms, min_ms=MIN_SERVER_MS)
        yield clock_covers_server("generation", generation.wall_ms, generation.server_ms)
        yield as_many_as_asked("generation", predicted, asked)
    elif (
        generation.itl_ms
    ):  # by our clock alone, as in reduced mode: it must have something to time
        yield enough_tokens("generation", predicted, sum(generation.itl_ms))
    if generation.ttft_ms is not None:
        yield first_token_within("generation", generation.ttft_ms, generation.wall_ms)


def _clocks_law(rung: Rung) -> Violation | None:
    """Of all repeats together, by their medians: one that stood still is a stray repeat."""
    pairs = [
        (g.wall_ms - (g.ttft_ms or 0.0), g.server_ms)
        for g in rung.generations
        if g.server_ms is not None
    ]
    if not pairs:
        return None
    ours_ms, server_ms = (median(side) for side in zip(*pairs, strict=True))
    return clocks_agree("generation", ours_ms, server_ms, slack_ms=APART_MS / 4.0)


def _bandwidth_law(record: RunRecord, rung: Rung) -> Violation | None:
    """Weights and cache read once a token, by a server on the CPU, against the memory's speed.

    Only where the weights are too large for any CPU's caches; the memory's speed is that of this
    run's own pace (a copy reads and writes), which caches make too high, never too low.
    """
    log, copies = record.event_data("server_log"), pooled_pace(record).get("copy")
    weights = log.get("weight_bytes_per_token")
    if not copies or not on_cpu(record) or not weights or weights < UNCACHED_BYTES:
        return None
    kv = (log.get("kv") or {}).get("bytes_per_token") or 0
    rates = generation_rates(rung)
    accepted = sum(g.draft_accepted_tokens or 0 for g in rung.generations)
    predicted = sum(g.predicted_tokens for g in rung.generations)
    if not rates or accepted >= predicted:
        return None
    return within_bandwidth(
        "generation",
        median(rates),
        bytes_per_token=weights + kv * rung.document_tokens,
        bandwidth_bytes_s=2 * max(copies) * 1e9,
        tokens_per_pass=predicted / (predicted - accepted),
    )


def _depth_law(record: RunRecord, rung: Rung) -> Violation | None:
    looks = [
        [r for g in c.generations if (r := generation_rate(g))]
        for c in record.controls
        if c.sitting == rung.sitting
    ]
    at_depth = generation_rates(rung)
    broken = depth_costs(looks, at_depth, rung.depth, confidence=DRIFT_CONFIDENCE)
    return broken or _slower_than_deeper(record, rung, at_depth)


def _slower_than_deeper(record: RunRecord, rung: Rung, here: Sequence[float]) -> Violation | None:
    """The same between rungs of a sitting: a deeper one that is surely faster says this was slowed.

    Looks at a machine that has states differ, which counts; speculation may gain with depth.
    """
    for other in record.rungs:
        if other.depth <= rung.depth or other.sitting != rung.sitting or other.failure:
            continue
        deeper = generation_rates(other)
        ratio = same_run_ratio(deeper, here, confidence=DRIFT_CONFIDENCE, apart=True)
        if isinstance(ratio, Unjudgeable) or ratio.low <= 1.0 + DEPTH_GAIN_SHARE:
            continue
        return Violation(
            "depth never speeds generation up",
            f"generation at {other.depth:,} is {percent(ratio.change)} against {rung.depth:,} "
            f"({span(ratio.low - 1.0, ratio.high - 1.0)}), and more context never speeds "
            f"it up: something slowed the measurement at {rung.depth:,}",
        )
    return None


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
