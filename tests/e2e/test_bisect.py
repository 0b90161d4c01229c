"""`harness bisect` over made-up builds around the embedded server, killed and gone on with."""

import json
import sys
import time
from pathlib import Path

import pytest

from harness.measuring.bisect import BOOKS
from tests.e2e.conftest import Bench

pytestmark = pytest.mark.slow


def build(folder: Path, *flags: str) -> str:
    """A llama-server that is the embedded one with more flags; its path."""
    folder.mkdir()
    path = folder / "llama-server"
    words = " ".join(flags)
    path.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m harness.serving.embedded "$@" {words}\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return f"{folder.name}/llama-server"


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform == "win32", reason="the made-up builds are shell scripts")
def test_the_build_that_broke_retrieval_is_found_across_a_kill(bench: Bench) -> None:
    broken = ("--rope-freq-base", "2000")
    good = build(bench.root / "b0")
    first_bad, last = (build(bench.root / name, *broken) for name in ("b1", "b2"))
    toml = 'server_args = "-t 1"\nrepeats = 3\ngenerate_tokens = 16\n'
    (bench.root / "harness.toml").write_text(toml, encoding="utf-8")
    command = (
        *("bisect", good, last, f"--among={first_bad}"),
        *("--retrieval", "--depth=1024", "--ctx=1024"),
    )
    begun = bench.start("-m", "harness", *command)
    deadline_s = time.monotonic() + 600  # a busy machine takes minutes for a comparison
    while not (books := list(bench.results.glob(f"bisect/*/{BOOKS}"))):
        if begun.poll() is not None or time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    begun.kill()
    told = begun.communicate(timeout=30)[0]
    assert books, told
    done = bench.harness(*command, "--resume")
    assert done.code == 0, done.text
    said = f"first bad build: {first_bad}, last good: {good}: retrieval at 1K −100 points"
    assert done.text.count(said) == 2
    assert list(bench.results.glob(f"bisect/*/{BOOKS}")) == books
    pairs = json.loads(books[0].read_text(encoding="utf-8"))["pairs"]
    assert [(p["a"], p["b"], p["answer"]) for p in pairs] == [
        (0, 2, "BAD"),
        (0, 1, "BAD"),
    ]


def test_nothing_between_two_unlike_builds_is_a_mistake_that_is_told(bench: Bench) -> None:
    done = bench.harness("bisect", "xllamacpp==1.0", "wheel:other==1.0", "--offline")
    assert done.code == 125
    assert "are not builds of one source" in done.text
    assert "Traceback" not in done.text
