"""The flags that a server of ours is started with."""

from pathlib import Path

import pytest

from harness.llamacpp.batch_sizes import batch_defaults, few_points
from harness.serving.launch import LaunchSpec, inherited

LADDER = (2048, 8192, 32_768)


@pytest.mark.parametrize(
    ("given", "batch", "ubatch"),
    [
        ([], "512", "512"),
        (["-ub", "256"], "512", "512"),
        (["--ubatch-size=2048"], "2048", "512"),
        (["-b", "128"], "512", "128"),
        (["-b", "4096"], "512", "512"),
        (["-ub", "many"], "512", "512"),
    ],
)
def test_one_batch_flag_alone_leaves_the_other_as_fine_as_it_can_be(
    given: list[str], batch: str, ubatch: str
) -> None:
    assert [value for _, value in batch_defaults(given)] == [batch, ubatch]


def test_large_batches_say_where_they_leave_too_few_points() -> None:
    said = few_points(["-b", "2048"], LADDER)
    assert said is not None
    assert said.startswith("batches of 2048 tokens leave fewer than 4 points at 2048, 8192:")
    assert few_points(["-b", "1024"], LADDER) is not None
    assert few_points(["-ub", "256"], LADDER) is None
    assert few_points(["-b", "2048"], (32_768, 131_072)) is None


def test_settings_of_the_environment_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "512")
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "1")
    assert "LLAMA_ARG_CTX_SIZE" not in inherited()
    assert inherited()["GGML_VK_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("host", "asked_at"),
    [("::1", "[::1]"), ("::", "[::1]"), ("0.0.0.0", "127.0.0.1"), ("box.lan", "box.lan")],
)
def test_a_server_is_asked_where_it_listens(host: str, asked_at: str) -> None:
    spec = LaunchSpec(("llama-server",), 8080, Path("log"), host=host)
    assert spec.base_url == f"http://{asked_at}:8080"
