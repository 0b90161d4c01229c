"""`harness builds`: what is here is listed, and only what was named or not used is deleted."""

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.records.lines import BuildOrigin


def harness(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "harness.toml").write_text('[builds]\ncache = "kept"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "kept"


def install(cache: Path, name: str, *, used_days_ago: float = 0.0) -> Path:
    folder = cache / f"{name}-0123456789ab"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "llama-server").write_bytes(b"x" * 2048)
    origin = BuildOrigin(name=name, version=name, commit="c" * 40, digest="d" * 64, source="test")
    note = folder / "build.json"
    note.write_text(
        f'{{"origin": {origin.model_dump_json()}, "installed_at": "2026-01-02T03:04:05+00:00", '
        '"binary": "llama-server"}',
        encoding="utf-8",
    )
    at = time.time() - used_days_ago * 86400
    os.utime(note, (at, at))
    return folder


def test_what_is_here_is_listed(cache: Path) -> None:
    assert "no builds in kept" in harness("builds").output
    install(cache, "b11549")
    (cache / "half" / "files").mkdir(parents=True)
    done = harness("builds")
    assert "b11549" in done.output
    assert "cccccccccccc" in done.output
    assert "2026-01-02 03:04" in done.output
    assert "1 builds in kept" in done.output
    got = harness("builds", "get", "b11549", "--offline")
    assert (got.exit_code, "llama-server" in got.output) == (0, True)
    assert harness("builds", "get", "b11550", "--offline").exit_code == 3


def test_only_what_was_named_or_not_used_is_deleted(cache: Path) -> None:
    kept, named, old = (
        install(cache, "b3"),
        install(cache, "b1"),
        install(cache, "b2", used_days_ago=40),
    )
    (cache / ".new-x").mkdir()
    assert harness("builds", "prune", "b9").exit_code == 3
    done = harness("builds", "prune", "b1", "--days", "30")
    assert done.exit_code == 0, done.output
    assert "2 builds deleted" in done.output
    assert "1 are left" in done.output
    assert [p.exists() for p in (kept, named, old, cache / ".new-x")] == [True, False, False, False]
