"""Builds by name on this machine: got once, kept by content, and what a server is started from.

A build is made in a folder beside its place and renamed when it is whole: a folder in the cache is
complete. `get` is the only door through which anything is fetched.
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path
from pydantic import ValidationError

from harness.errors import SetupError, StoreError
from harness.llamacpp.builds import EMBEDDED_WHEEL, Spec, between, order, parse
from harness.records.files import now
from harness.records.lines import BuildOrigin, Strict
from harness.serving.build_sources import Source, source_of
from harness.settings import BuildSettings, Settings

_NOTE = "build.json"
_FILES = "files"
_NEW = ".new-"
BINARIES = ("llama-server", "llama-server.exe")


class _Note(Strict):
    """What is noted of an installed build; `binary` is relative to its files."""

    origin: BuildOrigin
    installed_at: str
    binary: str | None


@dataclass(frozen=True, slots=True)
class Build:
    """A build that is installed; one without a `binary` is a wheel of the embedded server."""

    origin: BuildOrigin
    folder: Path
    binary: str | None
    installed_at: str

    @property
    def python_path(self) -> str | None:
        """`PYTHONPATH` under which the embedded server is this one."""
        if self.binary is not None:
            return None
        return os.pathsep.join(filter(None, (str(self.folder / _FILES), os.getenv("PYTHONPATH"))))

    @property
    def used_s(self) -> float:
        """When it was last used, as a file's time."""
        return (self.folder / _NOTE).stat().st_mtime

    @property
    def size_bytes(self) -> int:
        """What its files take on the disk."""
        return sum(p.lstat().st_size for p in self.folder.rglob("*") if p.is_file())


def cache_folder(options: BuildSettings) -> Path:
    """Where builds are kept: `[builds] cache`, else the user's cache folder."""
    cache = options.cache or user_cache_path("longctx-harness", appauthor=False) / "builds"
    return cache.absolute()  # a commit is built from within its sources


def build_of(settings: Settings) -> Build | None:
    """The build that `server_bin` names, got if need be; `None` where it is a path or nothing.

    Raises:
        SetupError: it cannot be had, with the reason.
    """
    if settings.embedded or settings.server_bin is None or parse(settings.server_bin) is None:
        return None
    return get(settings.server_bin, settings.builds, offline=settings.offline)


@lru_cache(maxsize=256)
def get(name: str, options: BuildSettings, *, offline: bool) -> Build:
    """The build of that name: from the cache, else from its source. `latest` stays the same here.

    Raises:
        SetupError: there is no such build, it cannot be fetched, or it is not what it should be.
    """
    spec = pinned(name, options, offline=offline)
    source = source_of(spec, options)
    cache = cache_folder(options)
    with _writing(cache), FileLock(cache / f"{_slug(source, spec)}.lock"):
        if (build := _installed(cache, source, spec)) is not None:
            return build
        if offline and spec.source != "commit":
            raise SetupError(
                f"{spec.name} is not among the builds that are here and --offline forbids to fetch "
                "it; run once without, or take one that `harness builds` lists"
            )
        return _install(cache, source, spec)


@lru_cache(maxsize=256)
def pinned(name: str, options: BuildSettings, *, offline: bool) -> Spec:
    """What a name means now: `latest` is the newest its source has, offline the newest here."""
    spec = _spec(name)
    if not offline or spec.source == "commit":
        return source_of(spec, options).pin(spec)
    if spec.pinned:
        return spec
    here = [parse(build.origin.name) for build in installed(options)]
    alike = [s for s in here if s is not None and s == spec.at(s.version)]
    if not alike:
        raise SetupError(f"{name}: no build of it is here, and --offline forbids to look for one")
    return max(alike, key=lambda s: order(s.version))


def _spec(name: str) -> Spec:
    spec = parse(name)
    if spec is None:
        raise SetupError(
            f"{name} is no name of a build; expected b11549, latest, {EMBEDDED_WHEEL}==VERSION, "
            "wheel:NAME==VERSION or commit:REVISION"
        )
    return spec


