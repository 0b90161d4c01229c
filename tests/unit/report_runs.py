"""Made-up runs as reports need them: rungs, a baseline, a cliff, hostile text, other load."""

import random
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

DEPTHS = (2048, 8192, 32768, 131072)
BANDS = {name: metric.band for name, metric in METRICS.items()}
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\u2028&amp;"
)


def judged(
    *, cliff: float = 1.0, generation: float = 1.0, hostile: bool = False, **changes: str
) -> Judged:
    """A run against a baseline of three; `cliff` scales the prefill from 16K on."""
    runs = [record(seed) for seed in (1, 2, 3)]
    now = record(4, cliff=cliff, generation=generation, hostile=hostile, **changes)
    baseline = Baseline(
        key=key_of(now.header),
        runs=tuple(accepted(run, "2026-11-01T00:00:00+00:00", None) for run in runs),
    )
    return Judged(now, judge(now, baseline, BANDS), baseline)


def record(
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
    before = _control("before", rng, clock)
    rungs = [_rung(d, rng, clock, cliff, generation, hostile) for d in DEPTHS]
    after = _control("after", rng, clock)
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
        header=_header(seed, machine, build, HOSTILE if hostile else "Qwen3.5-2B"),
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


def _header(seed: int, machine: str, build: str, model: str) -> Header:
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


def _rung(
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
    asks = tuple(_ask(order, depth, rng, clock, wrong) for order in ("forward", "reversed"))
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


def _ask(order: str, depth: int, rng: random.Random, clock: _Clock, wrong: int) -> AskRecord:
    codes = [f"MEM-{depth % 1000:03}{n:03}" for n in range(1, 6)]
    if order == "reversed":
        codes.reverse()
    expected = dict(enumerate([*codes, "CTL-000006"], start=1))
    given = {n: c if n == 6 or n > wrong else "MEM-999999" for n, c in expected.items()}
    lines = "\n".join(f"Q{n}={c}" for n, c in given.items())
    return AskRecord.model_validate(
        {
            "order": order,
            "expected": expected,
            "given": given,
            "control_number": 6,
            "answer": f"{lines}\n{HOSTILE}" if wrong else lines,
            "reasoning": "",
            "finish_reason": "stop",
            "needles_right": 5 - wrong,
            "needles_asked": 5,
            "codes_present": 5 - wrong,
            "control_right": True,
            "prompt_tokens": 2000,
            "new_tokens": 90,
            "cached_tokens": 1910,
            "planned_new_tokens": 90,
            "predicted_tokens": 70,
            "predicted_ms": 900.0,
            "ttft_ms": (120.0 + depth / 400) * rng.gauss(1.0, 0.01),
            "wall_ms": 1200.0,
            "failure_class": "digit_changed" if wrong else "right",
            "failure_reason": "changed digits" if wrong else "",
            **clock.take(1200.0),
        }
    )


def _control(position: str, rng: random.Random, clock: _Clock) -> Control:
    prefills = []
    for _ in range(3):
        ms = 110.0 * rng.gauss(1.0, 0.01)
        prefills.append(
            Prefill(
                kind="cold_repeat",
                new_tokens=290,
                cached_tokens=0,
                planned_cached_tokens=0,
                server_ms=ms,
                wall_ms=ms + 2,
                **clock.take(ms),
            )
        )
    generations = []
    for _ in range(3):
        ms = 128 / 90 * 1e3 * rng.gauss(1.0, 0.01)
        generations.append(
            Generation(
                predicted_tokens=128,
                server_ms=ms,
                wall_ms=ms + 2,
                ttft_ms=20.0,
                new_tokens=None,
                cached_tokens=0,
                **clock.take(ms),
            )
        )
    return Control.model_validate(
        {
            "position": position,
            "prefills": tuple(prefills),
            "generations": tuple(generations),
        }
    )
