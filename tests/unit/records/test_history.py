"""The history of a results folder: points, its index, damaged records, other places than disks."""

import sqlite3
import subprocess
from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.records import history
from harness.records.history import INDEX, read_history
from harness.records.lines import Failure, RunRecord
from harness.verdicts.trend import points_of
from tests.made import whole_run


def lines(run: RunRecord) -> bytes:
    every = [run.header, *run.controls, *run.rungs, *run.events, run.footer]
    return b"".join(x.model_dump_json().encode() + b"\n" for x in every if x is not None)


def write(folder: Path, run: RunRecord) -> Path:
    path = folder / f"{run.header.run_id}.jsonl"
    path.write_bytes(lines(run))
    return path


def test_every_cell_of_every_run_is_a_point(tmp_path: Path) -> None:
    runs = [whole_run(seed) for seed in (1, 2)]
    for run in runs:
        write(tmp_path, run)
    found = read_history(tmp_path, points_of)
    assert found.damaged == ()
    assert sorted(found.points, key=str) == sorted(
        (p for run in runs for p in points_of(run)), key=str
    )
    assert len(found.points) == 2 * 4 * 5


def test_a_point_is_the_median_of_the_undisturbed_samples() -> None:
    (generation,) = (
        p for p in points_of(whole_run(1)) if (p.metric, p.depth) == ("generation", 2048)
    )
    assert generation.value == pytest.approx(87.0, rel=0.02)


def test_failed_rungs_have_no_points() -> None:
    run = whole_run(1)
    broken = run.rungs[-1].model_copy(
        update={"failure": Failure(cause="DEVICE_LOST", message="gone")}
    )
    run = run.model_copy(update={"rungs": (*run.rungs[:-1], broken)})
    assert {p.depth for p in points_of(run)} == {2048, 8192, 32768}


def test_a_record_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, whole_run(1))
    first = read_history(tmp_path, points_of)
    monkeypatch.setattr(history, "parse_run", lambda *_: pytest.fail("read again"))
    assert read_history(tmp_path, points_of) == first


def test_a_changed_record_is_read_again_and_a_deleted_one_forgotten(tmp_path: Path) -> None:
    kept, gone = write(tmp_path, whole_run(1)), write(tmp_path, whole_run(2))
    read_history(tmp_path, points_of)
    gone.unlink()
    kept.write_bytes(lines(whole_run(1, generation=0.5)) + b"\n")
    found = read_history(tmp_path, points_of)
    assert {p.run_id for p in found.points} == {whole_run(1).header.run_id} or found.damaged
    kept.write_bytes(lines(whole_run(1, generation=0.5)))
    found = read_history(tmp_path, points_of)
    deep = {p.depth: p.value for p in found.points if p.metric == "generation"}
    assert deep[131072] == pytest.approx(14.1, rel=0.03)
    assert {p.run_id for p in found.points} == {whole_run(1).header.run_id}


def test_git_does_not_see_the_index_where_results_are_tracked(tmp_path: Path) -> None:
    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *args], capture_output=True, text=True, check=True
        )
        return done.stdout

    git("init", "-q")
    write(tmp_path, whole_run(1))
    read_history(tmp_path, points_of)
    assert (tmp_path / INDEX).is_file()
    untracked = git("status", "--porcelain", "--untracked-files=all")
    assert untracked == f"?? {whole_run(1).header.run_id}.jsonl\n"


def test_a_damaged_record_is_named_and_the_rest_read(tmp_path: Path) -> None:
    write(tmp_path, whole_run(1))
    (tmp_path / "20260101-000000-bad.jsonl").write_text("{}\n")
    found = read_history(tmp_path, points_of)
    assert len(found.points) == 20
    (damage,) = found.damaged
    assert "20260101-000000-bad.jsonl" in damage


@pytest.mark.parametrize("content", [b"not a database", b""])
def test_a_broken_index_costs_time_not_the_history(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, whole_run(1))
    (tmp_path / INDEX).parent.mkdir()
    (tmp_path / INDEX).write_bytes(content)
    assert len(read_history(tmp_path, points_of).points) == 20


def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    write(tmp_path, whole_run(1))
    read_history(tmp_path, points_of)
    with sqlite3.connect(tmp_path / INDEX) as index:
        index.execute("UPDATE point SET value = -1")
        index.execute("PRAGMA user_version = 999")
    index.close()
    assert min(p.value for p in read_history(tmp_path, points_of).points) > 0


def test_an_empty_or_missing_folder_has_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path, points_of).points == ()
    assert read_history(tmp_path / "none", points_of).points == ()


def test_records_in_an_object_store(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    run = whole_run(1)
    system.pipe(f"/runs/{run.header.run_id}.jsonl", lines(run))
    assert read_history("memory://runs", points_of).points == tuple(
        sorted(points_of(run), key=lambda p: (p.run_id, p.depth))
    )


def test_an_address_nobody_knows_is_one_sentence() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(SetupError, match="nowhere://x"):
        read_history("nowhere://x", points_of)
