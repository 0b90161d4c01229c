"""Kept KV caches: nothing but a whole file is ever offered to a server; the oldest go first."""

from pathlib import Path
from typing import Any

import pytest

from harness.errors import ServerError
from harness.records.lines import Event
from harness.serving.kept import Keeping, damage, file_name, manifest_of, manifests
from harness.serving.slots import SAVED

MIB = 2**20


class Server:
    """Writes a file of `size_bytes` where it is asked to save, or dies half way."""

    def __init__(self, folder: Path, size_bytes: int = MIB) -> None:
        self.folder, self.size_bytes = folder, size_bytes
        self.dies, self.saves = False, 0

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.saves += 1
        file = self.folder / body["filename"]
        file.write_bytes(bytes([self.saves % 256]) * (self.size_bytes // (2 if self.dies else 1)))
        if self.dies:
            raise ServerError("the connection broke")
        return {"timings": {"save_ms": 1.0}}


class Killed(BaseException):
    """Stands for `kill -9`: nothing of the run's own code is run behind it."""


def keeping(
    server: Server, run: str, *, limit: float = 9 * MIB, accepted: tuple[str, ...] = ()
) -> tuple[Keeping, list[Event], list[str]]:
    events, said = list[Event](), list[str]()
    found = Keeping(
        *(server, server.folder, run, events.append),  # type: ignore[arg-type]
        key=lambda depth: f"document-{depth}",
        build="b1",
        accepted=accepted,
        limit_bytes=limit,
        say=said.append,
    )
    return found, events, said


def whole(folder: Path) -> list[int]:
    return [m.depth for m in manifests(folder) if damage(folder, m) is None]


def test_a_document_is_kept_with_its_manifest(tmp_path: Path) -> None:
    kept, events, _ = keeping(Server(tmp_path), "run-1")
    kept.save(2048, 1800, 1.0)
    found = manifest_of(tmp_path, "document-2048")
    assert found is not None
    assert (found.tokens, found.size_bytes, found.run_id, found.build) == (1800, MIB, "run-1", "b1")
    assert damage(tmp_path, found) is None
    assert [e.code for e in events] == [SAVED]
    assert events[0].data["file"] == file_name(found)
    assert manifest_of(tmp_path, "document-8192") is None


@pytest.mark.parametrize("change", ["cut", "flipped", "gone"])
def test_a_file_that_is_not_what_was_saved_is_damaged(tmp_path: Path, change: str) -> None:
    kept, *_ = keeping(Server(tmp_path), "run-1")
    kept.save(2048, 1800, 1.0)
    (manifest,) = manifests(tmp_path)
    path = tmp_path / file_name(manifest)
    body = path.read_bytes()
    path.write_bytes(body[: MIB // 2] if change == "cut" else body[:-1] + b"?")
    if change == "gone":
        path.unlink()
    said = damage(tmp_path, manifest)
    assert said is not None
    words = {"cut": "instead of", "flipped": "SHA-256", "gone": "cannot be read"}
    assert words[change] in said


@pytest.mark.parametrize("at", ["the server's file", "_settle", "_digest", "replace_whole"])
@pytest.mark.parametrize("there_before", [False, True])
def test_killed_anywhere_in_a_save_nothing_half_written_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, there_before: bool
) -> None:
    server = Server(tmp_path)
    if there_before:
        keeping(server, "run-0")[0].save(2048, 1800, 1.0)
        server.size_bytes += 1
    kept, *_ = keeping(server, "run-1")

    def die(*_: object, **__: object) -> None:
        raise Killed

    if at == "the server's file":
        server.dies = True
        monkeypatch.setattr(ServerError, "__init__", die)
    else:
        monkeypatch.setattr(f"harness.serving.kept.{at}", die)
    with pytest.raises(Killed):
        kept.save(2048, 1800, 1.0)
    monkeypatch.undo()
    assert [m.run_id for m in manifests(tmp_path) if damage(tmp_path, m) is None] in (
        [],
        ["run-0"] if there_before else [],
    )
    server.dies = False
    keeping(server, "run-2")[0].save(8192, 7000, 1.0)
    assert 8192 in whole(tmp_path)
    names = {p.name for p in tmp_path.iterdir()}
    assert not [n for n in names if n.endswith(".part")]
    assert {Path(n).stem for n in names if n.endswith(".kv")} == {
        m.key for m in manifests(tmp_path)
    }


def test_the_oldest_go_first_and_never_those_of_the_run_itself(tmp_path: Path) -> None:
    server = Server(tmp_path)
    keeping(server, "run-1")[0].save(1024, 900, 1.0)
    kept, _, said = keeping(server, "run-2", limit=2 * MIB)
    kept.save(2048, 1800, 1.0)
    assert whole(tmp_path) == [1024, 2048]
    kept.save(8192, 7000, 1.0)
    assert whole(tmp_path) == [2048, 8192]
    kept.save(32768, 29000, 1.0)
    assert whole(tmp_path) == [2048, 8192]
    assert "no room under --keep-kv-limit" in said[-1]


def test_a_limit_that_is_too_small_for_the_run_is_said_ahead(tmp_path: Path) -> None:
    server = Server(tmp_path)
    kept, _, said = keeping(server, "run-1", limit=MIB)
    kept.announce(2 * MIB)
    kept.save(2048, 1800, 1.0)
    assert server.saves == 0
    assert "of about 2 MiB in all" in said[0]
    assert "raise it to keep them" in said[1]


def test_what_an_accepted_run_kept_stays_as_long_as_it_is_whole(tmp_path: Path) -> None:
    server = Server(tmp_path)
    keeping(server, "run-1")[0].save(2048, 1800, 1.0)
    keeping(server, "run-2", accepted=("run-1",))[0].save(2048, 1800, 1.0)
    assert [m.run_id for m in manifests(tmp_path)] == ["run-1"]
    (manifest,) = manifests(tmp_path)
    (tmp_path / file_name(manifest)).write_bytes(b"broken")
    keeping(server, "run-3", accepted=("run-1",))[0].save(2048, 1800, 1.0)
    assert [m.run_id for m in manifests(tmp_path)] == ["run-3"]


def test_a_server_that_cannot_save_is_asked_once(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.dies = True
    kept, _, said = keeping(server, "run-1")
    kept.save(2048, 1800, 1.0)
    kept.save(8192, 7000, 1.0)
    assert server.saves == 1
    assert "the connection broke" in said[-1]
    assert not list(tmp_path.iterdir())
