"""Runs killed at random moments lose nothing measured (`python -m bench.crash` kills more)."""

import random
import sys
from pathlib import Path

import pytest

from bench.crash import FOLDER, Crash
from harness.records.sittings import finished_rungs

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_killed_runs_are_gone_on_with_to_the_end(tmp_path: Path) -> None:
    crash = Crash(tmp_path / FOLDER, (1024, 2048))
    (crash.root / "baselines" / "mine.json").write_text("{}", encoding="utf-8")
    rng = random.Random(0)
    crash.kill_when(lambda record: len(finished_rungs(record)) == 1, after_s=rng.uniform(0, 0.2))
    figures = crash.finish()
    assert figures.faults == []
    assert figures.kills == 1
    assert figures.orphans == 0
    assert figures.records == figures.records_complete == 1
    assert figures.sittings_most == 2
    assert figures.rungs_reused >= 1
    record = crash.newest()
    assert record is not None
    assert record.rungs[0].sitting == 1
    assert "reused the rungs 1024" in crash.output()
    assert record.event_data("regained")["depth"] == 1024
    climb = record.rungs[1].prefills[-1]
    assert climb.kind == "climb"
    assert climb.cached_tokens == climb.planned_cached_tokens > 0
