"""Made-up records with known numbers, for tests of what is done with records."""

from collections.abc import Sequence
from itertools import pairwise

from harness.records.lines import (
    AskRecord,
    Chunk,
    Control,
    Event,
    Generation,
    Header,
    Machine,
    MemorySample,
    ModelIdentity,
    Plan,
    Prefill,
    Rung,
    RunRecord,
    ServerIdentity,
)

GIB = 2**30


def header(
    depths: tuple[int, ...] = (2048, 8192), run_id: str = "20260101-000000-aaaaaa"
) -> Header:
    return Header(
        run_id=run_id,
        started_at="2026-01-01T00:00:00+00:00",
        harness_version="0",
        plan=Plan(
            ctx_tokens=max(depths),
            depths=depths,
            document_tokens=tuple(round(0.9 * d) for d in depths),
            fill=0.9,
            seed=0,
            background="plain",
            grammar_version=1,
            generate_tokens=128,
            repeats=3,
        ),
        machine=Machine(
            machine_class="box", cpu="CPU", cpu_cores=2, memory_bytes=GIB, os="Linux", python="3.11"
        ),
        server=ServerIdentity(
            origin="embedded", build="b1", n_ctx=max(depths), key={"ctx": "8192"}
        ),
        model=ModelIdentity(identity="model-1", name="model"),
    )


def prefill(start: int, end: int, tok_s: float, *, chunk: int = 256) -> Prefill:
    """A climb from `start` to `end` tokens at an even pace."""
    edges = [*range(start, end, chunk), end]
    total_ms = (end - start) / tok_s * 1e3
    return Prefill(
        kind="climb",
        new_tokens=end - start,
        cached_tokens=start,
        planned_cached_tokens=start,
        server_ms=total_ms,
        wall_ms=total_ms + 2,
        chunks=tuple(
            Chunk(start_tokens=a, end_tokens=b, ms=(b - a) / tok_s * 1e3)
            for a, b in pairwise(edges)
        ),
    )


def ask(
    right: int = 5, *, control: bool = True, ttft_ms: float = 50.0, **changes: object
) -> AskRecord:
    expected = {n: f"MEM-00000{n}" for n in range(1, 6)} | {6: "CTL-000006"}
    given = {n: code if n <= right else "MEM-999999" for n, code in expected.items()}
    given[6] = expected[6] if control else "CTL-999999"
    record = AskRecord(
        order="forward",
        expected=expected,
        given=given,
        control_number=6,
        answer="\n".join(f"Q{n}={c}" for n, c in given.items()),
        reasoning="",
        finish_reason="stop",
        needles_right=right,
        needles_asked=5,
        codes_present=right,
        control_right=control,
        prompt_tokens=1900,
        new_tokens=90,
        cached_tokens=1810,
        planned_new_tokens=90,
        predicted_tokens=70,
        predicted_ms=100.0,
        ttft_ms=ttft_ms,
        wall_ms=ttft_ms + 50.0,
        failure_class="right" if control and right == 5 else "digit_changed",
        failure_reason="" if control and right == 5 else "changed digits",
        invalid=() if control else ("control_failed",),
    )
    return record.model_copy(update=dict(changes))


def generation(tok_s: float) -> Generation:
    ms = 128 / tok_s * 1e3
    return Generation(
        predicted_tokens=128,
        server_ms=ms,
        wall_ms=ms + 2,
        ttft_ms=1.0,
        new_tokens=1,
        cached_tokens=1900,
    )


def rung(
    depth: int = 2048,
    *,
    prefill_tok_s: float = 1000.0,
    generation_tok_s: Sequence[float] = (100.0, 101.0, 99.0),
    ttft_ms: Sequence[float] = (50.0, 51.0, 49.0),
    memory_gib: float = 4.0,
    asks: Sequence[AskRecord] | None = None,
    start: int = 0,
) -> Rung:
    asked = tuple(asks) if asks is not None else tuple(ask(ttft_ms=t) for t in ttft_ms)
    return Rung(
        depth=depth,
        document_tokens=round(0.9 * depth),
        prefills=(prefill(start, round(0.9 * depth), prefill_tok_s),),
        asks=asked,
        generations=tuple(generation(r) for r in generation_tok_s),
        memory=tuple(MemorySample(rss_bytes=round(memory_gib * GIB)) for _ in range(3)),
        cold_ttft_ms=1900.0,
        elapsed_s=3.0,
    )


def control(position: str, tok_s: Sequence[float]) -> Control:
    return Control.model_validate(
        {
            "position": position,
            "prefills": [prefill(0, 200, 2000.0) for _ in tok_s],
            "generations": [generation(r) for r in tok_s],
        }
    )


def pace(compute: Sequence[float], position: str = "before") -> Event:
    return Event(code="pace", message="", data={"position": position, "compute": list(compute)})


def server_log(*, on_gpu: bool | None) -> Event:
    return Event(code="server_log", message="", data={"on_gpu": on_gpu})


def record(
    *rungs: Rung, controls: Sequence[Control] = (), events: Sequence[Event] = ()
) -> RunRecord:
    depths = tuple(r.depth for r in rungs)
    return RunRecord(
        header=header(depths), rungs=rungs, controls=tuple(controls), events=tuple(events)
    )
