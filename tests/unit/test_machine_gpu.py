"""Device memory and engine time by process: amdgpu fdinfo, NVML and Windows' counters."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.machine import windows_counters
from harness.machine.drm import compute_memory, parse_fdinfo, process_memory, whole_gpu_memory
from harness.machine.gpu_use import DrmEngines, GpuWatch
from harness.machine.load import GpuUse
from harness.machine.nvml import Nvml

S = 1_000_000_000
AMDGPU = """\
pos:\t0
flags:\t02100002
mnt_id:\t26
ino:\t597
drm-driver:\tamdgpu
drm-client-id:\t{client}
drm-pdev:\t0000:c5:00.0
pasid:\t32771
drm-total-cpu:\t0
drm-resident-cpu:\t512 KiB
drm-total-gtt:\t20480 KiB
drm-resident-gtt:\t15372 KiB
drm-purgeable-gtt:\t0
drm-total-vram:\t1 GiB
drm-resident-vram:\t1011 MiB
drm-memory-vram:\t1035264 KiB
drm-memory-gtt: \t15372 KiB
drm-memory-cpu: \t512 KiB
amd-evicted-vram:\t0 KiB
drm-engine-gfx:\t{gfx} ns
drm-engine-compute:\t{compute} ns
drm-engine-capacity-enc:\t2
"""
OLDER = "drm-driver:\tamdgpu\ndrm-client-id:\t3\ndrm-memory-vram:\t64 KiB\ndrm-memory-gtt:\t8 KiB\n"


def test_memory_and_engine_time_of_a_client() -> None:
    client = parse_fdinfo(AMDGPU.format(client=47, gfx=46464671, compute=12))
    assert client is not None
    assert client.key == ("0000:c5:00.0", "47")
    assert client.memory_bytes == (1011 << 20) + (15372 << 10)  # counted once, not by both names
    assert client.engine_ns == {"gfx": 46464671, "compute": 12}


@pytest.mark.parametrize("text", [OLDER, OLDER.replace("drm-memory", "drm-resident")])
def test_a_kernel_that_knows_only_the_older_or_the_newer_names(text: str) -> None:
    client = parse_fdinfo(text)
    assert client is not None
    assert client.memory_bytes == 72 << 10


def test_other_descriptors_are_no_clients() -> None:
    assert parse_fdinfo("pos:\t0\nflags:\t02\neventfd-count: 0\n") is None


def process(proc: Path, pid: int, descriptors: Mapping[int, tuple[str, str]]) -> None:
    """A process with open descriptors: number to (target, fdinfo text)."""
    for name in ("fd", "fdinfo"):
        (proc / str(pid) / name).mkdir(parents=True)
    for number, (target, text) in descriptors.items():
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)
        (proc / str(pid) / "fdinfo" / str(number)).write_text(text)


RENDER = "/dev/dri/renderD128"


def gpu_text(client: int, gfx: int = 0, compute: int = 0) -> str:
    return AMDGPU.format(client=client, gfx=gfx, compute=compute)


needs_links = pytest.mark.skipif(os.name == "nt", reason="symbolic links need rights on Windows")


@needs_links
def test_duplicated_descriptors_are_counted_once(tmp_path: Path) -> None:
    shared = gpu_text(47)
    process(tmp_path, 10, {3: (RENDER, shared), 4: (RENDER, shared), 5: ("/dev/null", shared)})
    process(tmp_path, 11, {3: (RENDER, shared), 6: (RENDER, gpu_text(48))})
    one = (1011 << 20) + (15372 << 10)
    assert process_memory([10], tmp_path) == one
    assert process_memory([10, 11, 999], tmp_path) == 2 * one
    assert process_memory([999], tmp_path) is None


def test_counters_of_compute_and_of_the_whole_gpu(tmp_path: Path) -> None:
    kfd = tmp_path / "class/kfd/kfd/proc/10"
    kfd.mkdir(parents=True)
    (kfd / "vram_51110").write_text("4096\n")
    device = tmp_path / "class/drm/card1/device"
    device.mkdir(parents=True)
    (device / "mem_info_vram_used").write_text("1000\n")
    (device / "mem_info_gtt_used").write_text("200\n")
    assert compute_memory([10, 11], tmp_path) == 4096
    assert compute_memory([11], tmp_path) is None
    assert whole_gpu_memory(tmp_path) == {"vram": 1000, "gtt": 200}


@needs_links
def test_engine_time_between_two_readings(tmp_path: Path) -> None:
    process(tmp_path, 10, {3: (RENDER, gpu_text(47, gfx=0)), 4: (RENDER, gpu_text(47, gfx=0))})
    process(tmp_path, 11, {3: (RENDER, gpu_text(48, gfx=5 * S, compute=S))})
    process(tmp_path, 12, {0: ("/dev/null", "")})
    engines = DrmEngines(tmp_path)
    assert engines.read({10, 11, 12}, 0) is None
    for number in (3, 4):
        (tmp_path / f"10/fdinfo/{number}").write_text(gpu_text(47, gfx=S // 2))
    (tmp_path / "11/fdinfo/3").write_text(gpu_text(48, gfx=5 * S, compute=S + S // 4))
    assert engines.read({10, 11, 12}, S) == {10: 0.5, 11: 0.25}
    assert engines.read({10}, 2 * S) == {10: 0.0}


@needs_links
def test_our_own_gpu_use_is_left_out(tmp_path: Path) -> None:
    process(tmp_path, 10, {3: (RENDER, gpu_text(47))})
    process(tmp_path, 11, {3: (RENDER, gpu_text(48))})
    now = [0]
    watch = GpuWatch(None, None, DrmEngines(tmp_path), lambda: now[0])
    names = {11: "blender"}
    assert watch.read({10, 11}, frozenset({10}), names.__getitem__) is None
    for pid, client in ((10, 47), (11, 48)):
        (tmp_path / f"{pid}/fdinfo/3").write_text(gpu_text(client, gfx=S // 2))
    now[0] = S
    assert watch.read({10, 11}, frozenset({10}), names.__getitem__) == (GpuUse(11, "blender", 0.5),)
    assert any("ROCm" in sentence for sentence in watch.not_watched())


def test_a_machine_without_gpu_counters_says_so() -> None:
    watch = GpuWatch(None, None, None)
    assert watch.read({1}, frozenset(), str) is None
    assert watch.watched() == ()
    assert "no GPU with a readable counter" in watch.not_watched()[0]


class FakeNvml:
    """Two GPUs as `pynvml` shows them; the second doesn't tell its processes' use."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801, N818  (the library's spelling)
        pass

    def __init__(self) -> None:
        self.samples = [(10, 60, 100), (10, 20, 200), (11, 30, 200)]

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [
            SimpleNamespace(pid=10, usedGpuMemory=1000),
            SimpleNamespace(pid=11, usedGpuMemory=None),
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=10, usedGpuMemory=1000)]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=5000)

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[Any]:  # noqa: N802
        if handle == 1:
            raise self.NVMLError
        new = [s for s in self.samples if s[2] > since]
        if not new:
            raise self.NVMLError_NotFound
        return [SimpleNamespace(pid=p, smUtil=u, timeStamp=t) for p, u, t in new]

    def nvmlDeviceGetClockInfo(self, handle: int, which: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return 40 + handle


def test_nvml_seam() -> None:
    fake = FakeNvml()
    nvml = Nvml(fake)
    assert nvml.process_memory() == {10: 2000}  # on both GPUs, each list's entry once a GPU
    assert nvml.used_bytes() == 10_000
    assert nvml.process_use() == {10: pytest.approx(0.4), 11: pytest.approx(0.3)}
    assert nvml.process_use() == {}  # nothing new since
    fake.samples.append((11, 80, 300))
    assert nvml.process_use() == {11: pytest.approx(0.8)}
    assert GpuWatch(nvml, None, None).every_s > GpuWatch(None, None, None).every_s
    assert nvml.clock_mhz() == 1980.0
    assert nvml.temperature_c() == 41.0


def test_nvml_that_tells_nothing_is_nothing_readable() -> None:
    class Silent(FakeNvml):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("nvmlDeviceGet") and name not in (
                "nvmlDeviceGetCount",
                "nvmlDeviceGetHandleByIndex",
            ):
                return self.refuse
            return super().__getattribute__(name)

        def refuse(self, *_: object) -> None:
            raise self.NVMLError

    nvml = Nvml(Silent())
    assert nvml.process_memory() == {}
    assert nvml.used_bytes() is None
    assert nvml.process_use() is None
    assert nvml.clock_mhz() is None
    assert nvml.temperature_c() is None


LUID = "luid_0x00000000_0x0000FAD4_phys_0"


class FakePdh:
    """`win32pdh` with recorded instances of the counters."""

    PDH_FMT_DOUBLE = 0x200

    class error(Exception):  # noqa: N801, N818  (the library's spelling)
        pass

    def __init__(self, values: Mapping[str, Mapping[str, float]]) -> None:
        self.values = values
        self.opened = 0

    def OpenQuery(self) -> str:  # noqa: N802
        self.opened += 1
        return "query"

    def AddEnglishCounter(self, query: str, path: str) -> str:  # noqa: N802
        if path not in self.values:
            raise self.error(f"no counter {path}")
        return path

    def CollectQueryData(self, query: str) -> None:  # noqa: N802
        pass

    def GetFormattedCounterArray(self, counter: str, form: int) -> Mapping[str, float]:  # noqa: N802
        return self.values[counter]


def test_windows_counters_by_process() -> None:
    pdh = FakePdh(
        {
            windows_counters.ENGINE_USE: {
                f"pid_4242_{LUID}_eng_3_engtype_Compute": 75.0,
                f"pid_4242_{LUID}_eng_0_engtype_3D": 12.5,
                f"pid_1100_{LUID}_eng_0_engtype_3D": 3.0,
                "_Total": 90.0,
            },
            windows_counters.DEDICATED: {f"pid_4242_{LUID}": 1000.0, f"pid_1100_{LUID}": 7.0},
            windows_counters.SHARED: {f"pid_4242_{LUID}": 500.0},
        }
    )
    counters = windows_counters.PdhCounters(pdh)
    assert windows_counters.process_use(counters) == {4242: 0.75, 1100: 0.03}
    assert windows_counters.process_memory(counters) == {4242: 1500, 1100: 7}
    assert windows_counters.process_use(counters) == {4242: 0.75, 1100: 0.03}
    assert pdh.opened == 3  # one query a counter, kept: a rate needs the reading before


def test_windows_without_the_counters() -> None:
    counters = windows_counters.PdhCounters(FakePdh({}))
    assert windows_counters.process_use(counters) is None
    assert windows_counters.process_memory(counters) is None
