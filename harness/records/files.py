"""Run records on disk: one JSON Lines file a run, appended by line, readable after any crash."""

import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from harness.errors import StoreError
from harness.records.lines import (
    LINE,
    RESUMED,
    SCHEMA_VERSION,
    AnyLine,
    Control,
    Event,
    Footer,
    Header,
    ProbeAsk,
    Rung,
    RunRecord,
)

SUFFIX = ".jsonl"
_STAMP = "%Y%m%d-%H%M%S"


def new_run_id(folder: Path) -> str:
    """A run id that sorts behind every run in `folder`: a time in UTC, six hexadecimal digits.

    Where the newest run is not older than now (the clock was set back, or it was named in the local
    time of a zone ahead), the id is a second behind it: which run is the newest is asked of names.
    """
    at = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    stamps = [stamp for path in list_runs(folder) if (stamp := _stamp(path.stem)) is not None]
    if stamps and max(stamps) >= at:
        at = max(stamps) + timedelta(seconds=1)
    return f"{at:{_STAMP}}-{secrets.token_hex(3)}"


def _stamp(run_id: str) -> datetime | None:
    try:
        return datetime.strptime(run_id[:15], _STAMP)
    except ValueError:
        return None


class Recorder:
    """Appends lines to one record; each is on the disk when `append` returns.

    Raises:
        StoreError: the results folder cannot be written.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.path = folder / f"{header.run_id}{SUFFIX}"
        part = folder / f".{header.run_id}.part"  # a record appears with its header or not at all
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as begun:
                _write_line(begun, header)
            if self.path.exists():
                raise FileExistsError(17, "there is a record of that name", str(self.path))
            part.rename(self.path)
            self._file: BinaryIO = self.path.open("ab")
        except OSError as error:
            raise _unwritable(folder, error) from error

    @classmethod
    def resume(cls, path: Path) -> "Recorder":
        """Go on with the record at `path`, behind its last whole line."""
        recorder = cls.__new__(cls)
        recorder.path = path
        try:
            whole = _whole_bytes(path.read_bytes())
            recorder._file = path.open("r+b")
            recorder._file.truncate(whole)
            recorder._file.seek(whole)
        except OSError as error:
            raise _unwritable(path.parent, error) from error
        return recorder

    def append(self, line: AnyLine) -> None:
        """Write one line and force it to the disk."""
        try:
            _write_line(self._file, line)
        except OSError as error:
            raise _unwritable(self.path.parent, error) from error

    def close(self) -> None:
        """Close the file; a record without a footer says that its run was cut short."""
        self._file.close()


def _write_line(file: BinaryIO, line: AnyLine) -> None:
    file.write(line.model_dump_json().encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


def write_run(folder: Path, record: RunRecord) -> Path:
    """Write a whole record that was not measured here, line by line.

    Raises:
        StoreError: a record of that id is there already, or the folder cannot be written.
    """
    path = folder / f"{record.header.run_id}{SUFFIX}"
    if path.exists():
        raise StoreError(f"{path} is there already; delete it to write that run again")
    end = () if record.footer is None else (record.footer,)
    lines: list[AnyLine] = [*record.controls, *record.rungs, *record.events, *end]
    recorder = Recorder(folder, record.header)
    for line in (*lines, *record.probe_asks):
        recorder.append(line)
    recorder.close()
    return path


def replace_whole(path: Path, text: str) -> None:
    """Write a file so that whoever reads it finds the old one or the new one, never a part."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def now() -> str:
    """The time, to the second and with its zone, as records have it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def check_writable(folder: Path) -> None:
    """Fail before anything is measured rather than after.

    Raises:
        StoreError: nothing can be created in `folder`.
    """
    probe = folder / f".write-check-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from error


def read_run(path: Path) -> RunRecord:
    """Read a record; a torn last line is dropped and said so (`torn`).

    Raises:
        StoreError: not a record, written by a newer version, or damaged before its last line.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    return parse_run(raw, path)


def parse_run(raw: bytes, path: Path | str) -> RunRecord:
    """A record from its bytes; `path` is where they are from, for messages.

    Raises:
        StoreError: as `read_run`.
    """
    pieces = raw.split(b"\n")
    torn = pieces.pop() != b""
    lines: list[AnyLine] = []
    for number, piece in enumerate(pieces, start=1):
        _refuse_newer(path, piece)
        try:
            lines.append(LINE.validate_json(piece))
        except ValidationError as error:
            if number == len(pieces) and number > 1:
                torn = True
                break
            fault = error.errors(include_url=False)[0]
            raise StoreError(
                f"{path} line {number} is not a line of a run record ({fault['msg']}); restore the "
                "file or leave that run out"
            ) from error
    if not lines or not isinstance(lines[0], Header):
        raise StoreError(f"{path} is not a run record: its first line is not a header")
    rungs = {x.depth: x for x in lines if isinstance(x, Rung)}
    return RunRecord(
        header=lines[0],
        controls=tuple(x for x in lines if isinstance(x, Control)),
        rungs=tuple(rungs[depth] for depth in sorted(rungs)),
        probe_asks=tuple(x for x in lines if isinstance(x, ProbeAsk)),
        events=tuple(x for x in lines if isinstance(x, Event)),
        footer=_footer(lines),
        torn=torn,
    )


def _footer(lines: list[AnyLine]) -> Footer | None:
    """The end of the last sitting; that of an earlier one is not the run's."""
    for line in reversed(lines):
        if isinstance(line, Footer):
            return line
        if isinstance(line, Event) and line.code == RESUMED:
            return None
    return None


def _whole_bytes(raw: bytes) -> int:
    """Length of a record without a torn last line."""
    end = raw.rfind(b"\n") + 1
    begin = raw.rfind(b"\n", 0, max(end - 1, 0)) + 1
    try:
        LINE.validate_json(raw[begin : end - 1])
    except ValidationError:
        return begin
    return end


def list_runs(folder: Path) -> list[Path]:
    """Record files in `folder`, oldest first (their names sort by time)."""
    return sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def readable_runs(folder: Path) -> Iterator[tuple[Path, RunRecord]]:
    """Readable records, newest first; damaged ones are passed over."""
    for path in reversed(list_runs(folder)):
        try:
            yield path, read_run(path)
        except StoreError:
            continue


def _refuse_newer(path: Path | str, piece: bytes) -> None:
    if not piece.startswith(b'{"kind":"header"'):
        return
    import re

    match = re.search(rb'"schema_version":(\d+)', piece)
    if match and int(match[1]) > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer version (schema {int(match[1])}, this one knows "
            f"{SCHEMA_VERSION}); update longctx-harness"
        )


def _unwritable(folder: Path, error: OSError) -> StoreError:
    if folder.is_file():
        return StoreError(f"{folder} is a file; give a folder with --results")
    return StoreError(
        f"cannot write into the results folder {folder}: {error.strerror or error}; give another "
        "with --results"
    )
