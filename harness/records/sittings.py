"""Runs measured in several sittings: what may be kept of one that was cut short, and what not.

A run is resumed when everything that its numbers depend on is as it was: the plan, the machine, the
server's build and flags, the model. Each sitting has its own controls. The opening control of the
next sitting closes an earlier one that was cut short, so that A-B-A holds for each by itself.
"""

from collections.abc import Iterable, Mapping

from harness.records.lines import CURVE, Control, Header, Rung, RunRecord


def same_plan(a: Header, b: Header) -> bool:
    """Whether two runs set out to do the same, whatever the model's tokenizer makes of it."""
    counted = {"document_tokens", "cold_repeats"}
    same = a.plan.model_dump(exclude=counted) == b.plan.model_dump(exclude=counted)
    told = all(getattr(a, n) == getattr(b, n) for n in ("label", "profile", "matrix", "arm"))
    return same and told and a.server.origin == b.server.origin


def unfinished(record: RunRecord) -> bool:
    """Whether a measured run did not come to its end."""
    return not record.imported and (record.footer is None or not record.footer.complete)


def finished_arms(newest_first: Iterable[RunRecord], now: Header) -> frozenset[str]:
    """Run ids of the arms that the last matrix like `now`'s had behind it when it was cut short.

    Empty where the arm measured last was not cut short: then the matrix came to its end, or it was
    stopped between two arms; neither is gone on with. An arm that failed by itself is passed over.
    """
    runs = [
        r
        for r in newest_first
        if not r.imported
        and r.header.arm is not None
        and (r.header.label, r.header.profile, r.header.matrix)
        == (now.label, now.profile, now.matrix)
    ]
    if now.arm is None or not runs or not _cut_short(runs[0]):
        return frozenset()
    seen, found = {runs[0].header.arm}, set()
    for record in runs[1:]:
        done = len(finished_rungs(record)) == len(record.header.plan.depths)
        if record.header.arm in seen or (_cut_short(record) and not done):
            break
        seen.add(record.header.arm)
        if not unfinished(record):
            found.add(record.header.run_id)
    return frozenset(found)


def _cut_short(record: RunRecord) -> bool:
    """Whether a run was killed or interrupted, and did not fail by itself."""
    failure = record.footer.failure if record.footer is not None else None
    return record.footer is None or (failure is not None and failure.cause == "INTERRUPTED")


def finished_rungs(record: RunRecord) -> dict[int, Rung]:
    """The rungs that need not be measured again, by depth, shallowest first."""
    return {r.depth: r for r in record.rungs if r.failure is None}


def changed(then: Header, now: Header) -> tuple[str, ...]:
    """What differs between two sittings that must not, a phrase each; empty when nothing does."""
    pairs: list[tuple[str, object, object]] = [
        ("harness", then.harness_version, now.harness_version),
        ("machine class", then.machine.machine_class, now.machine.machine_class),
        ("CPU", then.machine.cpu, now.machine.cpu),
        ("CPU cores", then.machine.cpu_cores, now.machine.cpu_cores),
        ("memory", then.machine.memory_bytes, now.machine.memory_bytes),
        ("GPUs", ", ".join(then.machine.gpus), ", ".join(now.machine.gpus)),
        ("driver", then.machine.driver, now.machine.driver),
        ("OS", then.machine.os, now.machine.os),
        ("server build", then.server.build, now.server.build),
        ("server context", then.server.n_ctx, now.server.n_ctx),
        ("reduced mode", then.server.reduced, now.server.reduced),
        ("model", then.model.identity, now.model.identity),
        ("model's hash", then.model.content_hash, now.model.content_hash),
        ("document tokens", then.plan.document_tokens, now.plan.document_tokens),
    ]
    flags_then, flags_now = _flags(then), _flags(now)
    for name in sorted({*flags_then, *flags_now}):
        pairs.append((name, flags_then.get(name), flags_now.get(name)))
    return tuple(f"{name}: {_shown(a)} then, {_shown(b)} now" for name, a, b in pairs if a != b)


def climb_ms(record: RunRecord, depth: int) -> float:
    """Wall time that reading the document up to the rung `depth` took on the way up."""
    total = 0.0
    for rung in record.rungs:
        for prefill in rung.prefills if rung.depth <= depth else ():
            if prefill.kind != "cold_repeat":
                total = prefill.wall_ms + (total if prefill.kind == "climb" else 0.0)
    return total


def bracket(record: RunRecord, sitting: int) -> tuple[Control | None, Control | None]:
    """The controls before and after a sitting; the next sitting's first closes one cut short."""
    own = [c for c in record.controls if c.sitting == sitting]
    before = next((c for c in own if c.position == "before"), None)
    after = next((c for c in reversed(own) if c.position == "after"), None)
    later = (c for c in record.controls if c.sitting > sitting and c.position == "before")
    return before, after if after is not None else next(later, None)


def read_so_far(record: RunRecord, depth: int) -> str | None:
    """How far the prefill of an unfinished rung had come, as one phrase; `None` if unknown."""
    points = [
        point
        for event in record.events
        if event.code == CURVE and event.data.get("depth") == depth
        for point in event.data.get("points", ())
    ]
    if not points:
        return None
    tokens, ms = points[-1]
    return f"{tokens} tokens of its prompt had been read after {ms / 1e3:.0f} s"


def _flags(header: Header) -> Mapping[str, object]:
    return {f"flag {n}": v for n, v in {**header.server.key, **header.server.noted}.items()}


def _shown(value: object) -> str:
    return "not given" if value in (None, "") else str(value)
