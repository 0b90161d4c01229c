"""Kept KV caches: saved slots in the user's cache folder, from which spot runs go on.

A server is only ever given a file whose manifest is there and whose size and SHA-256 fit: builds
end with a failed assertion at a file that is cut off. The manifest is written last.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from harness.errors import ServerError
from harness.llamacpp.flags import cache_settings, values_of
from harness.llamacpp.kv import GIB, kv_theory
from harness.quantities import size
from harness.records.files import now, replace_whole
from harness.records.lines import Event
from harness.records.strict import Strict
from harness.serving.session import Session
from harness.serving.slots import LEAST_FREE_BYTES, SAVED, Slots, number_in
from harness.settings import Settings

if TYPE_CHECKING:
    from harness.serving.client import Client

_FILE, _PART, _MANIFEST = ".kv", ".part", ".json"
_DEPENDS_ON = ("--cache-type-", "--rope-", "--yarn-", "--lora", "--control-vector", "--override-kv")


class Manifest(Strict):
    """What is known of a kept file: the tokens in it, and who wrote it when."""

    key: str
    depth: int
    tokens: int
    size_bytes: int
    digest: str
    run_id: str
    build: str
    saved_at: str


def key_of(session: Session, text: str) -> str:
    """The name of what a cache holds: by the model, what shapes its cells, and the text read."""
    flags = values_of(session.identity.argv)
    shaping = sorted((k, v) for k, v in flags.items() if k.startswith(_DEPENDS_ON))
    told = json.dumps([session.model.content_hash, shaping, text])
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def manifests(folder: Path) -> Iterator[Manifest]:
    """Of every kept file, oldest first; one that cannot be read is passed over."""
    found = []
    for path in folder.glob(f"*{_MANIFEST}"):
        try:
            found.append(Manifest.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    yield from sorted(found, key=lambda m: (m.saved_at, m.depth))


def manifest_of(folder: Path, key: str) -> Manifest | None:
    """That of the file kept under `key`."""
    return next((m for m in manifests(folder) if m.key == key), None)


def file_name(manifest: Manifest) -> str:
    """The name by which a server is asked to restore it."""
    return f"{manifest.key}{_FILE}"


def damage(folder: Path, manifest: Manifest) -> str | None:
    """What is wrong with a kept file, `None` if it is what was saved."""
    path = folder / file_name(manifest)
    try:
        if (there := path.stat().st_size) != manifest.size_bytes:
            return f"its file has {there} bytes instead of {manifest.size_bytes}"
        if _digest(path) != manifest.digest:
            return "its file is not what was saved (its SHA-256 differs)"
    except OSError as error:
        return f"its file cannot be read: {error.strerror or error}"
    return None


def remove(folder: Path, key: str) -> None:
    """Delete a kept file; its manifest goes first, so that half of it is never used."""
    for suffix in (_MANIFEST, _FILE, _PART):
        (folder / f"{key}{suffix}").unlink(missing_ok=True)


def forecast_bytes(session: Session, settings: Settings, tokens: Collection[int]) -> int | None:
    """What the caches of documents of so many tokens will take; `None` where it can't be told."""
    if session.gguf is None:
        return None
    cache = cache_settings(settings.server_args)
    theory = kv_theory(session.gguf.metadata, settings.ctx_tokens, cache)
    if theory.bytes_per_token is None or theory.fixed_bytes is None:
        return None
    return sum(theory.bytes_per_token * n + theory.fixed_bytes for n in tokens)


class Keeping(Slots):
    """Saves each rung's document to be kept; a resumed run takes it from there, too.

    `key` names what is in the cache at a depth, `accepted` are runs whose files stay.
    """

    def __init__(
        self,
        client: "Client",
        folder: Path,
        run_id: str,
        keep: Callable[[Event], None],
        *,
        key: Callable[[int], str],
        build: str,
        accepted: Collection[str],
        limit_bytes: float,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(client, folder, run_id, keep)
        self._key = key
        self._build = build
        self._accepted = accepted
        self._limit_bytes = limit_bytes
        self._say = say
        self._own: set[str] = set()
        whole = {m.key for m in manifests(folder)}
        for path in (*folder.glob(f"*{_FILE}"), *folder.glob(f"*{_PART}")):
            if path.suffix == _PART or path.stem not in whole:  # left by a run that was killed
                path.unlink(missing_ok=True)

    def announce(self, needed_bytes: int | None) -> None:
        """Say what will be kept and where; nothing is where the limit is too small for it."""
        used = sum(m.size_bytes for m in manifests(self._folder))
        about = "of unknown size" if needed_bytes is None else f"of about {size(needed_bytes)}"
        limit = f"{self._limit_bytes / GIB:g} GiB"
        self._say(
            f"the KV cache of each rung is kept, {about} in all, in {self._folder} ({size(used)} "
            f"there now, at most {limit})"
        )
        if needed_bytes is not None and needed_bytes > self._limit_bytes:
            self._give_up(f"--keep-kv-limit is {limit}; raise it to keep them")

    def save(self, depth: int, tokens: int, read_ms: float) -> None:
        """Have the server save the document just read, and keep it once it is whole."""
        key = self._key(depth)
        there = manifest_of(self._folder, key)
        theirs = there is not None and there.run_id in self._accepted
        if self._off or (theirs and there is not None and damage(self._folder, there) is None):
            return
        if shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES:
            self._give_up("less than 4 GiB are free on its disk")
            return
        part, path = (self._folder / f"{key}{suffix}" for suffix in (_PART, _FILE))
        try:
            answer = self._client.post("/slots/0?action=save", {"filename": part.name})
            took_ms = number_in(answer, "timings", "save_ms")
            (self._folder / f"{key}{_MANIFEST}").unlink(missing_ok=True)
            _settle(part)
            manifest = Manifest(
                key=key,
                depth=depth,
                tokens=tokens,
                size_bytes=part.stat().st_size,
                digest=_digest(part),
                run_id=self._run_id,
                build=self._build,
                saved_at=now(),
            )
            self._own.add(key)
            if not self._make_room(manifest.size_bytes):
                part.unlink()
                self._give_up(f"no room under --keep-kv-limit for {size(manifest.size_bytes)}")
                return
            part.replace(path)
            replace_whole(self._folder / f"{key}{_MANIFEST}", manifest.model_dump_json(indent=1))
        except (ServerError, OSError) as error:
            part.unlink(missing_ok=True)
            self._give_up(str(error))
            return
        data = {"depth": depth, "file": path.name, "tokens": tokens, "read_ms": read_ms}
        data |= {"save_ms": took_ms, "bytes": manifest.size_bytes}
        self._keep(Event(code=SAVED, message="", data=data))

    def _make_room(self, needed_bytes: int) -> bool:
        """Delete the oldest until what is needed fits; never what this run has kept."""
        others = [m for m in manifests(self._folder) if m.key not in self._own]
        mine = [m for m in manifests(self._folder) if m.key in self._own]
        used = sum(m.size_bytes for m in (*others, *mine))
        for oldest in others:
            if used + needed_bytes <= self._limit_bytes:
                break
            remove(self._folder, oldest.key)
            used -= oldest.size_bytes
        return used + needed_bytes <= self._limit_bytes

    def _give_up(self, why: str) -> None:
        super()._give_up(why)
        self._say(f"no more KV caches are kept: {why}")


def _digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _settle(path: Path) -> None:
    """Have a file's bytes on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
