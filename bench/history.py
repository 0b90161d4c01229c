"""How long history and report take over many runs: `python -m bench.history [RUNS]`.

Makes synthetic records of four rungs (2K to 128K, batches of 512) in a temporary folder, then times
the history read for the first time, read again from its index, the change points of all cells, and
a report of the newest run with the history of all.
"""

import itertools
import random
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from harness.records.files import read_run
from harness.records.history import read_history
from harness.records.lines import (
    AskRecord,
    Chunk,
    Footer,
    Generation,
    Header,
    Machine,
    MemorySample,
    ModelIdentity,
    Plan,
    Prefill,
    Rung,
    ServerIdentity,
)
from harness.records.metrics import METRICS
from harness.records.points import by_cell
from harness.report.html import page
from harness.verdicts.judged import Judged
from harness.verdicts.trend import findings, points_of
from harness.verdicts.verdict import judge

DEPTHS = (2048, 8192, 32768, 131072)
STEP_AT = 0.8


def write_runs(folder: Path, count: int) -> None:
    """`count` nightly runs; generation loses 6 % in the newest fifth."""
    rng = random.Random(8)
    first = datetime.fromisoformat("2024-01-01T02:00:00+00:00")
    for index in range(count):
        when = first + timedelta(days=index)
        speed = rng.gauss(1.0, 0.02) * (0.94 if index >= STEP_AT * count else 1.0)
        lines = [_header(when, index), *(_rung(d, speed, rng) for d in DEPTHS)]
        footer = Footer(
            ended_at=when.isoformat(), complete=True, prefilled_tokens=120_000, elapsed_s=900.0
        )
        text = "".join(x.model_dump_json() + "\n" for x in [*lines, footer])
        (folder / f"{lines[0].run_id}.jsonl").write_text(text)


def _header(when: datetime, index: int) -> Header:
    documents = tuple(round(0.9 * d) for d in DEPTHS)
    return Header(
        run_id=f"{when:%Y%m%d-%H%M%S}-{index:06x}",
        started_at=when.isoformat(),
        harness_version="0",
        plan=Plan(
            ctx_tokens=DEPTHS[-1],
            depths=DEPTHS,
            document_tokens=documents,
            fill=0.9,
            seed=0,
            background="plain",
            grammar_version=1,
            generate_tokens=128,
            repeats=6,
        ),
        machine=Machine(
            machine_class="evo-x2",
            cpu="AMD Ryzen AI Max+ 395",
            cpu_cores=16,
            memory_bytes=2**37,
            os="Linux",
            python="3.11",
        ),
        server=ServerIdentity(
            origin="binary", build=f"b{11000 + index}-abcdef12", n_ctx=DEPTHS[-1], key={"ctx": 1}
        ),
        model=ModelIdentity(identity="model-1", name="model"),
    )


def _rung(depth: int, speed: float, rng: random.Random) -> Rung:
    start, end = (0 if depth == DEPTHS[0] else round(0.9 * depth / 4)), round(0.9 * depth)
    edges = [*range(start, end, 512), end]
    chunks = tuple(
        Chunk(start_tokens=a, end_tokens=b, ms=(b - a) * (1 + a / 32768) * rng.gauss(1, 0.03))
        for a, b in itertools.pairwise(edges)
    )
    total = sum(c.ms for c in chunks)
    tok_s = 50.0 * speed / (1 + depth / 65536)
    return Rung(
        depth=depth,
        document_tokens=end,
        prefills=(
            Prefill(
                kind="climb",
                new_tokens=end - start,
                cached_tokens=start,
                planned_cached_tokens=start,
                server_ms=total,
                wall_ms=total + 3,
                chunks=chunks,
            ),
        ),
        asks=tuple(_ask(order, rng) for order in ("forward", "reversed", "shuffled")),
        generations=tuple(_generation(tok_s, rng) for _ in range(6)),
        memory=(MemorySample(rss_bytes=round((4 + depth / 65536) * 2**30)),),
        cold_ttft_ms=total,
        elapsed_s=60.0,
    )


def _ask(order: str, rng: random.Random) -> AskRecord:
    codes = {n: f"MEM-{rng.randrange(10**6):06}" for n in range(1, 7)}
    return AskRecord.model_validate(
        {
            "order": order,
            "expected": codes,
            "given": codes,
            "control_number": 6,
            "answer": "\n".join(f"Q{n}={c}" for n, c in codes.items()),
            "reasoning": "",
            "finish_reason": "stop",
            "needles_right": 5,
            "needles_asked": 5,
            "codes_present": 5,
            "control_right": True,
            "prompt_tokens": 2000,
            "new_tokens": 90,
            "cached_tokens": 1910,
            "planned_new_tokens": 90,
            "predicted_tokens": 70,
            "predicted_ms": 900.0,
            "ttft_ms": rng.gauss(200, 5),
            "wall_ms": 1200.0,
        }
    )


def _generation(tok_s: float, rng: random.Random) -> Generation:
    ms = 128 / tok_s * 1e3 * rng.gauss(1, 0.01)
    return Generation(
        predicted_tokens=128,
        server_ms=ms,
        wall_ms=ms + 2,
        ttft_ms=20.0,
        new_tokens=1,
        cached_tokens=1900,
        itl_ms=tuple(round(ms / 128 * rng.gauss(1, 0.1), 3) for _ in range(127)),
    )


def _timed(label: str, started: float) -> None:
    print(f"{label}: {time.perf_counter() - started:.2f} s")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_runs(folder, count)
        size = sum(p.stat().st_size for p in folder.iterdir())
        print(f"{count} runs, {size / 2**20:.0f} MiB")
        started = time.perf_counter()
        read_history(folder, points_of)
        _timed("history, first time", started)
        started = time.perf_counter()
        history = read_history(folder, points_of)
        _timed("history, again", started)
        print(len(history.points), "points,", len(history.damaged), "damaged")
        started = time.perf_counter()
        found = [f for cell in by_cell(history.points).values() for f in findings(cell, band=0.1)]
        _timed(f"change points of all cells ({len(found)} findings)", started)
        started = time.perf_counter()
        record = read_run(max(folder.glob("*.jsonl")))
        bands = {name: metric.band for name, metric in METRICS.items()}
        run = Judged(record, judge(record, None, bands), None)
        text = page([run], bands=bands, history=history.points)
        _timed(f"report with all of them, {len(text.encode()) / 1e6:.2f} MB", started)


if __name__ == "__main__":
    main()
