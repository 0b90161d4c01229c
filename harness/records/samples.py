"""From records to samples: what each (depth, metric) cell was measured from. Nothing is judged."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from harness.records.fidelity import Numbers
from harness.records.lines import (
    AskRecord,
    Chunk,
    Generation,
    GpuAt,
    Prefill,
    Rung,
    RunRecord,
    Timed,
)
from harness.records.metrics import FIDELITY, MEASURED, RETRIEVAL, Metric
from harness.records.strict import Strict

REUSE_TOLERANCE_TOKENS = 16
"""A question may read this many tokens more than its tail (seams, template) and still be warm."""

GIB = 2**30


class Samples(Strict):
    """Raw samples of one rung in one run, as they are stored in a baseline too.

    `chunks` is the prefill curve of the rung's own span (repeated readings of the same span
    reduced to their median) and `prefill_tok_s` the rates of whole readings of that span;
    `generation_tok_s`, `ttft_ms` (warm) and `memory_gib` are samples;
    `retrieval` is (right answers, answers asked for, right controls, controls asked for) and
    `needles` the same by needle: (right, asked) of each, in whatever order it was asked for.
    `numbers` has no values of its own: only against others.
    `gpu` is what the working GPU mostly ran at meanwhile.
    """

    chunks: tuple[Chunk, ...] = ()
    prefill_tok_s: tuple[float, ...] = ()
    generation_tok_s: tuple[float, ...] = ()
    ttft_ms: tuple[float, ...] = ()
    memory_gib: tuple[float, ...] = ()
    retrieval: tuple[int, int, int, int] = (0, 0, 0, 0)
    needles: tuple[tuple[int, int], ...] = ()
    cold_ttft_ms: float | None = None
    gpu: GpuAt | None = None
    numbers: Numbers | None = None


def samples_of(rung: Rung, *, contended: bool = False) -> Samples:
    """The samples of one rung: those nobody disturbed, or with `contended` all of them.

    Answers count either way: load makes them late, not wrong.
    """
    climbs = [p for p in rung.prefills if p.kind != "cold_repeat"]
    if not contended:
        rung = rung.model_copy(
            update={
                "prefills": tuple(p for p in rung.prefills if p.contention is None),
                "generations": tuple(g for g in rung.generations if g.contention is None),
            }
        )
    start = climbs[-1].planned_cached_tokens if climbs else 0
    return Samples(
        chunks=_curve(rung.prefills, start),
        prefill_tok_s=_prefill_rates(rung.prefills, start),
        generation_tok_s=tuple(r for g in rung.generations if (r := generation_rate(g))),
        ttft_ms=tuple(
            a.ttft_ms
            for a in _warm_asks(rung)
            if a.ttft_ms is not None and (contended or a.contention is None)
        ),
        memory_gib=tuple(
            ((m.rss_bytes or 0) + (m.device_bytes or 0)) / GIB
            for m in rung.memory
            if m.rss_bytes is not None or m.device_bytes is not None
        ),
        retrieval=(
            sum(a.needles_right for a in rung.counted_asks),
            sum(a.needles_asked for a in rung.counted_asks),
            sum(a.control_right for a in rung.counted_asks),
            len(rung.counted_asks),
        ),
        needles=_by_needle(rung.counted_asks),
        cold_ttft_ms=rung.cold_ttft_ms,
        gpu=mostly_at(rung.generations),
        numbers=next((look.kept for look in rung.numbers if look.steps), None),
    )


def mostly_at(requests: Iterable[Timed]) -> GpuAt | None:
    """The median clock of the GPU over some requests, and what held it in a third of them."""
    told = [request.gpu for request in requests if request.gpu is not None]
    if not told:
        return None
    known = [gpu.held_by for gpu in told if gpu.held_by is not None]
    counts = Counter(reason for held_by in known for reason in held_by)
    often = tuple(reason for reason, count in counts.most_common() if 3 * count >= len(known))
    clock = median(gpu.core_mhz for gpu in told)
    return GpuAt(counter=told[-1].counter, core_mhz=clock, held_by=often if known else None)


def values_of(metric: Metric, samples: Samples) -> tuple[float, ...]:
    """The samples of one metric; for retrieval the share of right answers, once."""
    if metric is RETRIEVAL:
        right, asked, *_ = samples.retrieval
        return (right / asked,) if asked else ()
    if metric is FIDELITY:
        return ()
    found: tuple[float, ...] = getattr(samples, metric.fields[0])
    return found


def without(metric: Metric, samples: Samples) -> Samples:
    """The samples without those of one metric."""
    empty = Samples()
    return samples.model_copy(update={f: getattr(empty, f) for f in metric.fields})


def impossible_samples(samples: Samples) -> str | None:
    """What in accepted samples cannot be, in words: they can be edited by hand."""
    for name in MEASURED:
        if any(value <= 0.0 for value in getattr(samples, name)):
            return f"{name} holds a value that is not above zero"
    if any(c.ms <= 0.0 or not 0 <= c.start_tokens < c.end_tokens for c in samples.chunks):
        return "a batch of its curve has no tokens or no time"
    right, asked, controls_right, controls = samples.retrieval
    pairs = [(right, asked), (controls_right, controls), *samples.needles]
    if any(not 0 <= some <= of for some, of in pairs) or any(not of for _, of in samples.needles):
        return "more answers are right than were asked for"
    return None


def _warm_asks(rung: Rung) -> Sequence[AskRecord]:
    """Asks about a document already read: by the server's counts, else by its times."""
    if any(ask.new_tokens is not None for ask in rung.asks):
        return [ask for ask in rung.asks if warm(ask)]
    return rung.asks[1:] if caching_at(rung).kept else ()


