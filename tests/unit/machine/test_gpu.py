"""Device memory and engine time by process: amdgpu fdinfo, NVML and Windows' counters."""

import ctypes
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.machine import windows_counters
from harness.machine.d3dkmt import Adapters, Segments
from harness.machine.drm import compute_memory, parse_fdinfo, process_memory, whole_gpu_memory
from harness.machine.gpu_state import GpuStates, together
from harness.machine.gpu_use import DrmEngines, GpuWatch
from harness.machine.load import GpuState, GpuUse
from harness.machine.nvml import GpuMemory, Nvml

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

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlMemory_v2 = 0x02000028  # noqa: N815
    reasons = 0x0001

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

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:  # noqa: N802
        reserved = 600 if version is None else 0  # the driver's own, by the old call
        return SimpleNamespace(total=90_000, used=5000 + reserved, free=85_000 - reserved)

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return 118_500

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=12 if handle == 0 else 0)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[Any]:  # noqa: N802
        if handle == 1:
            raise self.NVMLError
        new = [s for s in self.samples if s[2] > since]
        if not new:
            raise self.NVMLError_NotFound
        return [SimpleNamespace(pid=p, smUtil=u, timeStamp=t) for p, u, t in new]

    def nvmlDeviceGetClockInfo(self, handle: int, which: int) -> int:  # noqa: N802
        return {self.NVML_CLOCK_SM: 570, self.NVML_CLOCK_MEM: 3201}[which]

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
    assert nvml.temperature_c() == 41.0


def test_memory_is_as_nvidia_smi_shows_it_also_with_an_old_library() -> None:
    assert Nvml(FakeNvml()).memories()[0] == GpuMemory("NVIDIA H200", 90_000, 5000, 85_000)

    class Old(FakeNvml):
        nvmlMemory_v2 = None  # noqa: N815

    assert Nvml(Old()).memories()[0].used_bytes == 5600


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0x1, ("idle",)), (0x44, ("power limit", "heat")), (0, ()), (0x20, ("heat",))],
)
def test_what_a_gpu_runs_at_and_what_holds_it_back(bits: int, words: tuple[str, ...]) -> None:
    fake = FakeNvml()
    fake.reasons = bits
    first, second = GpuStates(Nvml(fake), None, Path("/nowhere")).read()
    assert first == GpuState("NVIDIA H200", "NVML", 570, 3201, 118.5, 0.12, words)
    assert second.busy == 0.0


def test_the_older_name_of_the_call_for_reasons() -> None:
    class Old(FakeNvml):
        nvmlDeviceGetCurrentClocksEventReasons = None  # noqa: N815

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
            return 0x4

    assert Nvml(Old()).states()[0].held_by == ("power limit",)


def amdgpu(root: Path, card: str, metrics: bytes, **files: str) -> Path:
    """The folder of an amdgpu card in sysfs: `hwmon` files by name, others with `device_`."""
    device = root / f"class/drm/{card}/device"
    hwmon = device / "hwmon/hwmon3"
    hwmon.mkdir(parents=True, exist_ok=True)
    (device / "gpu_metrics").write_bytes(metrics)
    for name, text in files.items():
        folder = device if name.startswith("device_") else hwmon
        (folder / name.removeprefix("device_")).write_text(text + "\n")
    return device


def metrics_v3(*residencies: int, gfx_mhz: int = 2900) -> bytes:
    """A `gpu_metrics` of version 3.0 (Strix Point, Strix Halo): 264 bytes."""
    blob = bytearray(264)
    struct.pack_into("<HBB", blob, 0, 264, 3, 0)
    struct.pack_into("<H", blob, 174, gfx_mhz)
    struct.pack_into("<7I", blob, 228, *residencies)
    return bytes(blob)