def series(good: str, bad: str, options: BuildSettings, *, offline: bool) -> tuple[str, ...]:
    """Names of the builds from `good` to `bad`, both included, in order.

    Raises:
        SetupError: the two are of different sources, or their source cannot be asked.
    """
    first, last = (pinned(name, options, offline=offline) for name in (good, bad))
    if first != last.at(first.version):
        raise SetupError(
            f"{good} and {bad} are not builds of one source, so nothing lies between them; give "
            "two of one, or the builds between with --among"
        )
    source = source_of(first, options)
    if offline and first.source != "commit":
        here = [parse(build.origin.name) for build in installed(options)]
        alike = [s.version for s in here if s is not None and s == first.at(s.version)]
        return tuple(s.name for s in between(first, last, alike))
    return tuple(spec.name for spec in source.between(first, last))


def available(name: str, options: BuildSettings, most: int) -> tuple[str, ...]:
    """Names of the newest builds of a name's kind that its source has for this machine."""
    spec = _spec(name)
    return tuple(one.name for one in islice(source_of(spec, options).available(spec), most))


def installed(options: BuildSettings) -> list[Build]:
    """Every build that is here, by name."""
    found = (_read(path.parent) for path in cache_folder(options).glob(f"*/{_NOTE}"))
    return sorted((b for b in found if b), key=lambda build: order(build.origin.name))


def remove(build: Build) -> None:
    """Delete an installed build; its note goes first, so that half of it is never used."""
    (build.folder / _NOTE).unlink(missing_ok=True)
    shutil.rmtree(build.folder, ignore_errors=True)


def remove_leftovers(options: BuildSettings) -> None:
    """Delete what installations that were killed left: folders, and parts of downloads."""
    cache = cache_folder(options)
    for path in (*cache.glob(f"{_NEW}*"), *cache.glob("*.part")):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


# -- one build -------------------------------------------------------------------------------


def _slug(source: Source, spec: Spec) -> str:
    return re.sub(r"[^\w.+-]+", "_", f"{spec.name}{source.flavour(spec)}")


def _installed(cache: Path, source: Source, spec: Spec) -> Build | None:
    for note in cache.glob(f"{_slug(source, spec)}-*/{_NOTE}"):
        build = _read(note.parent)
        if build is not None and build.origin.name == spec.name:
            note.touch()
            return build
    return None


def _read(folder: Path) -> Build | None:
    try:
        note = _Note.model_validate_json((folder / _NOTE).read_bytes())
    except (OSError, ValidationError):
        return None
    binary = None if note.binary is None else str(folder / _FILES / note.binary)
    if binary is not None and not Path(binary).is_file():
        return None
    return Build(note.origin, folder, binary, note.installed_at)


def _install(cache: Path, source: Source, spec: Spec) -> Build:
    with _fresh_folder(cache) as new:
        files = new / _FILES
        files.mkdir()
        origin = source.fetch(spec, files, cache)
        binary = None
        if spec.project != EMBEDDED_WHEEL:
            binary = _binary_in(files, spec).relative_to(files).as_posix()
        note = _Note(origin=origin, installed_at=now(), binary=binary)
        (new / _NOTE).write_text(note.model_dump_json(indent=1), encoding="utf-8")
        place = cache / f"{_slug(source, spec)}-{origin.digest[:12]}"
        if place.exists():  # what is left of one whose note cannot be read
            shutil.rmtree(place)
        new.rename(place)
    build = _read(place)
    assert build is not None
    return build


def _binary_in(files: Path, spec: Spec) -> Path:
    found = sorted(p for name in BINARIES for p in files.rglob(name) if p.is_file())
    if not found:
        raise SetupError(f"{spec.name} holds no llama-server; expected one in what was fetched")
    if sys.platform != "win32":
        found[0].chmod(found[0].stat().st_mode | 0o755)
    return found[0]


@contextlib.contextmanager
def _fresh_folder(cache: Path) -> Iterator[Path]:
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=cache))
    new.chmod(0o755)
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextlib.contextmanager
def _writing(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StoreError(
            f"cannot keep builds in {cache}: {error.strerror or error}; give another folder with "
            "[builds] cache in harness.toml"
        ) from error


def unused_since(options: BuildSettings, days: float) -> list[Build]:
    """Builds that nobody used in the last `days`."""
    limit_s = time.time() - days * 86400
    return [build for build in installed(options) if build.used_s < limit_s]
