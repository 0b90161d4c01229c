"""RAM within a cgroup's limit, and the GPUs' own and borrowed memory."""

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.machine.d3dkmt import Segments
from harness.machine.memory_pools import (
    MemoryPool,
    MemoryPools,
    cgroup_left_bytes,
    named_by_cpu,
)

GIB = 2**30


def write(root: Path, path: str, text: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())


def pools(root: Path, **changed: object) -> MemoryPools:
    parts = MemoryPools(None, None, None, "some CPU", root, root / "proc")
    return replace(parts, **changed)  # type: ignore[arg-type]


def test_the_tightest_limit_of_the_cgroups_above_counts_and_cache_is_free(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/work.slice/job")
    write(tmp_path, "fs/cgroup/work.slice/memory.max", str(3 * GIB))
    write(tmp_path, "fs/cgroup/work.slice/memory.current", str(2 * GIB))
    write(tmp_path, "fs/cgroup/work.slice/memory.stat", f"anon 5\ninactive_file {GIB}")
    write(tmp_path, "fs/cgroup/work.slice/job/memory.max", "max")
    assert cgroup_left_bytes(tmp_path / "proc", tmp_path) == 2 * GIB
    (ram,) = pools(tmp_path).read()
    limited = psutil.virtual_memory().available > 2 * GIB
    assert ram.source == ("the cgroup's limit" if limited else "the system")


def test_the_first_version_of_cgroups_and_its_word_for_no_limit(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/docker/abc")
    folder = "fs/cgroup/memory/docker/abc"
    write(tmp_path, f"{folder}/memory.limit_in_bytes", str(GIB))
    write(tmp_path, f"{folder}/memory.usage_in_bytes", str(GIB // 4))
    write(tmp_path, "fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    write(tmp_path, "fs/cgroup/memory/memory.usage_in_bytes", "77")
    assert cgroup_left_bytes(tmp_path / "proc", tmp_path) == 3 * GIB // 4
    assert cgroup_left_bytes(tmp_path / "nowhere", tmp_path) is None


@pytest.mark.parametrize(
    ("metrics", "borrows"), [(b"\x08\x01\x03\x00", True), (b"x\x00\x01\x03", False)]
)
def test_an_apu_borrows_gtt_and_a_card_does_not(
    metrics: bytes, borrows: bool, tmp_path: Path
) -> None:
    device = "class/drm/card1/device"
    write(tmp_path, f"{device}/gpu_metrics", metrics)
    for name, size in (
        ("vram_total", 512),
        ("vram_used", 112),
        ("gtt_total", 900),
        ("gtt_used", 1),
    ):
        write(tmp_path, f"{device}/mem_info_{name}", str(size))
    _, *gpu = pools(tmp_path).read()
    assert gpu[0] == MemoryPool("card1 VRAM", 400, "amdgpu", gpu=True)
    gtt = MemoryPool("card1 GTT", 899, "amdgpu", gpu=True, borrowed=True)
    assert gpu[1:] == ([gtt] if borrows else [])


class FakeAdapters:
    def segments(self) -> tuple[Segments, ...]:
        return (Segments("AMD Radeon(TM) 8060S Graphics", 500, 900, "luid_0x0_0xFAD4"),)


class FakeCounters:
    def read(self, path: str) -> dict[str, float]:
        instance = "luid_0x0_0xFAD4_phys_0"
        return {instance: 100.0} if "Dedicated" in path else {instance: 30.0}


@pytest.mark.parametrize("cpu", ["AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "AMD Ryzen 9"])
def test_windows_adapters_with_what_is_in_use(cpu: str, tmp_path: Path) -> None:
    found = pools(tmp_path, adapters=FakeAdapters(), windows=FakeCounters(), cpu=cpu).read()[1:]
    name = "AMD Radeon(TM) 8060S Graphics"
    assert found[0] == MemoryPool(f"{name}, dedicated", 400, "D3DKMT", gpu=True)
    shared = MemoryPool(f"{name}, shared", 870, "D3DKMT", gpu=True, borrowed=True)
    assert found[1:] == ((shared,) if named_by_cpu(name, cpu) else ())
    assert named_by_cpu(name, cpu) is cpu.endswith("8060S")
