"""What another process's CPU use costs the server's generation speed, and whether it is marked.

Run: python bench/intruder.py [--repeats 5] [--seconds 240]

The embedded server generates on every core while an intruder takes a known part of one. The
sampler doesn't know of the intruder; a measurement during which anybody else was busy as well is
thrown away, so the table needs a quiet machine. The thresholds of `harness.machine.contention` rest
on such a table.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import psutil

from harness.machine.contention import find
from harness.machine.sampler import Sampler
from harness.serving.packaged import reference_model

SHARES = (0.0, 0.05, 0.1, 0.16, 0.2, 0.3, 0.5, 1.0)
QUIET_CPUS = 0.08  # others' CPU use, the intruder's apart, above which a measurement is dropped
PROMPT = "".join(f"line {number} the river market engine\n" for number in range(400))
LOOP = (
    "import sys, time\n"
    "busy = float(sys.argv[1]) * 0.02\n"
    "while True:\n"
    "    begun = time.perf_counter()\n"
    "    while time.perf_counter() - begun < busy:\n"
    "        pass\n"
    "    time.sleep(max(0.0, 0.02 - busy))\n"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One generation beside an intruder."""

    tok_s: float
    others_cpus: float
    marked: bool


@contextmanager
def server() -> Iterator[httpx2.Client]:
    """The embedded server on every core, and a client of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "harness.serving.embedded",
        "-m",
        str(reference_model()),
        "-c",
        "8192",
    ]
    command += ["-np", "1", "-t", str(os.cpu_count()), "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, **quiet) as process, httpx2.Client(base_url=url) as client:
        try:
            while process.poll() is None:
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx2.TransportError:
                    pass
                time.sleep(0.1)
            yield client
        finally:
            process.terminate()


@contextmanager
def intruder(share: float) -> Iterator[psutil.Process | None]:
    """A process outside the sampler's tree that takes `share` of one core."""
    if share == 0.0:
        yield None
        return
    command = f"'{sys.executable}' -c '{LOOP}' {share} >/dev/null 2>&1 & echo $!"
    started = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    process = psutil.Process(int(started.stdout))
    time.sleep(0.2)
    yield process
    process.kill()


def measure(client: httpx2.Client, sampler: Sampler, share: float, tokens: int) -> Sample | None:
    """One generation; `None` when somebody else was busy too."""
    with intruder(share) as process:
        before = sum(process.cpu_times()[:2]) if process else 0.0
        time.sleep(0.3)
        sampler.mark()
        begun = time.perf_counter_ns()
        body = {"prompt": PROMPT, "n_predict": tokens, "ignore_eos": True, "cache_prompt": True}
        answer = client.post("/completion", json=body, timeout=120).json()
        sampler.mark()
        ended = time.perf_counter_ns()
        used_s = sum(process.cpu_times()[:2]) - before if process else 0.0
    inside = [r for r in sampler.readings() if r.end_ns > begun]
    span_s = sum(r.end_ns - r.start_ns for r in inside) / 1e9
    others = sum(r.others_cpu_s or 0.0 for r in inside) / span_s if inside else 1.0
    if others - used_s / (span_s + 0.3) > QUIET_CPUS:
        return None
    found = find(sampler.readings(), begun, ended)
    return Sample(answer["timings"]["predicted_per_second"], others, found is not None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=240.0, help="give up after so long")
    parser.add_argument("--tokens", type=int, default=1500)
    options = parser.parse_args()
    samples: dict[float, list[Sample]] = {share: [] for share in SHARES}
    deadline = time.monotonic() + options.seconds
    sampler = Sampler()
    with server() as client:
        measure(client, sampler, 0.0, 64)
        while time.monotonic() < deadline:
            share = min(SHARES, key=lambda share: len(samples[share]))  # interleaved
            if len(samples[share]) >= options.repeats:
                break
            sample = measure(client, sampler, share, options.tokens)
            if sample is not None:
                samples[share].append(sample)
    alone = statistics.median(s.tok_s for s in samples[0.0]) if samples[0.0] else None
    print(f"{'intruder':>9}{'others':>8}{'tok/s':>8}{'change':>8}{'marked':>9}")
    for share, found in samples.items():
        if not found or alone is None:
            print(f"{share:>9.2f}  nothing measured: the machine was busy")
            continue
        speed = statistics.median(s.tok_s for s in found)
        others = statistics.median(s.others_cpus for s in found)
        marked = f"{sum(s.marked for s in found)} of {len(found)}"
        print(f"{share:>9.2f}{others:>8.2f}{speed:>8.0f}{speed / alone - 1:>+8.1%}{marked:>9}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
