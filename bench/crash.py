"""Kill measured runs at random moments and see that nothing measured is lost.

`python -m bench.crash --kills 100` starts `pytest -m long --resume` on the embedded server, kills
it (SIGKILL) after a random time, and looks at what is left: every record readable, every rung that
was finished still there and reused by the next start, no server or supervisor alive, baselines the
same to the byte. In the end one run is let through and must complete the last record. The seed
makes the moments the same again.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from harness.errors import StoreError
from harness.records.files import list_runs, read_run
from harness.records.lines import RESUMED, RunRecord
from harness.records.sittings import finished_rungs

Moment = Callable[[RunRecord], bool]
"""Whether the newest record is as far as one waits for."""
FOLDER = "crash 試験 test"
GONE_WITHIN_S = 15.0


@dataclass
class Figures:
    """What a series of kills showed. `faults` says what went wrong, a sentence each."""

    kills: int = 0
    ended_before_the_kill: int = 0
    before_the_record: int = 0
    in_a_rung: int = 0
    torn: int = 0
    sittings_most: int = 0
    rungs_finished: int = 0
    rungs_reused: int = 0
    records: int = 0
    records_complete: int = 0
    orphans: int = 0
    gone_after_s_most: float = 0.0
    faults: list[str] = field(default_factory=list)


class Crash:
    """One folder in which runs are killed."""

    def __init__(self, root: Path, depths: tuple[int, ...], *, threads: int = 1) -> None:
        self.root = root
        self.results = root / "results"
        self.figures = Figures()
        root.mkdir(parents=True, exist_ok=True)
        (root / "test_llm.py").write_text("from harness.suite import *\n", encoding="utf-8")
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (root / "baselines").mkdir(exist_ok=True)
        self.command = (
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "long"),
            *("--depths", ",".join(map(str, depths)), "--repeats", "3", "--remeasure", "0"),
            *("--resume", f"--server-args=-t {threads}"),
        )

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("CI", "LLAMA_SERVER")}
        return {
            **kept,
            "HARNESS_LOCK_FILE": str(self.root / "machine.lock"),
            "PYTHONUTF8": "1",
        }

    def run(self, kill_after_s: float | None, until: Moment | None = None) -> int | None:
        """A run's exit code, or `None` if it was killed, so long after `until` was there."""
        with (self.root / "output.txt").open("wb") as output:
            run = subprocess.Popen(
                self.command,
                cwd=self.root,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            while until is not None and run.poll() is None:
                record = self.newest()
                if record is not None and until(record):
                    break
                time.sleep(0.02)
            try:
                return run.wait(timeout=kill_after_s)
            except subprocess.TimeoutExpired:
                os.kill(run.pid, signal.SIGKILL)
                run.wait()
                return None

    def output(self) -> str:
        """What the last run printed."""
        return (self.root / "output.txt").read_text(encoding="utf-8", errors="replace")

    def kill_when(self, until: Moment, after_s: float) -> None:
        """As `kill_once`, `after_s` after the newest record is as `until` says."""
        self.kill_once(after_s, until)

    def kill_once(self, after_s: float, until: Moment | None = None) -> None:
        """Start, kill, and compare what is there with what was there before."""
        figures = self.figures
        before, baselines = self.newest(), self.baselines()
        code = self.run(after_s, until)
        if code is None:
            figures.kills += 1
        else:
            figures.ended_before_the_kill += 1
            if code not in (0, 1):
                figures.faults.append(f"a run ended with {code}: {self.output()[-800:]}")
        if baselines != self.baselines():
            figures.faults.append("a baseline was changed")
        self._wait_until_gone()
        self._compare(before, code)

    def _compare(self, before: RunRecord | None, code: int | None) -> None:
        figures, after = self.figures, self.newest()
        old = {} if before is None else finished_rungs(before)
        unfinished = before is not None and before.footer is None
        if after is None or (before is not None and _same(before, after) and before == after):
            figures.before_the_record += 1
            return
        figures.torn += after.torn
        new = finished_rungs(after)
        figures.sittings_most = max(figures.sittings_most, after.sittings)
        if code is None and after.footer is None and len(new) < len(after.header.plan.depths):
            figures.in_a_rung += 1
        if before is not None and _same(before, after):
            figures.rungs_finished += len(set(new) - set(old))
            for depth, rung in old.items():
                if new.get(depth) != rung:
                    figures.faults.append(f"rung {depth} of {after.header.run_id} changed")
            reused = [e for e in after.events if e.code == RESUMED][-1].data["reused_depths"]
            figures.rungs_reused += len(reused)
            if reused != list(old):
                figures.faults.append(f"{list(old)} were finished, {reused} were reused")
        else:
            figures.rungs_finished += len(new)
            if unfinished and old:
                figures.faults.append(
                    f"run {after.header.run_id} did not go on with its forerunner: "
                    + self.output()[:400]
                )

    def newest(self) -> RunRecord | None:
        """The newest record that has a line at all."""
        for path in reversed(list_runs(self.results)):
            if b"\n" not in path.read_bytes():
                continue
            try:
                return read_run(path)
            except StoreError as error:
                self.figures.faults.append(str(error))
        return None

    def baselines(self) -> dict[str, str]:
        """A digest of every file below the baselines' folder."""
        return {
            str(p.relative_to(self.root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted((self.root / "baselines").rglob("*"))
            if p.is_file()
        }

    def servers(self) -> list[psutil.Process]:
        """Servers and supervisors that belong to this folder."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or ())
            if str(self.root) in line and "harness.serving" in line:
                found.append(process)
        return found

    def _wait_until_gone(self) -> None:
        since_s = time.monotonic()
        while self.servers() and time.monotonic() - since_s < GONE_WITHIN_S:
            time.sleep(0.02)
        waited_s = time.monotonic() - since_s
        self.figures.gone_after_s_most = max(self.figures.gone_after_s_most, waited_s)
        left = self.servers()
        self.figures.orphans += len(left)
        if left:
            self.figures.faults.append(f"left behind: {left}")

    def finish(self) -> Figures:
        """Let one run through and count what there is."""
        before = self.newest()
        code = self.run(None)
        if code not in (0, 1):
            self.figures.faults.append(f"the last run ended with {code}: {self.output()[-800:]}")
        self._wait_until_gone()
        self._compare(before, code)
        records = [read_run(p) for p in list_runs(self.results) if b"\n" in p.read_bytes()]
        self.figures.records = len(records)
        complete = [r for r in records if r.footer is not None and r.footer.complete]
        self.figures.records_complete = len(complete)
        last = records[-1]
        if last not in complete or len(finished_rungs(last)) != len(last.header.plan.depths):
            self.figures.faults.append(f"run {last.header.run_id} was not completed")
        return self.figures


def _same(a: RunRecord, b: RunRecord) -> bool:
    return a.header.run_id == b.header.run_id


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depths", default="1024,2048,3072,4096")
    parser.add_argument(
        "--latest", type=float, help="latest moment of a kill, s (default: a run's)"
    )
    parser.add_argument("--earliest", type=float, default=0.0, help="earliest moment, s")
    options = parser.parse_args(argv)
    rng = random.Random(f"crash/{options.seed}")
    depths = tuple(int(d) for d in options.depths.split(","))
    with tempfile.TemporaryDirectory() as folder:
        crash = Crash(Path(folder) / FOLDER, depths)
        since_s = time.monotonic()
        crash.run(None)
        took_s = time.monotonic() - since_s
        accepted = subprocess.run(
            [
                *(sys.executable, "-m", "harness", "baseline", "update"),
                *("--force", "--reason", "crash test"),
            ],
            cwd=crash.root,
            env=crash.environment(),
            check=False,
            capture_output=True,
        )
        if accepted.returncode != 0:
            print(accepted.stderr.decode("utf-8", "replace"))
            return 1
        latest_s = options.latest or took_s
        print(
            f"a run takes {took_s:.1f} s; kills from {options.earliest:.1f} to {latest_s:.1f} s",
            flush=True,
        )
        while crash.figures.kills < options.kills and not crash.figures.faults:
            crash.kill_once(rng.uniform(options.earliest, latest_s))
            if crash.figures.kills % 10 == 0:
                print(f"{crash.figures.kills} kills", flush=True)
        figures = crash.finish()
    print(json.dumps(asdict(figures), indent=1, ensure_ascii=False))
    return 1 if figures.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
