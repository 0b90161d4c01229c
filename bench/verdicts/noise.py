"""Recorded noise: generation rates of real runs as residuals, whatever their level."""

import json
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TRACES = Path(__file__).parent / "traces"


@cache
def recorded_residuals(name: str) -> tuple[NDArray[np.float64], ...]:
    """A machine's recorded generation traces as log residuals of spread 1, one per run and rung.

    Each trace is centred on its own median; their common spread (root mean square) is made 1, so
    that heavy tails and runs of slow repeats stay as they were.
    """
    rates = json.loads((TRACES / f"{name}.json").read_text(encoding="utf-8"))["generation_tok_s"]
    logs = [np.log(np.asarray(trace, dtype=np.float64)) for trace in rates]
    found = [trace - np.median(trace) for trace in logs]
    spread = float(np.sqrt(np.mean(np.concatenate(found) ** 2)))
    return tuple(trace / spread for trace in found)
