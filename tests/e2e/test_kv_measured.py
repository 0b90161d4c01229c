"""KV theory against the cache that the embedded server says it allocated."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.llamacpp.kv import MIB, CacheSettings, kv_theory
from harness.llamacpp.log import LogFindings, scan
from harness.serving.gguf_file import read_gguf
from harness.serving.launch import free_port
from tests.e2e import random_models


def log_of(model: Path, *flags: str) -> LogFindings:
    """What the embedded server logs until it listens."""
    command = [sys.executable, "-m", "harness.serving.embedded", "--model", str(model)]
    common = ["--port", str(free_port()), "-lv", "4", "--fit", "off", "--no-warmup", "-t", "1"]
    with subprocess.Popen(
        [*command, *common, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as server:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "embedded server: listening" in line:
                break
        server.kill()
    assert "listening" in lines[-1], "".join(lines[-20:])
    return scan(lines)


ROUNDING_BYTES = 0.005 * MIB
"""Of one logged size: the log has two decimals of a MiB."""


@pytest.mark.parametrize(
    ("ctx_tokens", "type_k", "type_v"),
    [
        (4096, "f16", "f16"),
        (32_768, "q8_0", "q8_0"),
        (65_536, "q4_0", "q4_0"),
        (100_000, "q8_0", "q5_1"),
        (20_000, "f32", "iq4_nl"),
        (131_072, "bf16", "q4_1"),
    ],
)
def test_plain_attention(ctx_tokens: int, type_k: str, type_v: str) -> None:
    flags = ["-c", str(ctx_tokens), "-np", "1", "-fa", "on", "-ctk", type_k, "-ctv", type_v]
    log = log_of(random_models.REFERENCE, *flags)
    info = read_gguf(random_models.REFERENCE)
    theory = kv_theory(info.metadata, ctx_tokens, CacheSettings(type_k, type_v))
    assert theory.total_bytes == pytest.approx(log.total_bytes("KV"), rel=0.01)
    assert log.kv_types == (type_k, type_v)
    assert log.settings["n_ctx"] == theory.cells


@pytest.mark.parametrize(
    "make", [random_models.sliding, random_models.short_convolution, random_models.delta_net]
)
@pytest.mark.parametrize(("n_ubatch", "n_parallel"), [(512, 1), (256, 3)])
def test_windows_and_states(
    tmp_path: Path, make: Callable[[Path], Path], n_ubatch: int, n_parallel: int
) -> None:
    model = make(tmp_path / "m.gguf")
    flags = ["-c", "16384", "-np", str(n_parallel), "-ub", str(n_ubatch), "-fa", "on"]
    types = ["-ctk", "q8_0", "-ctv", "q4_0"]
    log = log_of(model, *flags, *types)
    cache = CacheSettings("q8_0", "q4_0", n_ubatch=n_ubatch, n_parallel=n_parallel)
    theory = kv_theory(read_gguf(model).metadata, 16_384, cache)
    assert theory.could_not_derive == ()
    states = sum(part.total_bytes for part in theory.parts if part.kind == "recurrent state")
    assert (theory.total_bytes or 0) - states == pytest.approx(log.total_bytes("KV"), rel=0.01)
    assert states == pytest.approx(log.total_bytes("RS") or 0, abs=ROUNDING_BYTES)
