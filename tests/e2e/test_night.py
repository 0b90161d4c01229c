"""A night of three profiles, killed twice and gone on with (`python -m bench.night` measures)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from harness.cli.night_run import Plan, run_night
from harness.records.baseline import Baseline, accepted, key_of
from harness.records.baseline_files import write_baseline
from harness.records.lines import RunRecord
from tests.e2e.stub_pytest import STEADY, header_of
from tests.made import control, rung

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STARTS = (
    "import sys\n"
    "import harness.cli.night_run as night\n"
    "script = sys.argv.pop(1)\n"
    "night._command = lambda plan, profile, resume: [\n"
    "    sys.executable, '-m', 'tests.e2e.stub_pytest', script, profile, str(plan.results),\n"
    "    *(['--resume'] if resume else [])]\n"
    "from harness.cli.main import main\n"
    "main()"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A repository with three profiles, and what its pytest is to do."""

    root: Path

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def night(self) -> Path:
        return self.results / "nights" / "n1"

    def will(self, *lines: str) -> None:
        (self.root / "script.txt").write_text("\n".join(lines), encoding="utf-8")

    def did(self) -> list[str]:
        done = self.root / "script.done"
        return done.read_text(encoding="utf-8").splitlines() if done.is_file() else []

    def start(self, *args: str, **env: str) -> "subprocess.Popen[bytes]":
        script = str(self.root / "script.txt")
        return subprocess.Popen(
            [sys.executable, "-c", STARTS, script, "night", "--name", "n1", *args],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *args: str, **env: str) -> tuple[int, str]:
        process = self.start(*args, **env)
        text = process.communicate(timeout=120)[0].decode("utf-8", "replace")
        return process.returncode, text

    def left(self) -> list[str]:
        lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
        return [x for x in lines if str(self.root) in x]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "夜 間"
    root.mkdir()
    toml = "".join(f'[profiles.{p}]\nlabel = "{p}"\n' for p in ("one", "two", "three"))
    (root / "harness.toml").write_text(toml, encoding="utf-8")
    for profile in ("one", "two", "three"):
        record = RunRecord(
            header=header_of(profile, "20251231-000000-old"),
            rungs=(
                rung(2048, generation_tok_s=[r / 10 for r in STEADY]),
                rung(8192, generation_tok_s=[r / 10 for r in STEADY], start=1843),
            ),
            controls=(control("before", STEADY), control("after", STEADY)),
        )
        runs = tuple(accepted(record, "now", None) for _ in range(3))
        write_baseline(root / "baselines", Baseline(key=key_of(record.header), runs=runs))
    found = Place(root)
    yield found
    assert found.left() == []


def stop(place: Place, how: int) -> tuple[int, str]:
    """Start the night, wait until its second profile hangs, send a signal; code and output."""
    process = place.start()
    assert process.stdout is not None
    while b"stub: hanging" not in process.stdout.readline():
        assert process.poll() is None
    os.kill(process.pid, how)
    text = process.communicate(timeout=60)[0].decode("utf-8", "replace")
    deadline = time.monotonic() + 30
    while place.left() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert place.left() == []
    return process.returncode, text


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_a_night_killed_twice_ends_with_the_right_summary_issue_and_code(place: Place) -> None:
    place.will("one pass", "two hang", "two hang", "two resume", "three slow")
    stop(place, signal.SIGKILL)
    assert place.did() == ["one pass", "two hang"]
    books = json.loads((place.night / "night.json").read_text(encoding="utf-8"))
    assert [a["exit_code"] for a in books["attempts"]] == [0, None]
    code, text = stop(place, signal.SIGTERM)
    assert code == 2, text
    assert "two not finished; three not finished (interrupted)" in text
    assert (place.night / "summary.md").is_file()
    job = place.root / "job.md"
    code, text = place.run(GITHUB_STEP_SUMMARY=str(job))
    assert code == 1, text
    assert "one: measured already in this night" in text
    assert place.did()[2:] == ["two hang --resume", "two resume --resume", "three slow"]
    assert text.splitlines()[-1] == "Night n1: REGRESSED in three"
    summary = (place.night / "summary.md").read_text(encoding="utf-8")
    assert job.read_text(encoding="utf-8") == summary
    assert summary.startswith("# Night n1: REGRESSED in three\n")
    rows = {row.split("|")[1].strip(): row for row in summary.splitlines() if row.startswith("|")}
    assert "✅ PASS" in rows["one"]
    assert "✅ PASS" in rows["two"]
    assert "| 3 |" in rows["two"]
    assert "🔴 REGRESSED" in rows["three"]
    issue = (place.night / "issue.md").read_text(encoding="utf-8")
    assert issue.startswith("Night n1: REGRESSED in three\n")
    assert "## three" in issue
    assert "## one" not in issue
    assert {p.name for p in place.night.glob("*.jsonl")} == {
        p.name for p in place.results.glob("*.jsonl")
    }
    assert len(place.did()) == 5


def test_time_that_is_over_stops_the_night_and_an_earlier_nights_cut_is_gone_on_with(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = str(place.root / "script.txt")

    def command(plan: Plan, profile: str, resume: bool) -> list[str]:
        argv = [sys.executable, "-m", "tests.e2e.stub_pytest", script, profile, str(plan.results)]
        return [*argv, *(["--resume"] if resume else [])]

    monkeypatch.setattr("harness.cli.night_run._command", command)
    monkeypatch.chdir(place.root)
    place.will("two hang", "two resume")
    said: list[str] = []
    first = Plan("n1", ROOT, place.results, ("two",), hours=0.0006)
    assert run_night(first, said.append, dict(os.environ)) == 2
    assert "the night's time is over: stopping; what was measured is kept" in said
    assert said[-1] == "Night n1: two not finished"
    second = replace(first, name="n2", hours=None)
    assert run_night(second, said.append, dict(os.environ)) == 0
    assert place.did() == ["two hang", "two resume --resume"]
    assert said[-1] == "Night n2: 1 profiles passed"
