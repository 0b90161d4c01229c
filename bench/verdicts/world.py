"""Simulated runs as records, with noise and troubles of a known kind and a known change.

A world draws whole records: controls, the machine's pace, two rungs with cold readings, batches,
questions, generation repeats and a second visit of the short rung, each at its own time. They are
judged by the functions that judge real runs, so nothing of a verdict is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import numpy as np

from bench.verdicts.noise import recorded_residuals
from harness.records.baseline import AcceptedRun, Baseline, accepted, key_of
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
from harness.records.samples import values_of
from harness.verdicts.rung import undecided

DEPTHS = (2048, 8192)
BATCH = 512
REPEATS, MOST_REPEATS, MOST_ASKS = 6, 18, 9
LEVELS = {2048: (1000.0, 100.0, 200.0), 8192: (900.0, 80.0, 300.0)}
"""Prefill and generation, tok/s, and warm TTFT, ms, by depth."""
NEEDLES = 5
OUTLIER_SLOWDOWN = (0.2, 0.5)
BANDS = {"prefill": 0.1, "generation": 0.1, "ttft": 0.1, "memory": 0.1, "retrieval": 0.0}

_SERVER_LOG = Event(code="server_log", message="", data={"on_gpu": False})


@dataclass(frozen=True, slots=True)
class World:
    """A kind of machine and server; shares are of the speed.

    `noise` is the spread of repeats and batches (neighbouring batches correlated 0.5), `run` that
    of whole runs. `slow_runs` of them are in a state of `slow` times the speed. `throttle` is the
    speed, from 1, during a stretch of a current run. Every `stall_every`th batch takes `stall`
    times as long. `outliers` of repeats and batches are 20 to 50 % slow. `told`: the machine's pace
    is on record, before, after, and behind each rung. `trace` names the machine from whose
    recorded noise repeats are drawn. `right` is the share of needles answered rightly; with
    `clustered` all orders of a rung answer alike.
    """

    noise: float = 0.01
    run: float = 0.015
    slow_runs: float = 0.0
    slow: float = 0.85
    throttle: float = 1.0
    stall_every: int = 0
    stall: float = 2.0
    outliers: float = 0.0
    told: bool = True
    trace: str = ""
    right: float = 1.0
    clustered: bool = False


class Bench:
    """One run on a machine of a world: its state, its clock, and what it makes of a speed."""

    def __init__(
        self,
        world: World,
        rng: np.random.Generator,
        *,
        effect: float,
        current: bool,
        right: float | None = None,
    ) -> None:
        self.world, self.rng, self.effect, self.at_s = world, rng, effect, 0.0
        self._state = world.slow if rng.random() < world.slow_runs else 1.0
        self._level = self._state * math.exp(rng.normal(0.0, world.run))
        self._throttled = (math.inf, -math.inf)
        if current and world.throttle != 1.0:
            begin = rng.uniform(0.0, 60.0)
            self._throttled = (begin, begin + rng.uniform(10.0, 80.0))
        self._right = world.right if right is None else right
        pool = recorded_residuals(world.trace) if world.trace else ()
        self._trace = list(pool[int(rng.integers(len(pool)))]) if pool else []
        self._batch = 0
        self._batch_noise = 0.0

    def record(self, run_id: str, baseline: Baseline | None = None) -> RunRecord:
        """A whole run; with a baseline cells are measured again while undecided, as real ones."""
        events = [self._pace("before", 6)]
        before = self._control("before")
        rungs, start = [], 0
        for depth in DEPTHS:
            rungs.append(self._rung(depth, start, baseline, events))
            start = round(0.9 * depth)
            events.append(self._pace("rung", 2, depth))
        rungs[0] = self._visited_again(rungs[0])
        after = self._control("after")
        events += [self._pace("after", 6), _SERVER_LOG]
        return RunRecord.model_construct(
            header=_HEADER.model_copy(update={"run_id": run_id}),
            controls=(before, after),
            rungs=tuple(rungs),
            probe_asks=(),
            events=tuple(events) if self.world.told else (),
            footer=Footer(ended_at="", complete=True, prefilled_tokens=1, elapsed_s=1.0),
            torn=False,
        )

    def _now(self) -> float:
        begin, end = self._throttled
        return self.world.throttle if begin <= self.at_s < end else 1.0

    def _speed(self, of: float, noise: float) -> float:
        world, rng = self.world, self.rng
        rate = of * self._level * self._now() * (1.0 + self.effect) * math.exp(world.noise * noise)
        if world.outliers and rng.random() < world.outliers:
            rate /= 1.0 + rng.uniform(*OUTLIER_SLOWDOWN)
        return rate

    def _repeat(self, of: float) -> float:
        noise = self.rng.normal()
        if self._trace:
            self._trace = self._trace[1:] + self._trace[:1]
            noise = self._trace[0]
        return self._speed(of, noise)

    def _pace(self, position: str, samples: int, depth: int | None = None) -> Event:
        level = 10.0 * self._state * self._now()
        values = [level * math.exp(self.rng.normal(0.0, 0.01)) for _ in range(samples)]
        data: dict[str, object] = {"position": position, "compute": values}
        if depth is not None:
            data["depth"] = depth
        return Event.model_construct(kind="event", code="pace", message="", data=data)

    def _generation(self, of: float) -> Generation:
        ms = 128.0 / self._repeat(of) * 1e3
        at = self.at_s
        self.at_s += ms / 1e3
        return Generation.model_construct(
            **_TIMED, predicted_tokens=128, server_ms=ms, wall_ms=ms + 2.0, ttft_ms=1.0,
            new_tokens=1, cached_tokens=1, draft_tokens=None, draft_accepted_tokens=None,
            itl_ms=(), start_s=at, end_s=self.at_s,
        )  # fmt: skip

    def _prefill(
        self, start: int, end: int, of: float, kind: Literal["climb", "cold_repeat"]
    ) -> Prefill:
        chunks, at = [], self.at_s
        for a, b in pairwise([*range(start, end, BATCH), end]):
            self._batch_noise = 0.5 * self._batch_noise + math.sqrt(0.75) * self.rng.normal()
            ms = (b - a) / self._speed(of, self._batch_noise) * 1e3
            self._batch += 1
            if self.world.stall_every and self._batch % self.world.stall_every == 0:
                ms *= self.world.stall
            chunks.append(Chunk.model_construct(start_tokens=a, end_tokens=b, ms=ms))
            self.at_s += ms / 1e3
        total = sum(c.ms for c in chunks)
        return Prefill.model_construct(
            **_TIMED, kind=kind, new_tokens=end - start, cached_tokens=start, server_ms=total,
            planned_cached_tokens=start, wall_ms=total + 2.0, chunks=tuple(chunks), start_s=at,
            end_s=self.at_s,
        )  # fmt: skip

    def _ask(self, ttft_ms: float, right: int) -> AskRecord:
        took = ttft_ms * ttft_ms / self._repeat(ttft_ms)
        self.at_s += took / 1e3
        wrong = right < NEEDLES
        given = {n: f"MEM-{n}" if n <= right else "MEM-X" for n in range(1, NEEDLES + 1)}
        return _ASK.model_copy(
            update={
                "ttft_ms": took,
                "wall_ms": took + 50.0,
                "needles_right": right,
                "codes_present": right,
                "given": given | {6: "CTL-6"},
                "failure_class": "digit_changed" if wrong else "right",
            }
        )

    def _control(self, position: Literal["before", "after"]) -> Control:
        return Control.model_construct(
            kind="control", sitting=1, position=position,
            prefills=tuple(self._prefill(0, 200, 1000.0, "cold_repeat") for _ in range(3)),
            generations=tuple(self._generation(120.0) for _ in range(3)),
        )  # fmt: skip

    def _rung(self, depth: int, start: int, baseline: Baseline | None, events: list[Event]) -> Rung:
        read, generated, ttft = LEVELS[depth]
        end = round(0.9 * depth)
        cold = [self._prefill(0, end, read, "cold_repeat") for _ in range(2 if start == 0 else 0)]
        prefills = [*cold, self._prefill(start, end, read, "climb")]
        right = int(self.rng.binomial(NEEDLES, self._right))
        orders = [
            right if self.world.clustered else int(self.rng.binomial(NEEDLES, self._right))
            for _ in range(3)
        ]
        asks = [self._ask(ttft, r) for r in orders]
        events.append(self._pace("rung", 2, depth))
        rates = [self._generation(generated) for _ in range(REPEATS)]
        while True:
            rung = Rung.model_construct(
                kind="rung", sitting=1, depth=depth, document_tokens=end, prefills=tuple(prefills),
                asks=tuple(asks), generations=tuple(rates), memory=_MEMORY, cold_ttft_ms=1.0,
                notes=(), log_counts={}, failure=None, elapsed_s=3.0,
            )  # fmt: skip
            wanted = {metric.name for metric in undecided(rung, baseline, BANDS)}
            before = len(rates) + len(asks)
            if "generation" in wanted and len(rates) < MOST_REPEATS:
                rates += [self._generation(generated) for _ in range(3)]
            if "ttft" in wanted and len(asks) < MOST_ASKS:
                asks += [self._ask(ttft, r) for r in orders]
            if before == len(rates) + len(asks):
                return rung

    def _visited_again(self, rung: Rung) -> Rung:
        read, generated, _ = LEVELS[rung.depth]
        again = self._prefill(0, rung.document_tokens, read, "cold_repeat")
        late = tuple(self._generation(generated) for _ in range(3))
        return rung.model_copy(
            update={
                "prefills": (*rung.prefills, again),
                "generations": (*rung.generations, *late),
            }
        )


def baseline_of(world: World, rng: np.random.Generator, runs: int) -> Baseline:
    """Accepted runs of an unchanged server, drawn again until they agree as is demanded."""
    for _ in range(100):
        records = [
            Bench(world, rng, effect=0.0, current=False).record(f"20260101-00000{i}-aaaaaa")
            for i in range(runs)
        ]
        taken = tuple(accepted(r, "", None) for r in records)
        if _agree(taken):
            break
    return Baseline(key=key_of(records[0].header), runs=taken)


def _agree(runs: Sequence[AcceptedRun]) -> bool:
    """Whether the runs' centres differ by less than the band in every cell."""
    for depth in DEPTHS:
        for name in ("prefill", "generation", "ttft"):
            centres = [median(values_of(METRICS[name], run.cells[depth])) for run in runs]
            if max(centres) > (1.0 + BANDS[name]) * min(centres):
                return False
    return True


