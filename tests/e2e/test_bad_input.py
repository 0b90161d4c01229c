"""Bad input: one clear sentence, nothing measured, nothing lost.

How a refusal looks from outside (exit code, no traceback) is shown once through pytest; each
refusal itself is tried in process, where it costs no start of an interpreter.
"""

import socket
import time
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.machine.lock import LOCK_VARIABLE
from harness.measuring.campaign import Campaign
from harness.serving.client import Client
from harness.serving.launch import LaunchSpec, RunningServer, free_port
from harness.serving.packaged import reference_model
from harness.settings import load
from tests.e2e.conftest import Bench, embedded_argv


class Silent:
    """A reporter that says nothing."""

    def say(self, text: str) -> None:
        pass

    def progress(
        self, depth: int, done_tokens: int, total_tokens: int, eta_s: float | None
    ) -> None:
        pass

    def doing(self, depth: int, what: str) -> None:
        pass


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "lock"))


def refused(root: Path, *, says: str, env: dict[str, str] | None = None, **options: object) -> None:
    """Start a campaign and expect one clear sentence and no record."""
    with pytest.raises(HarnessError) as caught:
        _start({"ctx_tokens": "2048", **options}, root, env or {})
    said = str(caught.value)
    assert says in " ".join(said.split())
    assert "Traceback" not in said
    assert not list((root / "results").glob("*.jsonl"))


def _start(options: dict[str, object], root: Path, env: dict[str, str]) -> None:
    settings = load(options, root, env)
    campaign = Campaign(settings, Silent(), deepest=max(settings.rung_depths))
    try:
        campaign.start()
    finally:
        campaign.close()


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--ctx=many", "--ctx many: expected a number of tokens"),
        ("--model=no such.gguf", "no such.gguf"),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_code_4(bench: Bench, option: str, says: str) -> None:
    done = bench.pytest("-m", "long", option)
    assert done.code == 4, done.text
    assert "Traceback" not in done.text
    assert "INTERNALERROR" not in done.text
    assert says in " ".join(done.text.split())
    assert bench.records() == []


@pytest.mark.parametrize("ctx", ["0", "-5", "1.5", "512"])
def test_ctx_that_is_no_size(tmp_path: Path, ctx: str) -> None:
    refused(tmp_path, ctx_tokens=ctx, says="smallest is" if ctx == "512" else f"--ctx {ctx}")


def test_unreachable_url(tmp_path: Path) -> None:
    refused(tmp_path, server_url="http://127.0.0.1:9", says="nothing answers at http://127.0.0.1:9")


def test_model_that_is_not_gguf(tmp_path: Path) -> None:
    (tmp_path / "not.gguf").write_bytes(b"PK\x03\x04" + b"x" * 5000)
    refused(tmp_path, model=str(tmp_path / "not.gguf"), says="not.gguf")


def test_truncated_model(tmp_path: Path) -> None:
    whole = reference_model().read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, model=str(tmp_path / "cut.gguf"), says="cut.gguf")


def test_missing_binary(tmp_path: Path) -> None:
    refused(tmp_path, server_bin="/no/llama-server", says="cannot run /no/llama-server")


def test_binary_that_is_something_else(tmp_path: Path) -> None:
    refused(tmp_path, server_bin="/bin/false", says="the server died while loading")


def test_flag_the_embedded_server_lacks(tmp_path: Path) -> None:
    refused(tmp_path, server_args="--lora x", says="does not know --lora")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("server_args", "-ngl 99", "-ngl 99 asks for layers on a GPU but its weights lie on"),
        ("expect_device", "Vulkan0", "not on Vulkan0"),
        ("expect_build", "b1", "its build is b11549"),
    ],
)
def test_a_server_that_is_not_what_was_asked_for_is_no_regression(
    tmp_path: Path, option: str, value: str, says: str
) -> None:
    refused(tmp_path, says=says, **{option: value})


def test_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(tmp_path, server_args=f"--port {port}", says=f"port {port} is already in use")


def test_results_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file, not a folder", encoding="utf-8")
    refused(tmp_path, says="is a file; give a folder with --results")


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "logs").write_text("a file, not a folder", encoding="utf-8")
    refused(tmp_path, says="results/logs")


def test_unknown_setting(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text("ctxx = 2048\n", encoding="utf-8")
    refused(tmp_path, says="there is no setting called 'ctxx'")


def test_wrong_api_key(tmp_path: Path) -> None:
    port = free_port()
    argv = embedded_argv(port, "-c", "2048", "-np", "1", "--api-key", "right")
    server = RunningServer(LaunchSpec(argv, port, tmp_path / "server.log"))
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        client = Client(url)
        while not client.health():
            assert server.alive
            assert time.monotonic() < deadline
        client.close()
        refused(
            tmp_path,
            server_url=url,
            says="refused our API key",
            env={"HARNESS_API_KEY": "wrong"},
        )
    finally:
        server.stop()
