"""Bad input: one clear sentence, an exit code that is not 0, no traceback, nothing measured."""

import socket
import sys
import time
from pathlib import Path

import pytest

from harness.serving.launch import LaunchSpec, RunningServer, free_port
from harness.serving.session import reference_model
from tests.e2e.conftest import Bench

SMALL = ("-m", "long", "--ctx=2048", "--repeats=3", "--budget=0")


def refused(bench: Bench, *args: str, says: str, env: dict[str, str] | None = None) -> None:
    """Run and expect one clear sentence."""
    done = bench.pytest("-m", "long", *args, env=env)
    assert done.code == 4, done.text
    assert "Traceback" not in done.text
    assert "INTERNALERROR" not in done.text
    flat = " ".join(done.text.split())
    assert says in flat, done.text
    assert bench.records() == []


@pytest.mark.parametrize("ctx", ["0", "-5", "many", "1.5"])
def test_ctx_that_is_no_size(bench: Bench, ctx: str) -> None:
    refused(bench, f"--ctx={ctx}", says=f"--ctx {ctx}: expected a number of tokens")


def test_ctx_too_small_for_the_questions(bench: Bench) -> None:
    refused(bench, "--ctx=512", says="the smallest is 1024")


def test_unreachable_url(bench: Bench) -> None:
    refused(bench, "--server-url=http://127.0.0.1:9", says="nothing answers at http://127.0.0.1:9")


def test_url_without_scheme(bench: Bench) -> None:
    refused(bench, "--server-url=localhost:8080", says="expected something like http://")


def test_missing_model(bench: Bench) -> None:
    refused(bench, "--ctx=2048", "--model=no such.gguf", says="no such.gguf")


def test_model_that_is_not_gguf(bench: Bench) -> None:
    (bench.root / "not.gguf").write_bytes(b"PK\x03\x04" + b"x" * 5000)
    refused(bench, "--ctx=2048", "--model=not.gguf", says="not.gguf")


def test_truncated_model(bench: Bench) -> None:
    whole = reference_model().read_bytes()
    (bench.root / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    refused(bench, "--ctx=2048", "--model=cut.gguf", says="cut.gguf")


def test_missing_binary(bench: Bench) -> None:
    refused(
        bench, "--ctx=2048", "--server-bin=/no/llama-server", says="cannot run /no/llama-server"
    )


def test_binary_that_is_something_else(bench: Bench) -> None:
    refused(bench, "--ctx=2048", "--server-bin=/bin/false", says="the server died while loading")


def test_flag_the_embedded_server_lacks(bench: Bench) -> None:
    refused(bench, "--ctx=2048", "--server-args=--lora x", says="does not know --lora")


def test_port_in_use(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(
            bench,
            "--ctx=2048",
            f"--server-args=--port {port}",
            says=f"port {port} is already in use",
        )


def test_results_folder_that_cannot_be_written(bench: Bench) -> None:
    (bench.root / "results").write_text("a file, not a folder", encoding="utf-8")
    done = bench.pytest(*SMALL)
    assert done.code == 4
    assert "cannot write into the results folder" in done.text
    assert "Traceback" not in done.text


def test_unknown_setting(bench: Bench) -> None:
    (bench.root / "harness.toml").write_text("ctxx = 2048\n", encoding="utf-8")
    refused(bench, says="there is no setting called 'ctxx'")


def test_wrong_api_key(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    argv = (
        *(sys.executable, "-m", "harness.serving.embedded", "--model", str(reference_model())),
        *("--port", str(port), "-c", "2048", "-np", "1", "--api-key", "right"),
    )
    server = RunningServer(LaunchSpec(argv, port, tmp_path / "server.log"))
    try:
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.alive
            assert time.monotonic() < deadline
        url = f"--server-url=http://127.0.0.1:{port}"
        refused(bench, "--ctx=2048", url, says="refused our API key", env={"HARNESS_API_KEY": "no"})
    finally:
        server.stop()
