"""A folder that is somebody else's repository, and pytest run in it as a user would."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from harness.records.files import list_runs, read_run
from harness.records.lines import RunRecord
from harness.serving.packaged import reference_model
from tests.children import own_environment


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command: exit code and everything it printed."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Bench:
    """The user's folder, with results, baselines and a machine lock of its own."""

    root: Path

    @property
    def results(self) -> Path:
        return self.root / "results"

    def environment(self, **more: str) -> dict[str, str]:
        kept = own_environment("CI", "LLAMA_SERVER", "COLUMNS")
        lock = str(self.root / "machine.lock")
        return {**kept, "HARNESS_LOCK_FILE": lock, "PYTHONUTF8": "1", **more}

    def pytest(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        return self.command("-m", "pytest", "-p", "no:cacheprovider", *args, env=env)

    def harness(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        return self.command("-m", "harness", *args, env=env)

    def command(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, *args],
            cwd=self.root,
            env=self.environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=240,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode("utf-8", "replace"))

    def start(self, *args: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, *args],
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def records(self) -> list[RunRecord]:
        return [read_run(path) for path in list_runs(self.results)]


def new_bench(folder: Path) -> Bench:
    """A user's repository below `folder`; its name has a space, as folders do."""
    root = folder / "some repo"
    root.mkdir()
    (root / "test_llm.py").write_text("from harness.suite import *\n", encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return Bench(root)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A user's repository; afterwards no server started for it may be left."""
    result = new_bench(tmp_path)
    yield result
    assert servers_of(result.root) == []


def embedded_argv(port: int, *flags: str) -> tuple[str, ...]:
    """Command line of the embedded server with the reference model, as a user would start it."""
    model = ("--model", str(reference_model()), "--port", str(port))
    return (sys.executable, "-m", "harness.serving.embedded", *model, *flags)


def servers_of(root: Path) -> list[str]:
    """Command lines of servers and supervisors that belong to a bench."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(root) in line and "harness.serving" in line:
            found.append(line)
    return found
