"""What the sampler of the machine's other load costs: share of one core, quiet and contended.

Run: python bench/sampler.py [--seconds 30] [--processes 400]

Idle processes are started to bring the machine to a desktop's number of processes; for the
contended line a busy loop runs beside, which makes the sampler read every process at every
reading. The table also says how long one reading of each kind takes.
"""

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack

from harness.machine.processes import open_table
from harness.machine.sampler import Sampler

LIMIT = 0.005


def started(stack: ExitStack, command: list[str]) -> None:
    """Start a process outside the sampler's own tree, ended with the stack."""
    shell = f"{' '.join(command)} >/dev/null 2>&1 & echo $!"
    pid = int(subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout)
    stack.callback(lambda: os.kill(pid, 15))


def cost(seconds: float) -> tuple[float, int]:
    """The sampler's share of one core over `seconds`, and the number of its readings."""
    sampler = Sampler()
    begun = time.perf_counter()
    sampler.start()
    time.sleep(seconds)
    sampler.stop()
    return sampler.cost_s / (time.perf_counter() - begun), len(sampler.readings())


def walk_ms() -> tuple[int, float]:
    """Number of processes and CPU milliseconds to read them all."""
    table = open_table()
    before = time.thread_time()
    pids = table.pids()
    for pid in pids:
        table.read(pid)
    return len(pids), (time.thread_time() - before) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=400, help="bring the machine to so many")
    options = parser.parse_args()
    over = False
    with ExitStack() as stack:
        for _ in range(max(0, options.processes - len(open_table().pids()))):
            started(stack, ["sleep", "3600"])
        count, ms = walk_ms()
        print(f"{count} processes, {ms:.2f} ms of CPU to read them all")
        print(f"{'machine':<12}{'share of one core':>18}{'readings':>10}")
        for state in ("as it is", "contended"):
            if state == "contended":
                started(stack, [sys.executable, "-c", "'while True: pass'"])
            share, readings = cost(options.seconds)
            over = over or (state == "as it is" and share > LIMIT)
            print(f"{state:<12}{share:>17.3%}{readings:>11}")
    print(f"limit {LIMIT:.1%}: {'exceeded' if over else 'kept'}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
