"""The registry of metrics: unit, direction, band. One place decides what is better."""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower"]
Kind = Literal["speed", "latency", "memory", "score", "numbers"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity.

    `band` is the noise band as a share (0.10 = ±10 %); `min_effect` an absolute change, in the
    metric's unit, below which nothing is called a change. `fields` are those of
    `samples.Samples` that hold it: first its samples (for a score the counts), then what goes with
    them; `requests` are the rung's lines that another load disturbs it by. `own_rule`: judged over
    all rungs by a rule of its own, not rung by rung from its samples. `kept_runs`: so many of a
    baseline's newest runs keep it, and no anchor; by default all do.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    kind: Kind
    fields: tuple[str, ...]
    requests: str | None = None
    band: float = 0.10
    min_effect: float = 0.0
    own_rule: bool = False
    kept_runs: int | None = None


SPEED = ("speed", "latency")

PREFILL = Metric(
    *("prefill", "prefill", "tok/s", "higher", "speed"),
    fields=("prefill_tok_s", "chunks", "cold_ttft_ms"),
    requests="prefills",
)
GENERATION = Metric(
    *("generation", "generation", "tok/s", "higher", "speed"),
    fields=("generation_tok_s",),
    requests="generations",
)
TTFT = Metric(
    *("ttft", "warm TTFT", "ms", "lower", "latency"),
    fields=("ttft_ms",),
    requests="asks",
    min_effect=10.0,
)
MEMORY = Metric(
    *("memory", "server memory", "GiB", "lower", "memory"),
    fields=("memory_gib",),
    min_effect=0.01,
)
RETRIEVAL = Metric(
    *("retrieval", "retrieval", "answers", "higher", "score"),
    fields=("retrieval", "needles"),
    band=0.0,
    own_rule=True,
)
FIDELITY = Metric(
    *("fidelity", "fidelity", "nats", "lower", "numbers"),
    fields=("numbers",),
    band=0.0,
    own_rule=True,
    kept_runs=2,  # one to compare with, one more for the floor
)

METRICS: dict[str, Metric] = {
    m.name: m for m in (PREFILL, GENERATION, TTFT, MEMORY, RETRIEVAL, FIDELITY)
}

MEASURED = tuple(m.fields[0] for m in METRICS.values() if not m.own_rule)
"""Fields of `samples.Samples` that hold positive numbers, one a sample."""
