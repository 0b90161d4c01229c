"""The main job on the real embedded server, run as a user runs it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from harness.records.baseline import key_of
from harness.records.baseline_files import baseline_path
from harness.records.samples import prefilled_tokens, samples_of
from harness.serving.launch import free_port
from tests.e2e.conftest import Bench, embedded_argv, new_bench, servers_of

SMALL = (
    *("-m", "long", "--ctx", "2048", "--depths", "1024,2048"),
    *("--repeats", "3", "--remeasure", "0"),
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Results of two runs of one configuration, and what the second printed."""
    bench = new_bench(tmp_path_factory.mktemp("measured"))
    for _ in range(2):
        done = bench.pytest(*SMALL)
        assert done.code == 0, done.text
    return bench.results, done.text


@pytest.fixture
def two_runs(bench: Bench, measured: tuple[Path, str]) -> Bench:
    """A repository with two runs of one configuration."""
    shutil.copytree(measured[0], bench.results)
    return bench


def test_a_first_run_measures_every_rung_and_names_the_next_step(
    two_runs: Bench, measured: tuple[Path, str]
) -> None:
    assert "harness baseline update" in measured[1] or "too disturbed for a baseline" in measured[1]
    assert " of " in measured[1]
    record = two_runs.records()[0]
    assert record.footer is not None
    assert record.footer.complete
    assert [r.depth for r in record.rungs] == [1024, 2048]
    assert {c.position for c in record.controls} == {"before", "after"}
    for rung in record.rungs:
        samples = samples_of(rung, contended=True)
        right, asked, controls_right, controls = samples.retrieval
        assert right == asked == 5 * controls >= 15
        assert controls_right == controls
        assert len(samples.chunks) >= 2
        assert len(samples.generation_tok_s) >= 3
        assert len(samples.ttft_ms) >= 3
        assert len(samples.memory_gib) >= 2
        assert all(a.answer for a in rung.asks)
        whole = rung.prefills[-1].new_tokens + (rung.prefills[-1].cached_tokens or 0)
        prompt = whole + rung.asks[0].planned_new_tokens
        assert abs(prompt - 0.9 * rung.depth) <= 0.005 * 0.9 * rung.depth + 8


def test_each_rung_reads_only_what_is_new(two_runs: Bench) -> None:
    record = two_runs.records()[0]
    first, second = record.rungs
    climb = second.prefills[-1]
    assert climb.kind == "climb"
    assert climb.cached_tokens == climb.planned_cached_tokens
    assert climb.new_tokens < second.document_tokens * 0.6
    for ask in (*first.asks, *second.asks):
        assert ask.new_tokens is not None
        assert 0.8 * ask.planned_new_tokens <= ask.new_tokens <= ask.planned_new_tokens
    ladder = sum(r.prefills[-1].new_tokens for r in record.rungs)
    assert ladder <= 0.9 * 2048
    assert prefilled_tokens(record) <= 3 * 2048


def test_a_selection_climbs_no_further_than_it_needs(bench: Bench) -> None:
    done = bench.pytest(*SMALL, "-k", "test_retrieval and 1024")
    assert done.code == 0, done.text
    (record,) = bench.records()
    assert [r.depth for r in record.rungs] == [1024]
    (head,) = [line for line in done.text.splitlines() if line.strip().startswith("depth")]
    assert head.split() == ["depth", "retrieval"]  # nobody asked for a speed


def test_accepted_runs_judge_the_next_one(two_runs: Bench) -> None:
    done = two_runs.harness("baseline", "update", "--force", "--reason", "a busy test machine")
    assert done.code == 0, done.text
    files = list((two_runs.root / "baselines").rglob("*.json"))
    assert len(files) == 1
    assert files[0].stat().st_size < 32_000
    assert "a busy test machine" in files[0].read_text(encoding="utf-8")
    before = files[0].read_bytes()
    judged = two_runs.pytest(*SMALL, "-v")
    assert judged.code in (0, 1), judged.text
    assert "no baseline for this machine" not in judged.text
    table = [line for line in judged.text.splitlines() if "retrieval" in line and "|" in line]
    assert len(table) == 2
    assert all("same" in line for line in table)
    assert files[0].read_bytes() == before
    again = two_runs.harness("judge")
    assert again.code in (0, 1, 2)
    assert "retrieval" in again.text


def test_a_baseline_left_in_the_middle_of_a_merge_is_refused(two_runs: Bench) -> None:
    path = baseline_path(two_runs.root / "baselines", key_of(two_runs.records()[0].header))
    path.parent.mkdir(parents=True)
    text = "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> other\n"
    path.write_text(text, encoding="utf-8")
    done = two_runs.pytest(*SMALL)
    assert done.code == 4, done.text
    assert "unresolved merge conflict marks" in " ".join(done.text.split())
    assert "Traceback" not in done.text
    assert len(two_runs.records()) == 2
    assert path.read_text(encoding="utf-8") == text


def test_one_run_is_not_enough_for_a_baseline(two_runs: Bench) -> None:
    newest = two_runs.records()[-1].header.run_id
    done = two_runs.harness("baseline", "update", newest)
    assert done.code == 3
    assert "a baseline needs 2 runs" in done.text
    assert not (two_runs.root / "baselines").exists()


