"""Run records: whatever is cut off the end, what was finished before it can be read."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import StoreError
from harness.records.files import (
    Recorder,
    check_writable,
    list_runs,
    new_run_id,
    read_run,
    readable_runs,
)
from harness.records.lines import Footer
from tests.made import header, rung


def write_record(folder: Path) -> Path:
    recorder = Recorder(folder, header())
    for depth in (2048, 8192):
        recorder.append(rung(depth))
    recorder.append(Footer(ended_at="now", complete=True, prefilled_tokens=9, elapsed_s=1.0))
    recorder.close()
    return recorder.path


def test_read_back_whole(tmp_path: Path) -> None:
    record = read_run(write_record(tmp_path))
    assert [r.depth for r in record.rungs] == [2048, 8192]
    assert record.footer is not None
    assert not record.torn


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_record_cut_at_any_byte_keeps_its_finished_rungs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = write_record(folder)
    raw = path.read_bytes()
    first_line = raw.index(b"\n") + 1
    keep = data.draw(st.integers(first_line, len(raw)))
    path.write_bytes(raw[:keep])
    record = read_run(path)
    whole_lines = raw[:keep].count(b"\n")
    assert len(record.rungs) == min(2, whole_lines - 1)
    assert record.torn == (raw[:keep][-1:] != b"\n")
    assert (record.footer is not None) == (whole_lines == 4)


def test_a_record_of_nothing_but_a_torn_header_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StoreError, match="not a run record"):
        read_run(path)


def test_what_stands_before_a_broken_line_is_kept(tmp_path: Path) -> None:
    path = write_record(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:50] + b"\n"
    path.write_bytes(b"".join(lines))
    record = read_run(path)
    assert [r.depth for r in record.rungs] == [2048]
    assert record.torn
    assert record.footer is None


@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")
def test_a_failed_write_leaves_nothing_that_hides_what_follows(tmp_path: Path) -> None:
    import resource
    import signal

    recorder = Recorder(tmp_path, header())
    recorder.append(rung(2048))
    before = recorder.path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before + 40, limits[1]))
        with pytest.raises(StoreError, match="cannot write into the results folder"):
            recorder.append(rung(8192))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert recorder.path.stat().st_size == before + 40
    recorder.append(rung(8192))
    recorder.close()
    record = read_run(recorder.path)
    assert [r.depth for r in record.rungs] == [2048, 8192]
    assert not record.torn


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path)
    raw = path.read_bytes().replace(b'"schema_version":1', b'"schema_version":2', 1)
    path.write_bytes(raw)
    with pytest.raises(StoreError, match="newer version"):
        read_run(path)


def test_nan_never_reaches_the_disk() -> None:
    with pytest.raises(ValueError, match="finite"):
        Footer(ended_at="now", complete=True, prefilled_tokens=0, elapsed_s=float("nan"))


def test_a_folder_that_is_a_file_is_refused_before_measuring(tmp_path: Path) -> None:
    blocked = tmp_path / "results"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="results is a file; give a folder with --results"):
        check_writable(blocked)


def test_damaged_records_are_passed_over_when_looking_for_runs(tmp_path: Path) -> None:
    good = write_record(tmp_path)
    (tmp_path / "00.jsonl").write_text("garbage\n", encoding="utf-8")
    assert len(list_runs(tmp_path)) == 2
    assert [path for path, _ in readable_runs(tmp_path)] == [good]


def test_a_last_line_that_ends_but_is_no_json_is_dropped(tmp_path: Path) -> None:
    path = write_record(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + b'{"kind":"foo\n')
    record = read_run(path)
    assert record.torn
    assert len(record.rungs) == 2


def test_a_record_appears_with_its_header_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        assert not list_runs(tmp_path)
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.records.files.os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        Recorder(tmp_path, header())
    monkeypatch.undo()
    assert not list_runs(tmp_path)
    Recorder(tmp_path, header()).close()
    (path,) = list_runs(tmp_path)
    assert read_run(path).header == header()


# -- names -------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows cannot change a process' zone")
def test_a_run_id_is_in_utc_whatever_the_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = datetime.now(UTC)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        stamp = datetime.strptime(f"{new_run_id(tmp_path)[:15]}+0000", "%Y%m%d-%H%M%S%z")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert abs((stamp - before).total_seconds()) < 60


def test_the_newest_run_sorts_last_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """Case 77: an older run was judged as the newest."""
    (tmp_path / "20990101-235959-ffffff.jsonl").touch()
    (tmp_path / "imported.jsonl").touch()
    assert new_run_id(tmp_path).startswith("20990102-000000-")
