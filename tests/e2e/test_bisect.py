"""`harness bisect` over releases, then commits, made up around the embedded server, and killed."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from platform import machine

import pytest

from harness.measuring.bisect import BOOKS
from tests.e2e.conftest import Bench
from tests.unit.serving.test_builds import Handler, Releases, tar

pytestmark = pytest.mark.slow


TAGS = ("b11000", "b11001")
WHO = ("-c", "user.name=n", "-c", "user.email=n@example.org")
TOML = """
server_args = "-t 1"
repeats = 3
generate_tokens = 16
[builds]
api = "{url}"
cache = "kept"
checkout = "source"
recipe = ["cp llama-server {{out}}/llama-server"]
binary = "llama-server"
"""


def build(*flags: str) -> bytes:
    """A llama-server that is the embedded one with more flags."""
    words = " ".join(flags)
    return f'#!/bin/sh\nexec "{sys.executable}" -m harness.serving.embedded "$@" {words}\n'.encode()


def git(source: Path, *arguments: str) -> str:
    command = ["git", "-C", str(source), *WHO, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def url(bench: Bench) -> Iterator[str]:
    """Releases b11000 and b11002, retrieval broken in the second; the commits are in a checkout."""
    good, bad = build(), build("--rope-freq-base", "2000")
    source = bench.root / "source"
    source.mkdir()
    git(source, "init", "-q")
    for number, script in enumerate((good, bad, bad + b"# as it was\n")):
        (source / "llama-server").write_bytes(script)
        git(source, "add", ".")
        git(source, "commit", "-qm", str(number))
        git(source, "tag", f"b{11000 + number}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shop = Releases(url=f"http://127.0.0.1:{server.server_port}")
    for tag, script in (("b11002", bad), ("b11000", good)):
        name = f"llama-{tag}-bin-ubuntu-{'arm64' if machine() == 'aarch64' else 'x64'}.tar.gz"
        shop.archives[tag] = {name: tar({"build/bin/llama-server": script})}
    server.shop = shop  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield shop.url
    server.shutdown()
    server.server_close()


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="the made-up archives are for Linux")
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_that_broke_retrieval_is_found_across_a_kill(bench: Bench, url: str) -> None:
    (bench.root / "harness.toml").write_text(TOML.format(url=url), encoding="utf-8")
    command = ("bisect", "b11000", "latest", "--retrieval", "--depth=1K", "--ctx=1K", "--issue")
    begun = bench.start("-m", "harness", *command)
    deadline_s = time.monotonic() + 600  # a busy machine takes minutes for a comparison
    while not (books := list(bench.results.glob(f"bisect/*/{BOOKS}"))):
        if begun.poll() is not None or time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    begun.kill()
    told = begun.communicate(timeout=30)[0]
    assert books, told
    resumed = bench.start("-m", "harness", *command, "--resume")
    text = resumed.communicate(timeout=600)[0].decode()
    assert resumed.returncode == 0, text
    source = bench.root / "source"
    last_good, first_bad = (f"commit:{git(source, 'rev-parse', tag)[:12]}" for tag in TAGS)
    said = "first bad build: {}, last good: {}: retrieval at 1K −100 points"
    assert text.count(said.format("b11002", "b11000")) == 3
    assert text.count(said.format(first_bad, last_good)) == 3
    assert "on through 2 commits from b11000 to b11002" in text
    assert f"Retrieval at 1K: −100 points since {first_bad}\n" in text
    assert f"/compare/{last_good[7:]}...{first_bad[7:]}" in text
    assert list(bench.results.glob(f"bisect/*/{BOOKS}")) == books
    pairs = [
        [(p["a"], p["b"], p["answer"]) for p in json.loads(path.read_bytes())["pairs"]]
        for path in (books[0], books[0].parent / "commits" / BOOKS)
    ]
    assert pairs == [[(0, 1, "BAD")], [(0, 2, "BAD"), (0, 1, "BAD")]]


def test_nothing_between_two_unlike_builds_is_a_mistake_that_is_told(bench: Bench) -> None:
    done = bench.harness("bisect", "xllamacpp==1.0", "wheel:other==1.0", "--offline")
    assert done.code == 125
    assert "are not builds of one source" in done.text
    assert "Traceback" not in done.text
