"""`harness compare` on the real embedded server, and the codes that `git bisect run` reads."""

import signal
import sys
import time

import pytest

from harness.verdicts.compare import CANNOT_TELL
from tests.e2e.conftest import Bench, servers_of

pytestmark = pytest.mark.slow

TOML = """
server_args = "-t 1"
ctx = 2048
repeats = 3
[profiles.plain]
embedded = true
[profiles.k8]
extends = "plain"
server_args = { ctk = "q8_0" }
[profiles.mixed]
extends = "plain"
server_args = { ctk = "q8_0", ub = 256, b = 256 }
"""


def test_two_profiles_are_visited_in_turn_and_told_apart(bench: Bench) -> None:
    (bench.root / "harness.toml").write_text(TOML, encoding="utf-8")
    done = bench.harness(
        *("compare", "plain", "k8", "--depths=1024", "--ctx=1024", "--short=512"),
        *("--metric=retrieval", "--metric=memory"),
    )
    assert done.code == 0, done.text
    said = " ".join(done.text.split())
    assert [said.index(f"arm {side}") for side in "AB"] == sorted(
        said.index(f"arm {side}") for side in "AB"
    )
    assert "differs: --cache-type-k: not given in A, q8_0 in B" in said
    assert "differs: their output differs" in said
    assert "A was visited 2 times, B 2 times" in said
    assert said.count("k8 is no worse than plain") == 2  # first and last
    assert bench.records() == []  # they would be in the way of baselines
    assert len(list(bench.results.glob("compare/*/*.jsonl"))) == 6


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that can be caught")
def test_a_comparison_that_is_cut_short_says_what_its_visits_show(bench: Bench) -> None:
    running = bench.start(
        *("-m", "harness", "compare", "embedded", "embedded", "--depths=1024", "--ctx=1024"),
        *("--repeats=3", "--blocks=9", "--metric=retrieval", "--metric=memory"),
    )
    records = "compare/*/*.jsonl"
    until = time.monotonic() + 240.0
    while len(list(bench.results.glob(records))) < 6 and time.monotonic() < until:
        time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=60)
    said = " ".join(out.decode().split())
    assert running.returncode == CANNOT_TELL, said
    assert "cut short after 5 visits; what they show:" in said
    assert "A was visited 1 times, B 2 times" in said
    assert "stopped before it could be told; the visits' records are kept" in said
    assert servers_of(bench.root) == []


def test_arms_that_differ_in_several_things_are_refused_before_anything_starts(
    bench: Bench,
) -> None:
    (bench.root / "harness.toml").write_text(TOML, encoding="utf-8")
    done = bench.harness("compare", "plain", "mixed")
    assert done.code == CANNOT_TELL, done.text
    assert "differ in 3 things (--batch-size, --cache-type-k, --ubatch-size)" in done.text
    assert "--ubatch-size: not given in A, 256 in B" in done.text
    assert not list(bench.results.glob("compare/*/logs/*"))


def test_whatever_goes_wrong_is_skipped_by_a_bisection(bench: Bench) -> None:
    for args in (("nothing-of-that-name", "embedded"), ("embedded",), ("a", "b", "--wrong")):
        done = bench.harness("compare", *args)
        assert done.code == CANNOT_TELL, done.text
        assert "Traceback" not in done.text
