"""Verdicts on a live server: A/A runs, a server slowed by a known share, an intruder beside it.

`python -m bench.live --ctx 8192` makes a baseline of six runs of the embedded server, then counts
the outcomes of further runs: unchanged, with the server stopped for a share of the time (SIGSTOP
and SIGCONT, so that it is slower by that share and nothing else runs), and with a busy loop on the
machine. It needs a quiet machine and says how quiet it was.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from harness.campaign import Campaign
from harness.core.baseline import Baseline, accepted, key_of
from harness.core.verdict import RunVerdict
from harness.settings import Settings, load
from harness.store.baselines import write_baseline

PERIOD_S = 0.020
SPEED = ("prefill", "generation", "ttft")


class Silent:
    """A reporter that says nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def progress(self, depth: int, done: int, total: int, eta_s: float | None) -> None:
        """Nothing."""


@contextlib.contextmanager
def slowed(pid: int | None, share: float) -> Iterator[None]:
    """Stop process `pid` for `share` of every 20 ms."""
    if share <= 0 or pid is None:
        yield
        return
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD_S * share)
            os.kill(pid, signal.SIGCONT)
            time.sleep(PERIOD_S * (1 - share))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def intruder(present: bool) -> Iterator[None]:
    """A busy loop in another process."""
    if not present:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(
    settings: Settings, *, slow: float = 0.0, busy: bool = False
) -> tuple[Campaign, RunVerdict]:
    """One run of the deepest rung and those below it."""
    campaign = Campaign(settings, Silent(), deepest=max(settings.rung_depths))
    with intruder(busy):
        try:
            campaign.start()
            with slowed(campaign.session.pid, slow):
                campaign.close_climb()
        finally:
            campaign.close()
    verdict = campaign.verdict()
    assert verdict is not None
    return campaign, verdict


def tally(verdicts: list[RunVerdict]) -> str:
    """Outcomes by metric over all runs and rungs."""
    lines = []
    for metric in (*SPEED, "memory", "retrieval"):
        found = Counter(c.outcome for v in verdicts for c in v.cells if c.metric.name == metric)
        reasons = Counter(
            c.code
            for v in verdicts
            for c in v.cells
            if c.metric.name == metric and c.outcome == "INCONCLUSIVE"
        )
        why = f" ({', '.join(f'{k} {n}' for k, n in reasons.items())})" if reasons else ""
        lines.append(f"  {metric:10s} " + ", ".join(f"{k} {n}" for k, n in found.items()) + why)
    regressed = sum(any(c.outcome == "REGRESSED" for c in v.cells) for v in verdicts)
    improved = sum(any(c.outcome == "IMPROVED" for c in v.cells) for v in verdicts)
    generation = sum(
        any(c.outcome == "REGRESSED" for c in v.cells if c.metric.name == "generation")
        for v in verdicts
    )
    marked = sum(
        any(c.code == "contention" for c in v.cells if c.metric.name in SPEED) for v in verdicts
    )
    lines.append(
        f"  of {len(verdicts)} runs: {regressed} with any REGRESSED ({generation} on generation), "
        f"{improved} with any IMPROVED, {marked} marked as contended"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ctx", default="8192")
    parser.add_argument("--baseline-runs", type=int, default=6)
    parser.add_argument("--aa", type=int, default=20)
    parser.add_argument("--slowed", type=int, default=10)
    parser.add_argument("--by", type=float, default=0.20)
    parser.add_argument("--intruder", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "harness.toml").touch()
        settings = load({"ctx_tokens": options.ctx}, root, {})
        records = []
        for _ in range(options.baseline_runs):
            campaign, _ = run(settings)
            record = campaign.record()
            assert record is not None
            records.append(record)
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        key = key_of(records[0].header)
        runs = tuple(accepted(r, now, "bench") for r in records)
        write_baseline(settings.baselines, Baseline(key=key, runs=runs))
        print(f"baseline of {len(records)} runs, {key.machine_class}, ctx {options.ctx}")
        for title, count, slow, busy in (
            ("A/A", options.aa, 0.0, False),
            (f"server slowed by {options.by:.0%}", options.slowed, options.by, False),
            ("intruder", options.intruder, 0.0, True),
        ):
            verdicts = []
            for _ in range(count):
                _, verdict = run(settings, slow=slow, busy=busy)
                verdicts.append(verdict)
            print(f"{title}:\n{tally(verdicts)}", flush=True)


if __name__ == "__main__":
    main()
