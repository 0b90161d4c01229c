"""Kill anything that takes part in a measurement, on a small disk that fills now and then.

`python -m bench.kills --minutes 30 --disk DIR` starts a random one of `pytest -m long` (also with
`--heatmap` or `--matrix`), `harness compare` and `harness night` on the embedded server, itself or
behind a script, and at a random moment a random one of pytest (or the command), supervisor, script
and server gets SIGKILL. Results and lock lie on a tmpfs at DIR that a file fills now and then; who
may not mount one has a disk that never fills. After each job: no process of it is left, records are
readable, no output has a traceback, and what was finished is still there and was reused.
"""

import argparse
import contextlib
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.crash import GONE_WITHIN_S
from harness.errors import StoreError
from harness.records.files import read_run
from harness.records.lines import RESUMED, RunRecord
from harness.records.sittings import finished_rungs

MARK = "BENCH_KILLS_JOB"
ENDS_WITHIN_S = 600.0
MOMENTS_S = {"long": 30.0, "heatmap": 35.0, "matrix": 50.0, "compare": 60.0, "night": 60.0}
"""Each kind of job, and the latest moment of its kill."""
VICTIMS = ("pytest", "supervisor", "wrapper", "server")
FULL_BELOW_BYTES = 64 * 1024
ENDINGS = {"compare": (0, 1, 125), "night": (0, 1, 2, 3)}
"""Exit codes that a job may have; pytest's are 0, 1 and, where nothing could begin, 4."""
FAULTS = ("orphans", "unreadable records", "tracebacks", "lost rungs", "wrong endings")
COLUMNS = ("started", *VICTIMS, "over before", "disk full", "gone on with")


@dataclass
class Figures:
    """What was done, by job and column; `faults` are sentences by their kind."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: int = 0
    rungs: int = 0
    reused: int = 0
    gone_s: float = 0.0
    faults: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in FAULTS})

    def table(self) -> str:
        """Counts by job, then what was found."""
        rows = [("job", *COLUMNS), ("---", *("---" for _ in COLUMNS))]
        rows += [(job, *(str(self.counts[job, c]) for c in COLUMNS)) for job in MOMENTS_S]
        kills = sum(n for (_, column), n in self.counts.items() if column in VICTIMS)
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines += [f"{kills} kills, {self.records} readings of records, {self.rungs} rungs finished"]
        lines += [f"{self.reused} rungs reused, last process gone after {self.gone_s:.2f} s"]
        lines += [f"{len(said)} {name}" for name, said in self.faults.items()]
        return "\n".join(lines)


class Disk:
    """The folder that fills: a tmpfs where one may be mounted."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
        self.small = subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode == 0
        self._filler = folder / "filler"

    def fill(self, spare_bytes: int) -> None:
        """Take all that is free but so many bytes."""
        taken_bytes = shutil.disk_usage(self.folder).free - spare_bytes
        with contextlib.suppress(OSError):  # the job was quicker
            self._filler.write_bytes(bytes(max(0, taken_bytes)))

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        return self.small and shutil.disk_usage(self.folder).free < FULL_BELOW_BYTES

    def close(self) -> None:
        """Unmount it."""
        if self.small:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


