"""Made-up records: known numbers for rules, and whole runs as reports need them."""

import random
from collections.abc import Sequence
from itertools import pairwise

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import (
    AskRecord,
    Chunk,
    Control,
    Event,
    Footer,
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
from harness.records.metrics import METRICS
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge

GIB = 2**30
DEPTHS = (2048, 8192, 32768, 131072)
BANDS = {name: metric.band for name, metric in METRICS.items()}
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\u2028&amp;"
)


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


def judged(
    *, cliff: float = 1.0, generation: float = 1.0, hostile: bool = False, **changes: str
) -> Judged:
    """A run against a baseline of three; `cliff` scales the prefill from 16K on."""
    runs = [whole_run(seed) for seed in (1, 2, 3)]
    now = whole_run(4, cliff=cliff, generation=generation, hostile=hostile, **changes)
    baseline = Baseline(
        key=key_of(now.header),
        runs=tuple(accepted(r, "2026-11-01T00:00:00+00:00", None) for r in runs),
    )
    return Judged(now, judge(now, baseline, BANDS), baseline)


def whole_run(
    seed: int,
    *,
    cliff: float = 1.0,
    generation: float = 1.0,
    hostile: bool = False,
    machine: str = "evo-x2",
    build: str = "b11480-0a1b2c3d",
) -> RunRecord:
    rng = random.Random(seed)
    clock = _Clock()
    before = _timed_control("before", rng, clock)
    rungs = [_timed_rung(d, rng, clock, cliff, generation, hostile) for d in DEPTHS]
    after = _timed_control("after", rng, clock)
    words = HOSTILE if hostile else "ggml_vulkan: Failed to allocate pinned memory"
    log = {
        "warnings": [words],
        "findings": [
            {"code": "pinned_memory", "reason": "slower uploads", "count": 3, "example": words}
        ],
        "kv": {
            "theory_bytes": 2684354560,
            "measured_bytes": 2696937472,
            "bytes_per_token": 20480,
        },
    }
    machine_account = {
        "summary": "41 of 900 s contended, at worst: firefox used 38 % of the CPU",
        "cpu_mhz": [3100.0, 5100.0],
        "gpu_mhz": [1200.0, 2900.0],
        "cpu_peak_c": 91.0,
        "gpu_peak_c": 84.0,
    }
    return RunRecord(
        header=_box_header(seed, machine, build, HOSTILE if hostile else "Qwen3.5-2B"),
        controls=(before, after),
        rungs=tuple(rungs),
        events=(
            Event(code="server_log", message="what the server's log says", data=log),
            Event(code="machine", message="the machine's other load", data=machine_account),
            Event(code="cliff", message="prefill falls by half from 16,384 tokens on"),
        ),
        footer=Footer(
            ended_at="2026-11-30T03:00:00+00:00",
            complete=True,
            prefilled_tokens=131_000,
            elapsed_s=clock.now_s,
        ),
    )


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def take(self, ms: float) -> dict[str, float]:
        start = self.now_s
        self.now_s += ms / 1e3
        return {"start_s": start, "end_s": self.now_s}


def _box_header(seed: int, machine: str, build: str, model: str) -> Header:
    return Header(
        run_id=f"202611{seed:02}-020000-{seed:06x}",
        started_at=f"2026-11-{seed:02}T02:00:00+00:00",
        harness_version="0.1.0",
        plan=Plan(
            ctx_tokens=DEPTHS[-1],
            depths=DEPTHS,
            document_tokens=tuple(round(0.9 * d) for d in DEPTHS),
            fill=0.9,
            seed=0,
            background="plain",
            grammar_version=1,
            generate_tokens=128,
            repeats=6,
        ),
        machine=Machine(
            machine_class=machine,
            cpu="AMD Ryzen AI Max+ 395",
            cpu_cores=16,
            memory_bytes=2**37,
            gpus=("Radeon 8060S",),
            os="Linux 6.18",
            python="3.11",
        ),
        server=ServerIdentity(
            origin="binary",
            build=build,
            argv=("llama-server", "-c", "131072", "-ub", "512"),
            n_ctx=DEPTHS[-1],
            key={"ctx": "131072", "ubatch": "512", "batch": "2048", "cache_type_k": "q8_0"},
            noted={"threads": "16" if seed < 4 else "8"},
        ),
        model=ModelIdentity(identity="model-1", name=model, parameters=1_880_000_000),
    )


