"""The sampler on the real machine: it names an intruder, leaves us out, and costs little.

The machine may be loaded by others while this runs; nothing here supposes that it is quiet.
"""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.machine.contention import find
from harness.machine.sampler import Sampler

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts processes as Linux does")

COST_LIMIT = 0.005  # of one core
PATIENCE_S = 60.0


def busy_script(folder: Path, name: str) -> Path:
    """A busy loop that `ps` and the sampler see under `name`."""
    script = folder / name
    script.write_text("#!/bin/sh\nwhile :; do :; done\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def intruder(tmp_path: Path) -> Iterator[str]:
    """A busy process outside our tree (its starter has ended), by name."""
    script = busy_script(tmp_path, f"hx-{os.getpid() % 10_000}")
    started = subprocess.run(
        ["/bin/sh", "-c", f"{script} >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
    )
    yield script.name
    os.kill(int(started.stdout), signal.SIGKILL)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[psutil.Process]:
    """A busy process of our own."""
    with subprocess.Popen([str(busy_script(tmp_path, "hx-own"))]) as child:
        yield psutil.Process(child.pid)
        child.kill()


def test_an_intruder_is_named_and_marks_the_measurement(intruder: str) -> None:
    sampler = Sampler()
    deadline = time.monotonic() + PATIENCE_S
    named: set[str] = set()
    while intruder not in named and time.monotonic() < deadline:
        sampler.mark()
        threading.Event().wait(0.2)
        named = {use.name for reading in sampler.readings() for use in reading.processes}
    assert intruder in named
    readings = sampler.readings()
    found = find(readings, readings[0].start_ns, readings[-1].end_ns)
    assert found is not None
    assert "cpu" in {cause.kind for cause in found.causes}


def test_our_own_work_is_not_counted(own: psutil.Process) -> None:
    sampler = Sampler()
    sampler.mark()
    before = sum(own.cpu_times()[:2])
    ours_s, deadline = 0.0, time.monotonic() + PATIENCE_S
    while ours_s < 0.5 and time.monotonic() < deadline:
        threading.Event().wait(0.1)
        ours_s = sum(own.cpu_times()[:2]) - before
    sampler.mark()
    assert ours_s >= 0.5
    readings = sampler.readings()
    span_s = (readings[-1].end_ns - readings[0].start_ns) / 1e9
    others_s = sum(reading.others_cpu_s or 0.0 for reading in readings)
    left_s = span_s * (os.cpu_count() or 1) - ours_s
    assert others_s <= left_s + 0.1
    assert own.name() not in {use.name for reading in readings for use in reading.processes}


def test_our_own_work_is_counted_by_a_sampler_that_is_not_told(own: psutil.Process) -> None:
    """The control of the test before: seen from outside the tree, the same work is others'."""
    watch = (
        "import time\n"
        "from harness.machine.sampler import Sampler\n"
        "sampler = Sampler()\n"
        "for _ in range(5):\n"
        "    sampler.mark()\n"
        "    time.sleep(0.3)\n"
        "print(*{use.name for r in sampler.readings() for use in r.processes}, sep='\\n')\n"
    )
    seen = subprocess.run(
        [sys.executable, "-c", watch], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert own.name() in seen


def test_the_sampler_costs_less_than_half_a_percent_of_a_core() -> None:
    sampler = Sampler()
    sampler.mark()  # the first one reads every process and opens what there is
    costs = []
    for _ in range(8):
        threading.Event().wait(0.26)
        before = sampler.cost_s
        sampler.mark()
        costs.append(sampler.cost_s - before)
    assert len(sampler.readings()) == 8
    interval_s = sampler.interval_s
    assert statistics.median(costs) / interval_s < COST_LIMIT
