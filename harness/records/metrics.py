"""The registry of metrics: unit, direction, band. One place decides what is better."""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower"]
Kind = Literal["speed", "latency", "memory", "score"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity.

    `band` is the noise band as a share (0.10 = ±10 %); `min_effect` an absolute change, in the
    metric's unit, below which nothing is called a change.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    kind: Kind
    band: float = 0.10
    min_effect: float = 0.0


SPEED = ("speed", "latency")

PREFILL = Metric("prefill", "prefill", "tok/s", "higher", "speed")
GENERATION = Metric("generation", "generation", "tok/s", "higher", "speed")
TTFT = Metric("ttft", "warm TTFT", "ms", "lower", "latency", min_effect=10.0)
MEMORY = Metric("memory", "server memory", "GiB", "lower", "memory", min_effect=0.01)
RETRIEVAL = Metric("retrieval", "retrieval", "answers", "higher", "score", band=0.0)

METRICS: dict[str, Metric] = {m.name: m for m in (PREFILL, GENERATION, TTFT, MEMORY, RETRIEVAL)}
