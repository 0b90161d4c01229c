"""Run records on disk: one JSON Lines file a run, appended by line, readable after any crash."""

import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import RawIOBase
from pathlib import Path

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
            with part.open("wb", buffering=0) as begun:
                self._whole_bytes = _write_line(begun, header)
            if self.path.exists():
                raise FileExistsError(17, "there is a record of that name", str(self.path))
            part.rename(self.path)
            self._file: RawIOBase = self.path.open("ab", buffering=0)
        except OSError as error:
            raise _unwritable(folder, error) from error

    @classmethod
    def resume(cls, path: Path) -> "Recorder":
        """Go on with the record at `path`, behind its last whole line."""
        recorder = cls.__new__(cls)
        recorder.path = path
        try:
            _, recorder._whole_bytes = _whole_lines(path.read_bytes(), path)
            recorder._file = path.open("ab", buffering=0)
        except OSError as error:
            raise _unwritable(path.parent, error) from error
        return recorder

    def append(self, line: AnyLine) -> None:
        """Write one line and force it to the disk, behind the last whole one.

        So half a line that an earlier write left on a full disk is gone before anything follows.
        """
        try:
            self._file.truncate(self._whole_bytes)
            self._whole_bytes += _write_line(self._file, line)
        except OSError as error:
            raise _unwritable(self.path.parent, error) from error

    def close(self) -> None:
        """Close the file; a record without a footer says that its run was cut short."""
        self._file.close()


def _write_line(file: RawIOBase, line: AnyLine) -> int:
    data = line.model_dump_json().encode() + b"\n"
    rest = memoryview(data)
    while rest:  # a disk that fills takes a part
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())
    return len(data)


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
    """Read a record up to its last whole line; `torn` says that something stands behind that.

    Raises:
        StoreError: not a record, or written by a newer version.
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
    lines, whole_bytes = _whole_lines(raw, path)
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
        torn=whole_bytes < len(raw),
    )


def _footer(lines: list[AnyLine]) -> Footer | None:
    """The end of the last sitting; that of an earlier one is not the run's."""
    for line in reversed(lines):
        if isinstance(line, Footer):
            return line
        if isinstance(line, Event) and line.code == RESUMED:
            return None
    return None


def _whole_lines(raw: bytes, path: Path | str) -> tuple[list[AnyLine], int]:
    """The lines before the first broken one, and how many bytes they are."""
    lines: list[AnyLine] = []
    end = 0
    while (line_end := raw.find(b"\n", end)) >= 0:
        piece = raw[end:line_end]
        _refuse_newer(path, piece)
        try:
            lines.append(LINE.validate_json(piece))
        except ValidationError:
            break
        end = line_end + 1
    return lines, end


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
