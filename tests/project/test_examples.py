"""The example configuration: every profile and matrix of it is one that could be run."""

import shutil
import tomllib
from pathlib import Path

import pytest

from harness.llamacpp.combinations import objection
from harness.llamacpp.flags import values_of
from harness.llamacpp.matrices import Facts, arms_of
from harness.settings import load

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "harness.toml"
TABLES = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE, tmp_path / "harness.toml")
    return tmp_path


@pytest.mark.parametrize("name", TABLES["profiles"])
def test_every_profile_can_be_run(root: Path, name: str) -> None:
    settings = load({"profile": name}, root, {})
    assert settings.profile == name
    deepest = max(settings.rung_depths)
    assert objection(settings.server_args, None, ctx_tokens=deepest) is None


@pytest.mark.parametrize("name", TABLES["matrix"])
def test_every_matrix_has_arms_that_can_be_run(root: Path, name: str) -> None:
    base = load({"profile": "evo-x2-windows-vulkan"}, root, {})
    arms = arms_of(name, base.matrices, Facts(base.ctx_tokens, base.rung_depths))
    assert len(arms) >= 2
    for arm in arms:
        settings = load({"profile": "evo-x2-windows-vulkan"}, root, {}, arm.layer)
        assert objection(settings.server_args, None, ctx_tokens=settings.ctx_tokens) is None


def test_the_4m_profile_is_the_published_command(root: Path) -> None:
    settings = load({"profile": "qwen35-2b-4m"}, root, {})
    flags = values_of(settings.server_args)
    assert settings.ctx_tokens == 4194304
    assert {
        "--gpu-layers": "999",
        "--threads": "4",
        "--batch-size": "2048",
        "--ubatch-size": "256",
        "--cache-type-k": "q4_0",
        "--cache-type-v": "q4_0",
        "--rope-scaling": "yarn",
        "--rope-scale": "16",
        "--yarn-orig-ctx": "262144",
        "--override-kv": "qwen35.context_length=int:4194304",
    }.items() <= flags.items()
    assert flags["--flash-attn"] == "on"


def test_only_k_is_quantised_at_128k(root: Path) -> None:
    flags = values_of(load({"profile": "qwen36-128k-k-quantised"}, root, {}).server_args)
    assert flags["--cache-type-k"] == "q8_0"
    assert "--cache-type-v" not in flags
    assert flags["--batch-size"] == "8192"
