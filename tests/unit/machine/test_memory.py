import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.machine.memory import DeviceMemory, MemoryProbe, parse_status, process_tree

STATUS = """\
Name:\tllama-server
State:\tS (sleeping)
VmPeak:\t 9000000 kB
VmRSS:\t 8000000 kB
RssAnon:\t 3000000 kB
RssFile:\t 5000000 kB
RssShmem:\t       0 kB
VmSwap:\t    1024 kB
Threads:\t8
"""


def no_device(tmp_path: Path) -> DeviceMemory:
    return DeviceMemory(nvml=None, windows=None, proc=tmp_path, sys_root=tmp_path)


def test_sizes_in_a_status_file_are_kib() -> None:
    assert parse_status(STATUS) == {
        "VmRSS": 8_000_000 * 1024,
        "RssAnon": 3_000_000 * 1024,
        "VmSwap": 1024 * 1024,
    }


def test_memory_of_children_counts(tmp_path: Path) -> None:
    code = "block = bytearray(64 << 20); print('ready', flush=True); input()"
    shell = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline().strip() == b"ready"
        sample = MemoryProbe(parent.pid, no_device(tmp_path)).sample()
        assert len(process_tree(parent.pid)) == 2
        parent.stdin.write(b"\n")
    assert sample.rss_bytes is not None
    assert sample.rss_bytes > 64 << 20
    if sys.platform == "linux":
        assert sample.rss_anon_bytes is not None
        assert 64 << 20 < sample.rss_anon_bytes < sample.rss_bytes
        assert sample.swap_bytes is not None


def test_a_process_that_is_gone_is_said_and_raises_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        probe = MemoryProbe(ended.pid, no_device(tmp_path))
        sample = probe.sample()
    assert (sample.rss_bytes, sample.device_bytes, sample.swap_bytes) == (None, None, None)
    assert sample.host_available_bytes is not None
    assert any("is gone" in sentence for sentence in probe.unreadable())


def test_an_unknown_process_is_said(tmp_path: Path) -> None:
    probe = MemoryProbe(None, no_device(tmp_path))
    assert probe.unreadable() == (
        "server memory not read: the server's process isn't known from here",
    )
    assert probe.sample().rss_bytes is None


def test_the_largest_counter_of_the_server_is_taken_and_all_are_kept(tmp_path: Path) -> None:
    class FakeNvml:
        def process_memory(self) -> dict[int, int]:
            return {os.getpid(): 900, 1: 5000}

        def used_bytes(self) -> int:
            return 5900

    kfd = tmp_path / f"class/kfd/kfd/proc/{os.getpid()}"
    kfd.mkdir(parents=True)
    (kfd / "vram_1").write_text("700")
    fake: Any = FakeNvml()
    device = DeviceMemory(nvml=fake, windows=None, proc=tmp_path, sys_root=tmp_path)
    sample = MemoryProbe(os.getpid(), device).sample()
    assert sample.device_bytes == 900
    assert sample.device_counter == "NVML per process"
    assert sample.device_counters == {
        "NVML per process": 900,
        "KFD vram": 700,
        "whole GPU, NVML": 5900,
    }


@pytest.mark.parametrize("card", [True, False])
def test_why_device_memory_is_missing(tmp_path: Path, card: bool) -> None:
    if card:
        (tmp_path / "class/drm/card0").mkdir(parents=True)
    probe = MemoryProbe(os.getpid(), no_device(tmp_path))
    if sys.platform == "win32":
        pytest.skip("Windows names the missing package instead")
    expected = "no GPU counter lists its processes" if card else "no GPU with a readable counter"
    assert any(expected in sentence for sentence in probe.unreadable())
