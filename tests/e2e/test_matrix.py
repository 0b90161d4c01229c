"""A matrix on the real embedded server, run as a user runs it."""

import shutil
from pathlib import Path

import gguf
import pytest

from harness.errors import SetupError
from harness.measuring.campaign import Campaign
from harness.serving.packaged import reference_model
from harness.settings import Settings
from tests.e2e.conftest import Bench

pytestmark = pytest.mark.slow

SHORT = ("-m", "long", "--repeats=3", "--generate-tokens=16", "--remeasure=0", "--server-args=-t 1")


def trained_to(path: Path, tokens: int) -> Path:
    """A copy of the reference model that says it was trained to `tokens`."""
    shutil.copy(reference_model(), path)
    reader = gguf.GGUFReader(path, "r+")
    field = reader.fields["llama.context_length"]
    field.parts[field.data[0]][0] = tokens
    return path


def test_every_arm_has_its_own_server_record_and_row(bench: Bench) -> None:
    toml = '[matrix.cache]\nctk = ["f16", "q8_0"]\n'
    (bench.root / "harness.toml").write_text(toml, encoding="utf-8")
    done = bench.pytest(*SHORT, "--ctx=1024", "--matrix=cache", "-k", "retrieval or memory")
    assert done.code == 0, done.text
    records = bench.records()
    assert [(r.header.matrix, r.header.arm) for r in records] == [
        ("cache", "ctkf16"),
        ("cache", "ctkq8_0"),
    ]
    assert all(r.footer is not None and r.footer.complete for r in records)
    assert [r.header.server.key["cache_type_k"] for r in records] == ["f16", "q8_0"]
    assert done.text.count("depth | arm") == 1
    table = done.text[done.text.index("depth | arm") :]
    assert "1.00/1.00" in table  # MiB; a log has two digits
    assert "0.770 / 0.766" in table
    assert table.count("15/15") == 2


def test_an_impossible_arm_is_refused_before_any_server_starts(bench: Bench) -> None:
    done = bench.pytest(*SHORT, "--ctx=1024", "--matrix=kv", "--server-args=-fa off")
    assert done.code == 4, done.text
    said = " ".join(done.text.split())
    assert "--matrix kv, arm f16-q8_0: these flags do not go together" in said
    assert "a quantised V cache needs flash attention" in said
    assert not (bench.results / "logs").exists()


def test_a_stretched_arm_must_compute_something_else(bench: Bench) -> None:
    model = trained_to(bench.root / "short.gguf", 1024)
    args = ("--ctx=2048", "--matrix=yarn", f"--model={model}", "-k", "retrieval")
    done = bench.pytest(*SHORT, *args)
    assert done.code in (0, 1), done.text
    plain, stretched = bench.records()
    assert plain.header.server.n_ctx == 1024
    assert stretched.header.server.n_ctx == 2048
    prints = [
        e.data["tokens"] for r in (plain, stretched) for e in r.events if e.code == "fingerprint"
    ]
    assert len(prints) == 2
    assert prints[0] != prints[1]


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


def test_a_flag_without_effect_is_found_before_anything_is_measured(tmp_path: Path) -> None:
    settings = Settings(
        ctx_tokens=1024,
        arm="x2",
        results=tmp_path / "results",
        baselines=tmp_path / "baselines",
        server_args=("-t", "1"),
    )
    first = Campaign(settings, Silent(), deepest=1024)
    first.start()
    first.close()
    assert len(first.fingerprint) >= 5
    second = Campaign(settings, Silent(), deepest=1024)
    with pytest.raises(SetupError, match="its RoPE scaling had no effect"):
        second.start(unlike=first.fingerprint)
    record = second.record()
    assert record is not None
    assert record.controls == ()
