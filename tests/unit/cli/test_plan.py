"""`harness plan` without a server: what a model's file alone foretells."""

from pathlib import Path

import gguf
import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.cli.plan import size_bytes
from harness.errors import SetupError
from tests.unit.llamacpp.test_buffers import QWEN35_2B

GIB = 2**30


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the header of the model of a published 4M run, in an empty project."""
    (tmp_path / "harness.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    path = tmp_path / "qwen35-2b.gguf"
    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_context_length(4_194_304)
    for key, value in QWEN35_2B.items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def plan(model: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["plan", "--no-probe", "--model", str(model), *args])


@pytest.mark.parametrize(
    ("ubatch", "cache_type", "over"),
    [
        ("512", "q8_0", {"KQ mask", "K+V scratch", "K cache of a layer"}),
        ("256", "q8_0", {"KQ mask", "K+V scratch", "K cache of a layer"}),
        ("512", "q4_0", {"KQ mask", "K+V scratch"}),
        ("256", "q4_0", {"KQ mask", "K+V scratch"}),
        ("128", "q4_0", {"K+V scratch"}),
    ],
)
def test_a_plan_for_4m_names_the_buffers_over_2_gib(
    model: Path, ubatch: str, cache_type: str, over: set[str]
) -> None:
    flags = f"-ub {ubatch} -ctk {cache_type} -ctv {cache_type}"
    done = plan(model, "--ctx", "4M", "--max-buffer", "2GiB", f"--server-args={flags}")
    assert done.exit_code == 1, done.output
    named = [line for line in done.output.splitlines() if line.startswith("objection: ")]
    found = {
        kind
        for kind in ("KQ mask", "K+V scratch", "K cache of a layer")
        if any(line.startswith(f"objection: {kind} of ") for line in named)
    }
    assert found == over
    assert named[-1].startswith("objection: what would fit: ")


def test_a_plan_that_fits_exits_0_and_gives_the_memory_by_part(model: Path) -> None:
    done = plan(model, "--ctx", "128K", "--max-buffer", "2GiB")
    assert done.exit_code == 0, done.output
    assert "KV cache, full attention" in done.output
    assert "recurrent state" in done.output
    assert "compute buffers: known once a server has started" in done.output


def test_without_a_limit_the_plan_says_how_to_give_one(model: Path) -> None:
    done = plan(model, "--ctx", "4M")
    assert "--max-buffer" in done.output
    assert "OVER" not in done.output


def test_a_missing_model_is_one_sentence(model: Path) -> None:
    done = plan(model.with_name("none.gguf"), "--ctx", "8192")
    assert done.exit_code == 3
    assert done.output.startswith("harness: ")
    assert "none.gguf" in done.output


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 * GIB), ("2 gib", 2 * GIB), ("4GB", 4 * 10**9), ("2147483648", 2 * GIB)],
)
def test_sizes_are_read_in_the_unit_they_name(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "2 giga", "-1GiB", "0"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="expected a size such as 2GiB"):
        size_bytes(text)


def test_a_profile_is_planned_as_it_is_measured(model: Path) -> None:
    (model.parent / "harness.toml").write_text(
        f"[profiles.deep]\nmodel = '{model}'\nctx = '4M'\nserver_args = {{ ub = 512 }}\n",
        encoding="utf-8",
    )
    done = CliRunner().invoke(
        main, ["plan", "--no-probe", "--profile", "deep", "--max-buffer", "2GiB"]
    )
    assert done.exit_code == 1, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("4,194,304 tokens ")
    assert lines[-1] == lines[0]  # the answer, first and last
    assert "KQ mask of 4 GiB" in done.output
