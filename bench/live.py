"""Verdicts on a live server: A/A runs, a server slowed by a known share, an intruder beside it.

`python -m bench.live --ctx 8192` makes a baseline of six runs of the embedded server, then counts
the outcomes of further runs: unchanged, with a share of all cores taken from the server (by a
control group, so that nothing else runs; Linux and root only), and with a busy loop on the machine.
It needs a quiet machine, and before each run waits for the pace at which it began: a virtual
machine is now and then given other cores. Runs in which that happened are counted by themselves.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from harness.machine.pace import measure_pace
from harness.measuring import campaign as campaign_module
from harness.measuring.campaign import Campaign
from harness.records.baseline import Baseline, accepted, key_of
from harness.records.baseline_files import write_baseline
from harness.records.metrics import METRICS
from harness.records.samples import disturbances
from harness.serving.session import Session
from harness.settings import Settings, load
from harness.verdicts.pace import changed_within
from harness.verdicts.verdict import RunVerdict

PERIOD_US = 20_000
CGROUP_V1, CGROUP_V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
SPEED = ("prefill", "generation", "ttft")
SAME_PACE = 0.2


class Silent:
    """A reporter that says nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def progress(self, depth: int, done: int, total: int, eta_s: float | None) -> None:
        """Nothing."""

    def doing(self, depth: int, what: str) -> None:
        """Nothing."""


@contextlib.contextmanager
def slowed(pid: int | None, share: float) -> Iterator[None]:
    """Take `share` of all cores from process `pid`, by a control group of its own, 20 ms by 20 ms.

    In periods of 10 ms the kernel gave it less, now more, and its controls drifted.

    Raises:
        OSError: not root, or the system has no control group for the CPU.
    """
    if share <= 0 or pid is None:
        yield
        return
    quota_us = round(PERIOD_US * (1 - share) * (os.cpu_count() or 1))
    parent = next((p for p in (CGROUP_V1, CGROUP_V2) if (p / "cgroup.procs").exists()), CGROUP_V2)
    group = parent / f"bench-live-{os.getpid()}"
    group.mkdir()
    try:
        if parent is CGROUP_V1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        (group / "cgroup.procs").write_text(str(pid))
        yield
        with contextlib.suppress(OSError):  # it has ended
            (parent / "cgroup.procs").write_text(str(pid))
    finally:
        group.rmdir()


@contextlib.contextmanager
def intruder(present: bool) -> Iterator[None]:
    """A busy loop in another process."""
    if not present:
        yield
        return
    # Its parent ends at once, so that it is nobody's child here: our own tree is never contention.
    loop = f"'{sys.executable}' -c 'while True: pass' >/dev/null 2>&1 & echo $!"
    pid = int(subprocess.run(["sh", "-c", loop], capture_output=True, check=True).stdout)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def run(
    settings: Settings, *, slow: float = 0.0, busy: bool = False
) -> tuple[Campaign, RunVerdict]:
    """One run of the deepest rung and those below it."""
    campaign = Campaign(settings, Silent(), deepest=max(settings.rung_depths))
    opened = campaign_module.open_session
    with contextlib.ExitStack() as stack:

        def open_slowed(*arguments: Any, **more: Any) -> Session:
            """The slowness is there from the first control on, as a slower build's would be."""
            session = opened(*arguments, **more)
            stack.enter_context(slowed(session.pid, slow))
            return session

        campaign_module.open_session = open_slowed
        stack.enter_context(campaign_module.hold_machine(settings))
        stack.enter_context(intruder(busy))
        try:
            campaign.start()
            campaign.close_climb()
        finally:
            campaign_module.open_session = opened
            stack.close()
            campaign.close()
    judged = campaign.judged()
    assert judged is not None
    return campaign, judged.verdict


class Pace:
    """Waits until the machine is as fast as when the first run began; `waited_s` in all."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._first = {name: median(values) for name, values in measure_pace().items()}
        self.waited_s = 0.0

    def wait(self) -> None:
        """Wait, at most so long a run: what a run says of another pace is not asked here."""
        since_s = time.perf_counter()
        while (
            any(
                abs(median(values) / self._first[name] - 1.0) > SAME_PACE
                for name, values in measure_pace().items()
            )
            and time.perf_counter() - since_s < self._patience_s
        ):
            time.sleep(2.0)
        self.waited_s += time.perf_counter() - since_s


def tally(verdicts: list[RunVerdict], marked: int) -> str:
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
    lines.append(
        f"  of {len(verdicts)} runs: {regressed} with any REGRESSED ({generation} on generation), "
        f"{improved} with any IMPROVED, {marked} with samples marked as disturbed"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ctx", default="8192")
    parser.add_argument("--baseline-runs", type=int, default=6)
    parser.add_argument("--remeasure", type=float, default=20.0, help="seconds of it a run")
    parser.add_argument("--keep", type=Path, help="folder for the runs' records")
    parser.add_argument("--aa", type=int, default=20)
    parser.add_argument("--slowed", type=int, default=10)
    parser.add_argument("--by", type=float, default=0.20)
    parser.add_argument("--intruder", type=int, default=10)
    parser.add_argument("--patience", type=float, default=180.0, help="seconds a run for the pace")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "harness.toml").touch()
        given = {"ctx_tokens": options.ctx, "remeasure_s": options.remeasure}
        settings = load(given, root, {})
        if options.keep is not None:
            settings = settings.model_copy(update={"results": options.keep.resolve()})
        records = []
        pace = Pace(options.patience)
        for _ in range(3 * options.baseline_runs):
            if len(records) == options.baseline_runs:
                break
            pace.wait()
            campaign, _ = run(settings)
            record = campaign.record()
            assert record is not None
            if changed_within(record, METRICS["prefill"].band) is None:
                records.append(record)
        if len(records) < options.baseline_runs:
            raise SystemExit(
                f"the machine changed its pace in {2 * options.baseline_runs} of the baseline's "
                f"runs or more; only {len(records)} can be used, try again on a calmer machine"
            )
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
            verdicts: list[RunVerdict] = []
            aside: list[RunVerdict] = []
            marked = 0
            while len(verdicts) < count and len(aside) < count:
                pace.wait()
                campaign, verdict = run(settings, slow=slow, busy=busy)
                if any(cell.code == "pace" for cell in verdict.cells):
                    aside.append(verdict)
                    continue
                verdicts.append(verdict)
                record = campaign.record()
                assert record is not None
                marked += any(
                    disturbances(rung, METRICS[name]) for rung in record.rungs for name in SPEED
                )
            print(f"{title}:\n{tally(verdicts, marked)}", flush=True)
            if aside:
                print(
                    f"and runs that found the machine off its pace:\n{tally(aside, 0)}", flush=True
                )
        print(f"waited {pace.waited_s:.0f} s for the machine's own pace")


if __name__ == "__main__":
    main()
