"""A run's memory in sentences: the cache and what lies beyond it, and the least free RAM."""

from collections.abc import Iterator
from statistics import median

from harness.llamacpp.kv import Excess, excess
from harness.quantities import size
from harness.records.lines import RunRecord


def sentences(record: RunRecord) -> Iterator[str]:
    """What can be said; nothing where it was not readable."""
    kv = record.event_data("server_log").get("kv") or {}
    theory, measured = kv.get("theory_bytes"), kv.get("measured_bytes")
    if theory and measured:
        yield (
            f"KV cache: {size(measured)} in the server's log, {size(theory)} by "
            f"theory ({kv['bytes_per_token']:,} B/token)"
        )
    beyond = memory_beyond_theory(record)
    if beyond is not None:
        rungs = f"a straight line through {len(_by_depth(record))} rungs"
        grows = f"{beyond.bytes_per_token:+,.0f} B per token of depth ({rungs})"
        if beyond.bytes_per_token < 0:
            grows = f"no growth with depth ({rungs})"
        constant = size(beyond.constant_bytes)
        yield f"server memory beyond weights and KV cache: {constant}, {grows}"
    free = [m.host_available_bytes for r in record.rungs for m in r.memory]
    known = [size for size in free if size is not None]
    if known:
        yield f"least free memory of the machine: {size(min(known))}"


def memory_beyond_theory(record: RunRecord) -> Excess | None:
    """What the server's processes hold beyond weights and cache, by rungs.

    A server that computes on the CPU touches its cache's pages as it fills them, so by theory it
    holds `bytes_per_token` for every token read; on a GPU the whole cache is there from the start.
    `None` with fewer than two rungs, or without the sizes that the comparison needs.
    """
    log = record.event_data("server_log")
    kv, on_gpu = log.get("kv") or {}, log.get("on_gpu")
    total, per_token = kv.get("theory_bytes"), kv.get("bytes_per_token")
    weights = sum(int(b["bytes"]) for b in log.get("buffers") or () if b.get("use") == "model")
    if total is None or per_token is None or not weights or on_gpu is None:
        return None
    fixed = kv.get("fixed_bytes") or 0

    def cache(tokens: int) -> int:
        return int(total if on_gpu else min(total, fixed + per_token * tokens))

    return excess([(tokens, held, weights + cache(tokens)) for tokens, held in _by_depth(record)])


def _by_depth(record: RunRecord) -> list[tuple[int, int]]:
    """(document tokens, bytes held by the server's processes and on the device) by rung."""
    points = []
    for rung in record.rungs:
        held = [
            (m.rss_bytes or 0) + (m.device_bytes or 0)
            for m in rung.memory
            if m.rss_bytes is not None
        ]
        if held and rung.failure is None:
            points.append((rung.document_tokens, round(median(held))))
    return points
