"""Takes out one guard after another and looks whether its rows fail.

`python -m tests.faults.mutate` works in a copy of the project (POSIX only: each try is a fork, so
that libraries are loaded once). Exit code 1 when a guard's text is gone from the code or a row
passes without its guard. Words as arguments choose the guards whose description has one of them.
"""

import contextlib
import importlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from harness.machine.lock import LOCK_VARIABLE
from tests.faults.conftest import BASELINES_VARIABLE, accept_two
from tests.faults.guard import Guard
from tests.faults.guards import GUARDS
from tests.faults.launched import LAUNCHED

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
LIBRARIES = ("hypothesis", "scipy.stats", "scipy.optimize", "openai", "httpx2", "rich.table")


def main(words: list[str]) -> int:
    """Try the guards chosen by `words`, all by default."""
    chosen = [g for g in GUARDS if not words or any(w in g.what for w in words)]
    for name in LIBRARIES:
        importlib.import_module(name)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="guards-") as folder:
        copy = Path(folder, "project")
        for part in ("harness", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conftest.py", "pytest.ini"):
            shutil.copy(ROOT / name, copy / name)
        os.environ[LOCK_VARIABLE] = str(Path(folder, "machine.lock"))
        os.environ[BASELINES_VARIABLE] = str(Path(folder, "baselines"))
        accept_two(Path(folder, "baselines"), Path(folder, "runs"))
        for guard in chosen:
            fault = survivors(guard, copy)
            bad += bool(fault)
            said = f"NOT SEEN: {guard.what}: {fault}" if fault else f"seen: {guard.what}"
            print(said, f"[{', '.join(guard.rows)}]", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} guards are seen to be missing")
    return 1 if bad else 0


def survivors(guard: Guard, copy: Path) -> str:
    """What is wrong with a guard: its text is not there once, or rows that pass without it."""
    path = copy / guard.path
    whole = path.read_text(encoding="utf-8")
    if whole.count(guard.text) != 1:
        return f"its text is {whole.count(guard.text)} times in {guard.path}"
    path.write_text(whole.replace(guard.text, guard.without), encoding="utf-8")
    try:
        outcomes = _tried(guard.rows, copy)
    finally:
        path.write_text(whole, encoding="utf-8")
    return ", ".join(row for row in guard.rows if outcomes.get(row) != "failed")


def _tried(rows: tuple[str, ...], copy: Path) -> dict[str, str]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(rows, copy, theirs))
    child.start()
    theirs.close()
    outcomes: dict[str, str] = {}
    with contextlib.suppress(EOFError):
        if ours.poll(PATIENCE_S):
            outcomes = ours.recv()
    child.kill()
    child.join()
    return outcomes


def _run(rows: tuple[str, ...], copy: Path, answer: Connection) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] in ("tests", "harness")]:
        del sys.modules[name]
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True
    outcomes: dict[str, str] = {}

    class Outcomes:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            row = report.nodeid.partition("[")[2].removesuffix("]")
            if report.when == "call":
                outcomes[row] = report.outcome

    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(
            ["--assert=plain", "-q", "--tb=no", "-p", "no:cacheprovider", *map(_test_of, rows)],
            plugins=[Outcomes()],
        )
    answer.send(outcomes)


def _test_of(row: str) -> str:
    if any(row == launched.name for launched in LAUNCHED):
        return f"tests/faults/test_launched.py::test_a_started_server_gets_its_outcome[{row}]"
    return f"tests/faults/test_faults.py::test_a_fault_gets_its_outcome[{row}]"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