def warm(ask: AskRecord) -> bool:
    """Whether only the question was read anew, as planned (unknown in reduced mode: False)."""
    if ask.new_tokens is None:
        return False
    return ask.new_tokens <= ask.planned_new_tokens + REUSE_TOLERANCE_TOKENS


def disturbances(rung: Rung, metric: Metric) -> tuple[str, ...]:
    """What disturbed the samples of one metric, a sentence per disturbed sample."""
    source: Sequence[Timed] = getattr(rung, metric.requests) if metric.requests else ()
    return tuple(s.contention for s in source if s.contention is not None)


def generation_rate(generation: Generation) -> float | None:
    """Generated tokens per second by the server's clock; by event gaps where it has none."""
    if generation.server_ms is not None and generation.server_ms > 0:
        return generation.predicted_tokens / generation.server_ms * 1e3
    span_ms = sum(generation.itl_ms)
    if span_ms and generation.predicted_tokens > 1:
        return (generation.predicted_tokens - 1) / span_ms * 1e3
    return None


def generation_rates(rung: Rung) -> tuple[float, ...]:
    """The rates of the generations that nobody disturbed."""
    undisturbed = (g for g in rung.generations if g.contention is None)
    return tuple(rate for g in undisturbed if (rate := generation_rate(g)))


def prefill_rate(prefill: Prefill) -> float | None:
    """Tokens per second of one prefill request, by the server's clock, else by ours."""
    elapsed = prefill.server_ms or prefill.wall_ms
    if elapsed <= 0 or prefill.new_tokens <= 0:
        return None
    return prefill.new_tokens / elapsed * 1e3


def _by_needle(asks: Iterable[AskRecord]) -> tuple[tuple[int, int], ...]:
    """(right, asked) of each needle; the orders of asking ask for the same ones.

    Empty where an ask does not say what it expected.
    """
    found: dict[str, list[int]] = {}
    for ask in asks:
        needles = [
            (ask.given.get(number) != code, code)
            for number, code in ask.expected.items()
            if number != ask.control_number
        ]
        if len(needles) != ask.needles_asked:
            return ()
        # Two codes for one question count as wrong, though the record keeps the first of them.
        for place, (_, code) in enumerate(sorted(needles)):
            of_needle = found.setdefault(code, [0, 0])
            of_needle[0] += place < ask.needles_right
            of_needle[1] += 1
    return tuple((right, asked) for _, (right, asked) in sorted(found.items()))


def _curve(prefills: Iterable[Prefill], start: int) -> tuple[Chunk, ...]:
    spans: dict[tuple[int, int], list[Chunk]] = {}
    for prefill in prefills:
        for chunk in prefill.chunks:
            if chunk.start_tokens >= start:
                spans.setdefault((chunk.start_tokens, chunk.end_tokens), []).append(chunk)
    return tuple(
        read[0] if len(read) == 1 else read[0].model_copy(update={"ms": median(c.ms for c in read)})
        for _, read in sorted(spans.items())
    )


def _prefill_rates(prefills: tuple[Prefill, ...], start: int) -> tuple[float, ...]:
    counted = [p for p in prefills if p.kind != "cold_repeat" or start == 0]
    return tuple(rate for p in counted if (rate := prefill_rate(p)))


def prefilled_tokens(record: RunRecord) -> int:
    """All prompt tokens the server processed for this record, by its own counts."""
    total = 0
    for control in record.controls:
        total += sum(p.new_tokens for p in control.prefills)
        total += sum(g.new_tokens or 0 for g in control.generations)
    for rung in record.rungs:
        total += sum(p.new_tokens for p in rung.prefills)
        total += sum(a.new_tokens or 0 for a in rung.asks)
        total += sum(g.new_tokens or 0 for g in rung.generations)
        total += sum(n.new_tokens for n in rung.numbers)
    return total


CACHED_SHARE = 0.5
"""Kept prompts answer in less than this share of a cold reading's time; others need all of it."""


SHORTEST_COLD_MS = 50.0
"""A reading shorter than this tells nothing: connection and template take as long."""


@dataclass(frozen=True, slots=True)
class Caching:
    """Whether prompts are kept (`None`: cannot be told), and the sentence that says so."""

    kept: bool | None
    sentence: str


def caching_of(cold_ms: Sequence[float], again_ms: Sequence[float]) -> Caching:
    """From times to first token of documents never met, and of documents just asked about, ms."""
    if not cold_ms or not again_ms:
        return Caching(None, "whether the server keeps prompts cannot be told: too few readings")
    cold, again = median(cold_ms), median(again_ms)
    if cold < SHORTEST_COLD_MS:
        return Caching(
            None, f"whether the server keeps prompts cannot be told from {cold:.0f} ms of reading"
        )
    seen = f"{again:,.0f} ms to the first token of another question, {cold:,.0f} ms unread"
    if again < CACHED_SHARE * cold:
        return Caching(
            True,
            f"the server keeps prompts ({seen}): questions count as warm, never as cold",
        )
    return Caching(
        False, f"the server keeps no prompts ({seen}): there is no warm TTFT, only a cold one"
    )


def caching_at(rung: Rung) -> Caching:
    """The same for a rung of a server in reduced mode."""
    cold = [p.wall_ms for p in rung.prefills if p.kind == "cold_repeat"]
    again = [a.ttft_ms for a in rung.asks[1:] if a.ttft_ms is not None]
    return caching_of(cold, again)
