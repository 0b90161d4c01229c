"""Simulated runs: repeats and prefill curves with noise of a known kind and a known change."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import signal

Floats = NDArray[np.float64]

OUTLIER_SLOWDOWN = (0.2, 0.5)
TRACES = Path(__file__).parent / "traces"
BLOCK = 4


@dataclass(frozen=True, slots=True)
class Chunk:
    """One simulated prefill batch."""

    start_tokens: int
    end_tokens: int
    ms: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of noise; `sd` of a repeat is given apart, everything here is relative to it.

    `run_share` is the spread between runs over `sd`; `correlation` that of neighbouring repeats or
    batches; `outlier_share` the share of them hit by something else (20 to 50 % slower);
    `drift` the machine's change over the current run, either way; `recorded` takes the noise's
    shape from recorded traces instead of a normal law.
    """

    name: str
    what: str
    run_share: float = 0.5
    correlation: float = 0.0
    outlier_share: float = 0.0
    drift: float = 0.0
    recorded: bool = False


SCENARIOS = (
    Scenario("independent", "independent repeats, no spread between runs", run_share=0.0),
    Scenario("plain", "independent repeats, runs spread by half the noise"),
    Scenario("correlated", "as plain, neighbouring repeats correlated 0.5", correlation=0.5),
    Scenario("outliers", "as plain, 5 % of repeats 20 to 50 % slow", outlier_share=0.05),
    Scenario("drift", "as plain, the machine drifts by up to ±20 % over the run", drift=0.2),
)
RECORDED = Scenario("recorded", "as plain, noise drawn from recorded traces", recorded=True)


def recorded_residuals() -> tuple[Floats, ...]:
    """Recorded generation traces as log residuals of spread 1, one array per run and rung.

    Each trace is centred on its own median; their common spread (root mean square) is made 1, so
    that heavy tails and runs of slow repeats stay as they were. Empty when no trace is kept.
    """
    found: list[Floats] = []
    for path in sorted(TRACES.glob("*.json")):
        for trace in json.loads(path.read_text(encoding="utf-8"))["generation_tok_s"]:
            logs = np.log(np.asarray(trace, dtype=np.float64))
            found.append(logs - np.median(logs))
    if not found:
        return ()
    spread = float(np.sqrt(np.mean(np.concatenate(found) ** 2)))
    return tuple(trace / spread for trace in found)


class Source:
    """Draws runs of one scenario at one noise level; seeded."""

    def __init__(self, scenario: Scenario, sd: float, seed: int) -> None:
        self.scenario = scenario
        self.sd = sd
        self._rng = np.random.default_rng(seed)
        self._pool = recorded_residuals() if scenario.recorded else ()

    def drift(self) -> float:
        """The log drift of a current run over its whole length."""
        return float(self._rng.uniform(-1.0, 1.0)) * self.scenario.drift

    def place(self) -> float:
        """Where in the run, from 0 to 1, a cell is measured."""
        return float(self._rng.uniform())

    def run_effect(self) -> float:
        """One run's common log deviation."""
        return float(self._rng.normal()) * self.sd * self.scenario.run_share

    def samples(self, count: int, log_level: float) -> list[float]:
        """`count` repeats of a rate around exp(`log_level`)."""
        logs = log_level + self._noise(count)
        return [float(v) for v in np.exp(logs)]

    def curve(self, count: int, log_speed: Floats, *, batch: int = 2048) -> list[Chunk]:
        """A prefill of `count` batches whose pace falls with depth, times exp(`log_speed`)."""
        pace_ms = 300.0 * (1.0 + 0.1 * np.arange(count))
        ms = pace_ms * np.exp(-log_speed - self._noise(count))
        return [Chunk(i * batch, (i + 1) * batch, float(ms[i])) for i in range(count)]

    def _noise(self, count: int) -> Floats:
        rng, scenario = self._rng, self.scenario
        if self._pool:
            noise = self.sd * self._recorded(count)
        else:
            noise = self.sd * rng.standard_normal(count)
            if scenario.correlation:
                rho = scenario.correlation
                noise[1:] *= np.sqrt(1.0 - rho * rho)
                noise = signal.lfilter([1.0], [1.0, -rho], noise)
        if scenario.outlier_share:
            hit = rng.random(count) < scenario.outlier_share
            noise = noise - np.where(hit, np.log1p(rng.uniform(*OUTLIER_SLOWDOWN, count)), 0.0)
        return np.asarray(noise, dtype=np.float64)

    def _recorded(self, count: int) -> Floats:
        parts: list[Floats] = []
        while sum(p.size for p in parts) < count:
            trace = self._pool[int(self._rng.integers(len(self._pool)))]
            start = int(self._rng.integers(max(1, trace.size - BLOCK + 1)))
            parts.append(trace[start : start + BLOCK])
        return np.concatenate(parts)[:count]
