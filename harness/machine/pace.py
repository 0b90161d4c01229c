"""The machine's own pace: a fixed computation on all cores, no server involved.

Shared hosts, power limits and heat change a machine's speed as a whole, and no counter shows it: on
a virtual machine with no steal time reported, reading 8K tokens was seen at 5,600 and at 8,400
tok/s within ten minutes, nothing else running. A server measured then is not to blame.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable

import numpy as np
import psutil
from numpy.typing import NDArray

BURSTS = 6
BURSTS_AT_RUNG = 2
BURST_S = 0.05
_ELEMENTS = 1 << 18
_COPIED_BYTES = 1 << 24


def measure_pace(bursts: int = BURSTS) -> dict[str, tuple[float, ...]]:
    """Samples of `compute` (float32 multiply-adds per ns) and `copy` (bytes per ns), all cores.

    Takes about 0.1 s of every core a burst; to be called while the server is idle.
    """
    threads = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    samples: dict[str, list[float]] = {"compute": [], "copy": []}
    for _ in range(bursts):
        samples["compute"].append(_burst(_compute, threads))
        samples["copy"].append(_burst(_copy, threads))
    return {name: tuple(values) for name, values in samples.items()}


def _compute() -> tuple[Callable[[], None], int]:
    x = np.linspace(1.0, 2.0, _ELEMENTS, dtype=np.float32)
    y = x.copy()

    def work() -> None:
        np.multiply(x, np.float32(0.5), out=y)
        np.add(y, x, out=y)

    return work, _ELEMENTS


def _copy() -> tuple[Callable[[], None], int]:
    source, target = _buffer(), _buffer()
    source[:] = 1
    return lambda: np.copyto(target, source), _COPIED_BYTES


def _buffer() -> NDArray[np.uint8]:
    """Memory in small pages: whether large ones are to be had is luck, and doubles the speed."""
    memory = mmap.mmap(-1, _COPIED_BYTES)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


def _burst(make: Callable[[], tuple[Callable[[], None], int]], threads: int) -> float:
    """Units per ns over all threads in one burst; numpy lets go of the interpreter's lock."""
    rates = [0.0] * threads
    start = threading.Barrier(threads)

    def run(index: int) -> None:
        work, units = make()
        work()
        start.wait()
        began = time.perf_counter_ns()
        until, rounds = began + int(BURST_S * 1e9), 0
        while time.perf_counter_ns() < until:
            work()
            rounds += 1
        rates[index] = rounds * units / (time.perf_counter_ns() - began)

    workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)
