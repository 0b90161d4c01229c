"""A night as it can go: three profiles, killed twice, gone on with, one regression planted.

`python -m bench.night` measures three profiles on the embedded server in two quiet nights and
accepts them. In a third night one profile gets a flag that makes the model lose distant needles
(`--rope-freq-scale 0.9`; the local control stays right). That night is killed (SIGKILL) twice at
random moments and started again each time. The exit code is 0 if then the summary, the issue text,
the exit code and the files are what they must be.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from harness.records.files import list_runs, read_run
from harness.records.night import Attempt, Night

PROFILES = ("plain", "hard", "planted")
PLANTED = "--rope-freq-scale 0.9"
ARGUMENTS = "--remeasure=0 --repeats=3 --no-strict-verdicts"
GONE_WITHIN_S = 30.0


class Place:
    """A repository with three profiles."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = root / "results"
        root.mkdir(parents=True)
        (root / "test_llm.py").write_text("from harness.suite import *\n", encoding="utf-8")
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        self.configure("")

    def configure(self, planted: str) -> None:
        """Write harness.toml; `planted` are flags of the last profile's server."""
        lines = ["depths = [1024, 2048]"]
        for profile in PROFILES:
            lines += [f"[profiles.{profile}]", f'label = "{profile}"']
            lines += ['background = "hard"'] if profile == "hard" else []
            args = f"-t 2 {planted if profile == 'planted' else ''}".strip()
            lines += [f'server_args = "{args}"']
        (self.root / "harness.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """Begin or go on with a night."""
        kept = {k: v for k, v in os.environ.items() if k not in ("CI", "LLAMA_SERVER")}
        with (self.root / f"{name}.txt").open("ab") as output:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "harness", "night", "--name", name),
                    *("--pytest-args", ARGUMENTS),
                ],
                cwd=self.root,
                env={
                    **kept,
                    "HARNESS_LOCK_FILE": str(self.root / "machine.lock"),
                    "GITHUB_STEP_SUMMARY": str(self.root / f"{name}.md"),
                    "PYTHONUTF8": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str, profile: str, after_s: float) -> bool:
        """Start a night and kill it so long after it began a profile; False if it was over."""
        night = self.start(name)
        books = self.results / "nights" / name / "night.json"
        before = len(self.attempts(books, profile))
        while night.poll() is None and len(self.attempts(books, profile)) == before:
            time.sleep(0.05)
        try:
            night.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            os.kill(night.pid, signal.SIGKILL)
            night.wait()
            return True
        return False

    @staticmethod
    def attempts(books: Path, profile: str) -> list[Attempt]:
        """The starts of a profile so far."""
        if not books.is_file():
            return []
        night = Night.model_validate_json(books.read_bytes())
        return [a for a in night.attempts if a.profile == profile]

    def accept(self) -> int:
        """Accept the two newest runs of each profile."""
        code = 0
        for profile in PROFILES:
            runs = [
                r for p in list_runs(self.results) if (r := read_run(p)).header.profile == profile
            ]
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "harness", "baseline", "update"),
                    *(r.header.run_id for r in runs[-2:]),
                    *("--force", "--reason", "two quiet nights"),
                ],
                cwd=self.root,
                env={k: v for k, v in os.environ.items() if k != "CI"},
                stdout=subprocess.DEVNULL,
                check=False,
            )
            code = code or done.returncode
        return code

    def left(self) -> list[str]:
        """Command lines of processes that belong to this place."""
        lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
        return [line for line in lines if str(self.root) in line]


def main(argv: list[str] | None = None) -> int:
    """0 if the night came out as it must."""
    parser = argparse.ArgumentParser(prog="python -m bench.night", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    rng = random.Random(f"night/{options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "夜 night")
        took_s = []
        for name in ("first", "second"):
            since_s = time.monotonic()
            code = place.start(name).wait()
            took_s.append(time.monotonic() - since_s)
            print(f"night {name}: {took_s[-1]:.0f} s, exit code {code}", flush=True)
        if place.accept() != 0:
            print("the two nights could not be accepted")
            return 1
        place.configure(PLANTED)
        killed: list[tuple[str, float]] = []
        for profile in PROFILES[:2]:
            after_s = round(rng.uniform(0.2, 0.8) * took_s[-1] / len(PROFILES), 1)
            if place.kill("third", profile, after_s):
                killed.append((profile, after_s))
            since_s = time.monotonic()
            while place.left() and time.monotonic() - since_s < GONE_WITHIN_S:
                time.sleep(0.05)
        orphans = place.left()
        code = place.start("third").wait()
        faults = found(place, code)
        if len(killed) != 2:
            faults.append("the night was over before it was killed twice")
        if orphans:
            faults.append(f"left behind: {orphans}")
        shown = place.results / "nights" / "third"
        for line in (shown / "summary.md").read_text(encoding="utf-8").splitlines()[:8]:
            print(line)
        books = Night.model_validate_json((shown / "night.json").read_bytes())
        attempts = [(a.profile, a.resumed, a.exit_code) for a in books.attempts]
        print(json.dumps({"killed": killed, "attempts": attempts, "exit_code": code}))
        print(f"files: {', '.join(sorted(p.name for p in shown.iterdir()))}")
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


def found(place: Place, code: int) -> list[str]:
    """What is not as it must be."""
    shown = place.results / "nights" / "third"
    faults = []
    summary = (shown / "summary.md").read_text(encoding="utf-8")
    rows = {r.split("|")[1].strip(): r for r in summary.splitlines() if r.startswith("|")}
    if "REGRESSED" not in rows["planted"]:
        faults.append(f"the planted regression is not in the summary: {rows['planted']}")
    if code != 1:
        faults.append(f"the exit code is {code}, not 1")
    issue = shown / "issue.md"
    if not issue.is_file() or "## planted" not in issue.read_text(encoding="utf-8"):
        faults.append("there is no issue text about the planted regression")
    if summary not in (place.root / "third.md").read_text(encoding="utf-8"):
        faults.append("the job's summary is not the night's")
    books = Night.model_validate_json((shown / "night.json").read_bytes())
    for profile in PROFILES:
        last = books.last(profile)
        if last is None or last.cut_short or last.run_id is None:
            faults.append(f"{profile} was not measured to its end")
        elif not (shown / f"{last.run_id}.jsonl").is_file():
            faults.append(f"the record of {profile} is not with the night's files")
        for suffix in (".html", ".xml", ".log"):
            if not (shown / f"{profile}{suffix}").is_file():
                faults.append(f"there is no {profile}{suffix}")
    if not any(a.resumed for a in books.attempts):
        faults.append("nothing was gone on with")
    return faults


if __name__ == "__main__":
    raise SystemExit(main())
