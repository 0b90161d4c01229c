"""All runs of a results folder as points in time, kept in an index beside them.

Reading a thousand whole records takes seconds; their locations by depth and metric are a few
kilobytes. So each record is read once and its points kept in SQLite (in the folder's `.history/`,
which git ignores, or in memory where that cannot be written). It can be deleted at any time.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from harness.errors import SetupError, StoreError
from harness.records.files import SUFFIX, parse_run
from harness.records.lines import RunRecord
from harness.records.points import Point

INDEX = Path(".history", "index.sqlite")
_VERSION = 2
_TABLES = """
CREATE TABLE IF NOT EXISTS file (name TEXT PRIMARY KEY, stamp TEXT NOT NULL, damage TEXT);
CREATE TABLE IF NOT EXISTS point (
  name TEXT NOT NULL, run_id TEXT NOT NULL, started_at TEXT NOT NULL, build TEXT NOT NULL,
  machine_class TEXT NOT NULL, model TEXT NOT NULL, configuration TEXT NOT NULL,
  depth INTEGER NOT NULL, metric TEXT NOT NULL, value REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS point_name ON point (name);
"""


@dataclass(frozen=True, slots=True)
class History:
    """Points oldest first, and a sentence for each record that could not be read."""

    points: tuple[Point, ...]
    damaged: tuple[str, ...]


PointsOf = Callable[[RunRecord], Iterable[Point]]
"""What of a record belongs into the history."""


def read_history(folder: Path | str, points_of: PointsOf) -> History:
    """Every point of every readable record in `folder`, a path or a URL that fsspec knows.

    Kept by an index, so `points_of` is always the same (`_VERSION` counts its changes).

    Raises:
        SetupError: a URL without fsspec, or with a scheme it cannot open.
        StoreError: the folder cannot be listed.
    """
    files = _remote(str(folder)) if "://" in str(folder) else _local(Path(folder))
    with _index(folder) as index:
        known = dict(index.execute("SELECT name, stamp FROM file"))
        for name in known.keys() - files.keys():
            _forget(index, name)
        for name, file in files.items():
            if known.get(name) != file.stamp:
                _forget(index, name)
                _remember(index, name, file, points_of)
        index.commit()
        rows = index.execute(
            "SELECT run_id, started_at, build, machine_class, model, configuration, depth, metric, "
            "value FROM point ORDER BY run_id, depth"
        )
        damaged = index.execute("SELECT damage FROM file WHERE damage IS NOT NULL ORDER BY name")
        return History(tuple(Point(*row) for row in rows), tuple(d for (d,) in damaged))


# -- where records are ----------------------------------------------------------------------


class _LocalFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        stat = path.stat()
        self.stamp = f"{stat.st_size}:{stat.st_mtime_ns}"

    def read(self) -> bytes:
        return self._path.read_bytes()


class _RemoteFile:
    def __init__(self, system: object, info: dict[str, object]) -> None:
        self._system, self._name = system, str(info["name"])
        marks = ("size", "mtime", "LastModified", "last_modified", "updated", "etag", "ETag")
        self.stamp = ":".join(str(info.get(mark, "")) for mark in marks)

    def read(self) -> bytes:
        return bytes(self._system.cat_file(self._name))  # type: ignore[attr-defined]


_File = _LocalFile | _RemoteFile


def _local(folder: Path) -> dict[str, _File]:
    try:
        paths = sorted(folder.glob(f"*{SUFFIX}"))
        return {path.name: _LocalFile(path) for path in paths}
    except OSError as error:
        raise StoreError(f"cannot list {folder}: {error.strerror or error}") from error


def _remote(url: str) -> dict[str, _File]:
    try:
        import fsspec
    except ImportError as error:
        raise SetupError(
            f"{url} needs fsspec and the package of its scheme: pip install "
            "longctx-harness[remote], and s3fs, gcsfs, adlfs … as fsspec's documentation lists them"
        ) from error
    try:
        system, root = fsspec.core.url_to_fs(url)
        listing = system.ls(root, detail=True)
    except (ImportError, ValueError, OSError) as error:
        raise SetupError(f"cannot open {url}: {error}") from error
    found = {
        str(info["name"]).rpartition("/")[2]: _RemoteFile(system, info)
        for info in listing
        if str(info["name"]).endswith(SUFFIX)
    }
    return dict(sorted(found.items()))


# -- the index ------------------------------------------------------------------------------


@contextmanager
def _index(folder: Path | str) -> Iterator[sqlite3.Connection]:
    """The folder's index, a fresh one in memory where it cannot be kept."""
    try:
        connection = _opened(":memory:" if "://" in str(folder) else str(_kept(Path(folder))))
    except (sqlite3.DatabaseError, OSError):
        connection = _opened(":memory:")
    with closing(connection):
        yield connection


def _kept(folder: Path) -> Path:
    """The index's file, in a folder of its own that git ignores even where results are tracked."""
    path = folder / INDEX
    path.parent.mkdir(exist_ok=True)
    ignore = path.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return path


def _opened(where: str) -> sqlite3.Connection:
    connection = sqlite3.connect(where, timeout=5.0)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            connection.executescript("DROP TABLE IF EXISTS file; DROP TABLE IF EXISTS point;")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _forget(index: sqlite3.Connection, name: str) -> None:
    index.execute("DELETE FROM point WHERE name = ?", (name,))
    index.execute("DELETE FROM file WHERE name = ?", (name,))


def _remember(index: sqlite3.Connection, name: str, file: _File, points_of: PointsOf) -> None:
    damage = None
    try:
        points = [(name, *astuple(p)) for p in points_of(parse_run(file.read(), name))]
        index.executemany("INSERT INTO point VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", points)
    except (StoreError, OSError) as error:
        damage = str(error)
    index.execute("INSERT INTO file VALUES (?, ?, ?)", (name, file.stamp, damage))