class Kills:
    """A project whose results are on the small disk, and what is known of its records."""

    def __init__(self, root: Path, disk: Disk, rng: random.Random) -> None:
        self.root, self.disk, self.rng = root, disk, rng
        self.results = disk.folder / "results"
        self.figures = Figures()
        self._known: dict[Path, RunRecord] = {}
        self._rungs: dict[Path, set[int]] = {}
        self._looked: dict[Path, int] = {}
        self._last = ("", "")
        self._jobs = self._nights = 0
        root.mkdir(parents=True)
        (root / "test_llm.py").write_text("from harness.suite import *\n", encoding="utf-8")
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        script, serve = root / "server.sh", f'"{sys.executable}" -m harness.serving.embedded "$@"'
        script.write_text(f"#!/bin/sh\n{serve}\nexit $?\n", encoding="utf-8")
        script.chmod(0o755)
        (root / "harness.toml").write_text(
            "depths = [1024, 2048]\nctx = 2048\nrepeats = 3\nremeasure = 0\ngenerate_tokens = 16\n"
            f'results = "{self.results}"\n'
            '[profiles.plain]\nserver_args = "-t 1"\n'
            f'[profiles.wrapped]\nserver_args = "-t 1"\nserver_bin = "{script}"\n'
            "[matrix.two]\nub = [256, 512]\n",
            encoding="utf-8",
        )

    # -- one job ----------------------------------------------------------------------------

    def command(self, kind: str, profile: str) -> list[str]:
        """The command line of a job."""
        python = [sys.executable, "-m"]
        if kind == "compare":
            return [*python, "harness", "compare", profile, profile, "--blocks", "1"]
        if kind == "night":
            self._nights += self.rng.random() < 0.5
            return [*python, "harness", "night", "--name", f"n{self._nights}"]
        more = {"heatmap": ["--heatmap", "2x2"], "matrix": ["--matrix", "two"]}.get(kind, [])
        asked = ["-m", "long", "--resume", "--profile", profile, "--label", kind, *more]
        return [*python, "pytest", "-q", "-p", "no:cacheprovider", *asked]

    def job(self) -> None:
        """Start a random job, kill a random part of it, and look at what is left."""
        rng = self.rng
        if self._jobs == 0 or rng.random() < 0.5:  # else the last one, so that much is gone on with
            self._last = rng.choice([*MOMENTS_S]), rng.choice(("plain", "wrapped", "wrapped"))
        kind, profile = self._last
        self._jobs += 1
        scripts = profile == "wrapped" or kind == "night"
        victim = rng.choice(VICTIMS if scripts else [v for v in VICTIMS if v != "wrapper"])
        self.name = f"job {self._jobs} ({kind}, {profile})"
        self.output = self.root / f"{self._jobs}.txt"
        kept = {k: v for k, v in os.environ.items() if k not in ("CI", "LLAMA_SERVER")}
        lock = str(self.disk.folder / "machine.lock")
        with self.output.open("wb") as output:
            main = subprocess.Popen(
                self.command(kind, profile),
                cwd=self.root,
                env={**kept, "HARNESS_LOCK_FILE": lock, MARK: str(self.output)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.figures.counts[kind, "started"] += 1
        killed, full = self.watch(main, kind, victim)
        self.figures.counts[kind, victim if killed else "over before"] += 1
        self.figures.counts[kind, "disk full"] += full
        self.disk.free()
        self.name += ", disk full" if full else ""
        may = ENDINGS.get(kind, (0, 1, 4) if killed or full else (0, 1))
        if (code := main.wait()) not in (-signal.SIGKILL, *may):
            self.fault("wrong endings", f"exit code {code}")
        self.look(kind)

    def watch(self, main: "subprocess.Popen[bytes]", kind: str, victim: str) -> tuple[bool, bool]:
        """Kill and fill while a job runs; whether it was killed, and found the disk full."""
        rng, disk, latest_s = self.rng, self.disk, MOMENTS_S[kind]
        moment_s, fill_s, for_s = (
            rng.uniform(0, latest_s),
            rng.uniform(0, latest_s),
            30 * rng.random(),
        )
        fills, spare_bytes = rng.random() < 0.4, rng.choice((0, 0, rng.randrange(60_000)))
        began_s, killed_s, full = time.monotonic(), math.inf, False
        doomed: list[psutil.Process] = []
        while main.poll() is None:
            at_s = time.monotonic() - began_s
            if fills and disk.small and at_s >= fill_s:
                disk.fill(spare_bytes)
                fills = False
            full = full or disk.is_full
            if at_s >= fill_s + for_s:
                disk.free()
            if killed_s == math.inf and at_s >= moment_s and (found := self.playing(victim)):
                self.records(self.paths())
                killed = rng.choice(found)
                with contextlib.suppress(psutil.Error):
                    doomed = [killed, *killed.children(recursive=True)]
                    killed.kill()
                    killed_s = at_s
                    self.name += f", {victim} killed after {at_s:.1f} s"
            if at_s > killed_s + GONE_WITHIN_S and (left := [p for p in doomed if alive(p)]):
                self.fault("orphans", f"outlived the {victim}: {[part(p) for p in left]}")
                doomed = []
            if at_s > ENDS_WITHIN_S:
                self.fault("wrong endings", f"not over after {ENDS_WITHIN_S:.0f} s")
                main.kill()
            time.sleep(0.03)
        return killed_s < math.inf, full

    def playing(self, victim: str | None = None) -> list[psutil.Process]:
        """The job's processes of one part, or all of them, whoever started them in between."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == str(self.output) and alive(process):
                    found.append(process)
        return [p for p in found if victim is None or victim == part(p)]

    # -- what is left -----------------------------------------------------------------------

    def look(self, kind: str) -> None:
        """After a job: processes, records, rungs, outputs."""
        since_s = time.monotonic()
        while (left := self.playing()) and time.monotonic() - since_s < GONE_WITHIN_S:
            time.sleep(0.02)
        self.figures.gone_s = max(self.figures.gone_s, time.monotonic() - since_s)
        for process in left:
            self.fault("orphans", f"left behind: {part(process)}")
            process.kill()
        paths = self.paths()
        before, self._known = self._known, self.records(paths)
        self.figures.records += len(paths)
        for path in {*self._rungs} - {*paths}:
            self.fault("lost rungs", f"{path.name} is gone")
        for path in self._known:
            if path.parent == self.results:
                self.compare(kind, path, before)
        for path in (self.output, *self.results.glob("**/*.log")):
            self.read(path)

    def paths(self) -> list[Path]:
        """All records, those of comparisons and copies in nights too."""
        return sorted(self.results.glob("**/*.jsonl"))

    def records(self, paths: list[Path]) -> dict[Path, RunRecord]:
        """Read them, and see that what was finished in them is."""
        found = {}
        for path in paths:
            try:
                found[path] = record = read_run(path)
            except StoreError as error:
                self.fault("unreadable records", str(error))
                continue
            known, finished = self._rungs.setdefault(path, set()), {*finished_rungs(record)}
            if known - finished:
                self.fault("lost rungs", f"{known - finished} of {path.name}")
            self.figures.rungs += len(finished - known) if "nights" not in path.parts else 0
            known |= finished
        return found

    def compare(self, kind: str, path: Path, before: dict[Path, RunRecord]) -> None:
        """What was gone on with reused all that was finished; what could be, was gone on with."""
        record, old = self._known[path], before.get(path)
        if old is not None and record.sittings > old.sittings:
            last = [e for e in record.events if e.code == RESUMED][-1]
            reused = {*last.data["reused_depths"]}
            self.figures.counts[kind, "gone on with"] += 1
            self.figures.reused += len(reused)
            if missing := {*finished_rungs(old)} - reused:
                self.fault("lost rungs", f"{missing} of {path.name} were measured again")
        like = [r for r in before.values() if asked(r) == asked(record)]
        newest = max(like, key=lambda r: r.header.run_id, default=None)
        if old is None and newest and newest.footer is None and finished_rungs(newest):
            self.fault("lost rungs", f"{path.name} did not go on with {newest.header.run_id}")

    def read(self, path: Path) -> None:
        """Look for tracebacks in what an output has got since it was last read."""
        raw = path.read_bytes()
        new, self._looked[path] = raw[self._looked.get(path, 0) :], len(raw)
        if (at := new.find(b"Traceback")) >= 0:
            self.fault("tracebacks", f"{path.name}: {new[at:][:4000].decode('utf-8', 'replace')}")

    def fault(self, name: str, said: str) -> None:
        """Count and tell one, with the end of what the job printed."""
        self.figures.faults[name].append(said)
        output = self.output.read_text(encoding="utf-8", errors="replace")[-1500:]
        print(f"FAULT, {name}: {self.name}: {said}\n{output}", flush=True)

    def tidy(self) -> None:
        """Room for more: everything is forgotten once half of the disk is used."""
        usage = shutil.disk_usage(self.disk.folder)
        if self.disk.small and usage.used > usage.total / 2:
            shutil.rmtree(self.results)
            self._known, self._rungs, self._looked = {}, {}, {}


def asked(record: RunRecord) -> tuple[str | None, ...]:
    """What tells one series of resumed runs from another."""
    header = record.header
    return header.label, header.profile, header.matrix, header.arm


def part(process: psutil.Process) -> str:
    """Which victim a process is; else its command."""
    line: list[str] = []
    with contextlib.suppress(psutil.Error):  # it may end while it is looked at
        line = process.cmdline()
    if "harness.serving.supervise" in line:
        return "supervisor"
    if any(word.endswith("server.sh") for word in line[:2]):
        return "wrapper"
    if "harness.serving.embedded" in line:
        return "server"
    return "pytest" if line[1:2] == ["-m"] else " ".join(line)[:80]


def alive(process: psutil.Process) -> bool:
    """Whether it still runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disk", type=Path, help="where the small disk is mounted")
    parser.add_argument("--size-mib", type=int, default=3)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(options.disk or Path(folder) / "disk", options.size_mib << 20)
        if not disk.small:
            print("no tmpfs could be mounted (that takes root): the disk does not fill")
        kills = Kills(Path(folder) / "kills 殺", disk, random.Random(f"kills/{options.seed}"))
        until_s = time.monotonic() + options.minutes * 60
        try:
            while time.monotonic() < until_s:
                kills.job()
                kills.tidy()
                print(kills.name, flush=True)
        finally:
            disk.close()
    print(kills.figures.table())
    return 1 if any(kills.figures.faults.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