_TIMED: dict[str, Any] = {"contention": None, "gpu": None}
_HEADER = Header(
    run_id="20260101-000000-aaaaaa",
    started_at="2026-01-01T00:00:00+00:00",
    harness_version="0",
    plan=Plan(
        ctx_tokens=max(DEPTHS), depths=DEPTHS,
        document_tokens=tuple(round(0.9 * d) for d in DEPTHS),
        fill=0.9, seed=0, background="plain", grammar_version=1, generate_tokens=128,
        repeats=REPEATS,
    ),
    machine=Machine(
        machine_class="box", cpu="CPU", cpu_cores=2, memory_bytes=2**30, os="Linux", python="3.11"
    ),
    server=ServerIdentity(origin="embedded", build="b1", n_ctx=max(DEPTHS)),
    model=ModelIdentity(identity="model-1", name="model"),
)  # fmt: skip
_MEMORY = tuple(MemorySample(rss_bytes=4 * 2**30) for _ in range(3))
_ASK = AskRecord(
    order="forward", expected={n: f"MEM-{n}" for n in range(1, 6)} | {6: "CTL-6"},
    given={}, control_number=6, answer="", reasoning="", finish_reason="stop", needles_right=5,
    needles_asked=NEEDLES, codes_present=5, control_right=True, prompt_tokens=1900, new_tokens=90,
    cached_tokens=1810, planned_new_tokens=90, predicted_tokens=70, predicted_ms=100.0,
    ttft_ms=50.0, wall_ms=100.0,
)  # fmt: skip