def test_baselines_are_not_accepted_under_ci(two_runs: Bench) -> None:
    done = two_runs.harness("baseline", "update", "--force", "--reason", "x", env={"CI": "true"})
    assert done.code == 3
    assert "CI is set" in done.text
    assert not (two_runs.root / "baselines").exists()


@pytest.mark.slow
def test_a_wrong_rope_base_fails_the_answers_and_speed_is_not_judged(bench: Bench) -> None:
    done = bench.pytest(*SMALL, "--server-args", "--rope-freq-base 10000")
    assert done.code == 1, done.text
    assert "the local control failed" in done.text
    assert "speeds measured, not judged" in done.text
    (record,) = bench.records()
    assert all(len(r.asks) >= 3 and r.asks[0].answer for r in record.rungs)
    refused = bench.harness("baseline", "update", record.header.run_id)
    assert refused.code == 3
    assert "INVALID" in refused.text


def test_ci_is_strict_and_a_console_without_utf8_gets_its_output(bench: Bench) -> None:
    env = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp932", "CI": "true"}
    done = bench.pytest(*SMALL, "-q", "-k", "1024", env=env)
    assert done.code == 1, done.text
    assert "NO_BASELINE" in done.text
    assert "INTERNALERROR" not in done.text
    assert "retrieval" in done.text


@pytest.mark.slow
def test_a_server_started_by_hand_is_measured_alike(bench: Bench) -> None:
    port = free_port()
    server = bench.start(
        *embedded_argv(port, "-c", "2048", "-np", "1", "--cache-ram", "0", "-b", "512")[1:]
    )
    try:
        _wait_for(port, server)
        done = bench.pytest(*SMALL, "--server-url", f"http://127.0.0.1:{port}")
        assert done.code == 0, done.text
        assert " of " in done.text
        (record,) = bench.records()
        assert record.header.server.origin == "url"
        assert record.header.model.content_hash is not None
        assert samples_of(record.rungs[0]).memory_gib
        assert server.poll() is None
        too_far = bench.pytest(
            "-m", "long", "--ctx", "4096", "--server-url", f"http://127.0.0.1:{port}"
        )
        assert too_far.code == 4
        assert "the server's context is 2048 tokens" in too_far.text
        assert len(bench.records()) == 1
    finally:
        server.kill()
        server.communicate()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    from harness.serving.client import Client

    client = Client(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 60
    while not client.health():
        assert server.poll() is None
        assert time.monotonic() < deadline
    client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_a_killed_run_leaves_no_server_and_a_readable_record(bench: Bench) -> None:
    run = bench.start(
        *("-m", "pytest", "-p", "no:cacheprovider", "-m", "long", "--ctx", "16384"),
        *("--depths", "1024,16384", "--server-args", "-t 1"),
    )
    try:
        deadline = time.monotonic() + 120
        while not any(bench.results.glob("*.jsonl")) or not any(r.rungs for r in bench.records()):
            assert run.poll() is None, run.stdout and run.stdout.read()
            assert time.monotonic() < deadline
        assert servers_of(bench.root)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
    gone_by = time.monotonic() + 5
    while servers_of(bench.root) and time.monotonic() < gone_by:
        pass
    assert servers_of(bench.root) == []
    (record,) = bench.records()
    assert record.rungs[0].depth == 1024
    assert record.footer is None


def test_a_second_run_says_who_holds_the_machine(bench: Bench) -> None:
    holder = bench.start(
        "-c",
        "import sys\nfrom harness.machine.lock import machine_lock\n"
        "with machine_lock('--ctx 131072'):\n print('held', flush=True)\n sys.stdin.read()",
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        done = bench.pytest(*SMALL)
        assert done.code == 4
        assert f"pid {holder.pid}" in done.text
        assert "--ctx 131072" in done.text
        assert "Traceback" not in done.text
    finally:
        holder.kill()
        holder.communicate()
    with FileLock(bench.root / "machine.lock", timeout=0):
        pass


def test_smoke_measurements_carry_their_metrics(bench: Bench) -> None:
    done = bench.pytest("-m", "smoke", "--benchmark-json=bench.json", "--ctx=4096")
    assert done.code == 0, done.text
    runs = json.loads((bench.root / "bench.json").read_text(encoding="utf-8"))["benchmarks"]
    infos = {run["name"]: run["extra_info"] for run in runs}
    assert infos["test_smoke_generation"]["generation_tok_s"] > 0
    assert infos["test_smoke_prefill"]["prefill_tok_s"] > 0


def test_the_supervisor_stops_the_whole_tree(bench: Bench) -> None:
    log = bench.root / "log"
    script = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "time.sleep(600)"
    )
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "harness.serving.supervise",
            "--log",
            str(log),
            "--",
            sys.executable,
            "-c",
            script,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert run.stdout is not None
    assert run.stdin is not None
    child = psutil.Process(json.loads(run.stdout.readline())["pid"])
    deadline = time.monotonic() + 30
    while not (tree := child.children(recursive=True)):
        assert time.monotonic() < deadline
    run.stdin.close()
    run.wait(timeout=20)
    run.stdout.close()
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in [child, *tree])
