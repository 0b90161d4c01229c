"""The levels of a curve or a series: its best least-squares fit by pieces that are constant.

By running sums, one possible border after the other: memory grows with the curve's length, not
with its square.
"""

import math

import numpy as np
from numpy.typing import NDArray

from harness.verdicts.noise import Floats

_STEP_PENALTY = 3.0


def fit_levels(y: Floats, *, noise: float, shortest: int) -> list[tuple[int, int]]:
    """The stretches `first..last` of `y` that a level each fits best, each `shortest` or longer.

    A further level must lower the squared error by more than `_STEP_PENALTY` log(n) times the
    variance `noise` (Yao 1988, doi:10.1016/0167-7152(88)90118-6).
    """
    count = y.size
    penalty = _STEP_PENALTY * math.log(count) * noise
    error = _Errors(y)
    best = (float(error.of(0, count)), [(0, count)])
    for first in range(shortest, count - shortest + 1):
        head = error.of(0, first)
        cost = float(head + error.of(first, count)) + penalty
        best = min(best, (cost, [(0, first), (first, count)]))
        lasts = np.arange(first + shortest, count - shortest + 1)
        if lasts.size:
            costs = head + error.of(first, lasts) + error.of(lasts, count)
            last = int(lasts[np.argmin(costs)])
            cost = float(costs.min()) + 2.0 * penalty
            best = min(best, (cost, [(0, first), (first, last), (last, count)]))
    return best[1]


def fit_any_levels(y: Floats, *, penalty: float, shortest: int) -> list[int]:
    """The borders, from 0 to the length of `y`, of any number of levels that fit it best.

    Each further level costs `penalty`. By optimal partitioning (Jackson et al. 2005,
    doi:10.1109/LSP.2001.838216): the best fit up to each place, from the best ones before it.
    """
    error, count = _Errors(y), y.size
    cost, begins = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int_)
    cost[0] = -penalty
    for end in range(shortest, count + 1):
        firsts = np.arange(end - shortest + 1)
        costs = cost[firsts] + error.of(firsts, end) + penalty
        begins[end] = np.argmin(costs)
        cost[end] = costs[begins[end]]
    borders = [count]
    while borders[0] > 0:
        borders.insert(0, int(begins[borders[0]]))
    return borders


class _Errors:
    """Squared error of one level over `y[i:j]`."""

    def __init__(self, y: Floats) -> None:
        self._total = np.concatenate(([0.0], np.cumsum(y)))
        self._square = np.concatenate(([0.0], np.cumsum(y * y)))

    def of(self, i: int | NDArray[np.int_], j: int | NDArray[np.int_]) -> Floats:
        total, square = self._total, self._square
        error = square[j] - square[i] - (total[j] - total[i]) ** 2 / np.maximum(j - i, 1)
        return np.asarray(np.maximum(error, 0.0))