def test_an_apus_clock_and_its_limits_by_what_has_grown(tmp_path: Path) -> None:
    files = {"device_gpu_busy_percent": "97", "power1_average": "88004000"}
    files["device_pp_dpm_mclk"] = "0: 400Mhz\n1: 1000Mhz *"
    amdgpu(tmp_path, "card1", metrics_v3(5, 9, 9, 9, 0, 0, 0), **files)
    states = GpuStates(None, None, tmp_path)
    assert states.read() == (GpuState("card1", "amdgpu", 2900.0, 1000.0, 88.004, 0.97, ()),)
    later = metrics_v3(5, 9, 12, 15, 0, 3, 0, gfx_mhz=1400)
    amdgpu(tmp_path, "card1", later, freq1_input="1410000000", **files)
    (state,) = states.read()
    assert (state.core_mhz, state.held_by) == (1410.0, ("power limit", "heat"))


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0, ()), (1 << 4, ("power limit",)), (1 << 36, ("heat",)), ((1 << 64) - 1, None)],
)
def test_a_cards_throttle_status(bits: int, words: tuple[str, ...] | None, tmp_path: Path) -> None:
    blob = bytearray(120)
    struct.pack_into("<HBB", blob, 0, 120, 1, 3)
    struct.pack_into("<Q", blob, 112, bits)
    amdgpu(tmp_path, "card0", bytes(blob), device_gpu_busy_percent="3", freq1_input="500000000")
    (tmp_path / "class/drm/card0-DP-1/device").mkdir(parents=True)  # a connector is no GPU
    (state,) = GpuStates(None, None, tmp_path).read()
    assert (state.core_mhz, state.held_by) == (500.0, words)


def test_metrics_of_an_unknown_version_tell_nothing(tmp_path: Path) -> None:
    amdgpu(tmp_path, "card0", struct.pack("<HBB", 4, 9, 9), device_gpu_busy_percent="3")
    (state,) = GpuStates(None, None, tmp_path).read()
    assert (state.core_mhz, state.held_by, state.busy) == (None, None, 0.03)


class FakeGdi:
    """`gdi32` with an adapter and a software device; the structures are filled as Windows would."""

    def __init__(self) -> None:
        self.closed: list[int] = []

    def D3DKMTEnumAdapters2(self, argument: Any) -> int:  # noqa: N802
        wanted = argument._obj
        wanted.count = 2
        wanted.adapters[0].handle, wanted.adapters[1].handle = 64, 65
        return 0

    def D3DKMTCloseAdapter(self, argument: Any) -> int:  # noqa: N802
        self.closed.append(argument._obj.value)
        return 0

    def D3DKMTQueryAdapterInfo(self, argument: Any) -> int:  # noqa: N802
        query = argument._obj
        blob = {
            3: struct.pack("<3Q", 96 << 30, 0, 16 << 30),
            8: "AMD Radeon 8060S".encode("utf-16-le"),
            15: struct.pack("<I", 0x4 if query.handle == 65 else 0x1),
            61: struct.pack("<IIQ", 0, 0, 2_900_000_000),
            62: struct.pack("<I4xQ", 0, 1_000_000_000),
        }.get(query.type)
        if blob is None:
            return -1
        assert len(blob) <= query.size
        ctypes.memmove(query.data, blob, len(blob))
        return 0


def test_windows_adapters_by_the_graphics_kernel() -> None:
    fake = FakeGdi()
    adapters = Adapters(fake)
    assert adapters.segments() == (
        Segments("AMD Radeon 8060S", 96 << 30, 16 << 30, "luid_0x00000000_0x00000000"),
    )
    assert adapters.states() == [
        GpuState("AMD Radeon 8060S", "D3DKMT", core_mhz=2900.0, memory_mhz=1000.0)
    ]
    assert fake.closed == [64, 65, 64, 65]


def test_looks_are_put_together_by_their_medians() -> None:
    looks = [
        (GpuState("a", "NVML", core_mhz=mhz, held_by=held),)
        for mhz, held in ((1980, ()), (570, ("idle",)), (600, ("idle", "heat")), (585, ("idle",)))
    ]
    assert together(looks) == (GpuState("a", "NVML", core_mhz=592.5, held_by=("idle",)),)
    assert together([]) == ()


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
    assert all(
        (state.core_mhz, state.power_w, state.busy, state.held_by) == (None,) * 4
        for state in nvml.states()
    )
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