def _timed_rung(
    depth: int,
    rng: random.Random,
    clock: _Clock,
    cliff: float,
    generation: float,
    hostile: bool,
) -> Rung:
    start = 0 if depth == DEPTHS[0] else round(0.9 * depth / 4)
    end = round(0.9 * depth)
    edges = [*range(start, end, 512), end]
    chunks = []
    for a, b in pairwise(edges):
        pace = 2600.0 / (1 + a / 20000) * rng.gauss(1.0, 0.015) * (cliff if a >= 16384 else 1.0)
        chunks.append(Chunk(start_tokens=a, end_tokens=b, ms=(b - a) / pace * 1e3))
    total = sum(c.ms for c in chunks)
    prefill = Prefill(
        kind="climb",
        new_tokens=end - start,
        cached_tokens=start,
        planned_cached_tokens=start,
        server_ms=total,
        wall_ms=total + 3,
        chunks=tuple(chunks),
        **clock.take(total),
    )
    wrong = 2 if hostile and depth == DEPTHS[-1] else 0
    asks = tuple(_timed_ask(order, depth, rng, clock, wrong) for order in ("forward", "reversed"))
    rate = 90.0 / (1 + depth / 60000) * (generation if depth >= 32768 else 1.0)
    generations = []
    for number in range(6):
        ms = 128 / (rate * rng.gauss(1.0, 0.008)) * 1e3
        load = "contention: firefox used 38 % of the CPU" if number == 5 else None
        generations.append(
            Generation(
                predicted_tokens=128,
                server_ms=ms * (1.4 if load else 1.0),
                wall_ms=ms * 1.5,
                ttft_ms=20.0,
                new_tokens=1,
                cached_tokens=end,
                contention=load,
                **clock.take(ms),
            )
        )
    return Rung(
        depth=depth,
        document_tokens=end,
        prefills=(prefill,),
        asks=asks,
        generations=tuple(generations),
        memory=tuple(
            MemorySample(rss_bytes=round((4.0 + depth / 100000) * 2**30)) for _ in range(3)
        ),
        cold_ttft_ms=total,
        notes=("a note on the rung",) if depth == DEPTHS[0] else (),
        elapsed_s=60.0,
    )


def _timed_ask(order: str, depth: int, rng: random.Random, clock: _Clock, wrong: int) -> AskRecord:
    codes = [f"MEM-{depth % 1000:03}{n:03}" for n in range(1, 6)]
    if order == "reversed":
        codes.reverse()
    expected = dict(enumerate([*codes, "CTL-000006"], start=1))
    given = {n: c if n == 6 or n > wrong else "MEM-999999" for n, c in expected.items()}
    lines = "\n".join(f"Q{n}={c}" for n, c in given.items())
    return ask(5 - wrong).model_copy(
        update={
            "order": order,
            "expected": expected,
            "given": given,
            "answer": f"{lines}\n{HOSTILE}" if wrong else lines,
            "prompt_tokens": 2000,
            "cached_tokens": 1910,
            "predicted_ms": 900.0,
            "ttft_ms": (120.0 + depth / 400) * rng.gauss(1.0, 0.01),
            "wall_ms": 1200.0,
            **clock.take(1200.0),
        }
    )


def _timed_control(position: str, rng: random.Random, clock: _Clock) -> Control:
    def read() -> Prefill:
        ms = 110.0 * rng.gauss(1.0, 0.01)
        return prefill(0, 290, 290 / ms * 1e3, chunk=290).model_copy(
            update={"kind": "cold_repeat", "chunks": (), **clock.take(ms)}
        )

    def generate() -> Generation:
        ms = 128 / 90 * 1e3 * rng.gauss(1.0, 0.01)
        return generation(128 / ms * 1e3).model_copy(
            update={"ttft_ms": 20.0, "new_tokens": None, "cached_tokens": 0, **clock.take(ms)}
        )

    prefills = tuple(read() for _ in range(3))
    generations = tuple(generate() for _ in range(3))
    return Control(position=position, prefills=prefills, generations=generations)
