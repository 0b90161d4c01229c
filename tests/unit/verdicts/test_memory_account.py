"""Memory beyond theory, as a constant and a part per token, and what the log said at which rung."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.llamacpp.kv import GIB, MIB
from harness.records.lines import Event, MemorySample, Rung, RunRecord
from harness.serving.log import LogCounts
from harness.verdicts.memory_account import memory_beyond_theory, sentences
from tests.made import record, rung

WEIGHTS = 20 * GIB
PER_TOKEN = 20_480
DEPTHS = (2048, 8192, 32768, 131072)


def measured(
    on_gpu: bool | None, constant: int, per_token: int, *, depths: tuple[int, ...] = DEPTHS
) -> RunRecord:
    """A run whose server holds `constant` + `per_token` per token more than theory."""
    total = depths[-1] * PER_TOKEN

    def held(made: Rung) -> Rung:
        tokens = made.document_tokens
        cache = total if on_gpu else PER_TOKEN * tokens
        size = WEIGHTS + cache + constant + per_token * tokens
        sample = MemorySample(rss_bytes=GIB, device_bytes=size - GIB, host_available_bytes=3 * GIB)
        return made.model_copy(update={"memory": (sample,) * 3})

    data: dict[str, Any] = {
        "on_gpu": on_gpu,
        "buffers": [{"device": "X", "use": "model", "bytes": WEIGHTS}],
        "kv": {
            "theory_bytes": total,
            "measured_bytes": total,
            "bytes_per_token": PER_TOKEN,
            "fixed_bytes": 0,
        },
    }
    made = record(*(held(rung(depth)) for depth in depths))
    return made.model_copy(update={"events": (Event(code="server_log", message="", data=data),)})


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_excess_is_named_as_a_constant_and_a_part_per_token(on_gpu: bool) -> None:
    beyond = memory_beyond_theory(measured(on_gpu, 300 * MIB, 2_000))
    assert beyond is not None
    assert beyond.constant_bytes == pytest.approx(300 * MIB, rel=1e-6)
    assert beyond.bytes_per_token == pytest.approx(2_000, rel=1e-6)
    said = list(sentences(measured(on_gpu, 300 * MIB, 2_000)))
    assert "beyond weights and KV cache: 300 MiB, +2,000 B per token of depth" in said[1]
    assert said[2] == "least free memory of the machine: 3 GiB"


def test_one_rung_or_an_unreadable_log_gives_no_line() -> None:
    assert memory_beyond_theory(measured(False, 0, 0, depths=(2048,))) is None
    assert memory_beyond_theory(measured(None, 0, 0)) is None
    assert list(sentences(record(rung(2048)))) == []


class Logging:
    """A server whose log grows."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def log_lines(self) -> Iterator[str]:
        yield from self.lines


def test_log_lines_are_counted_for_the_rung_they_came_at() -> None:
    pinned = "ggml_vulkan: Failed to allocate pinned memory (ErrorOutOfDeviceMemory)"
    server = Logging("loading", pinned)
    counts = LogCounts(server)  # type: ignore[arg-type]
    assert counts.since() == {}
    server.lines += [pinned, "srv update_slots: nothing", pinned]
    assert counts.since() == {"pinned_memory": 2}
    assert counts.since() == {}
    assert LogCounts(None).since() == {}
