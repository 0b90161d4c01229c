"""What a server will need: by the file, by its log, and against the limits of its device."""

import pytest

from harness.errors import SetupError
from harness.llamacpp.buffers import check_buffers
from harness.llamacpp.flags import cache_settings
from harness.llamacpp.kv import GIB, MIB, CacheSettings, kv_theory
from harness.llamacpp.log import scan
from harness.llamacpp.memory_plan import (
    ANYWHERE,
    GPU,
    HOST,
    Pool,
    buffer_objections,
    by_log,
    by_theory,
    memory_objections,
    summed,
)
from harness.machine.vulkan import VulkanDevice, parse_vulkaninfo
from harness.quantities import size
from tests.unit.llamacpp.test_buffers import QWEN35_2B

VULKANINFO = """\
Layers: count = 3
GPU0:
VkPhysicalDeviceProperties:
	deviceType        = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU
	deviceName        = AMD Radeon Graphics (RADV GFX1151)
VkPhysicalDeviceMaintenance3Properties:
	maxMemoryAllocationSize = 0xfffffffc
VkPhysicalDeviceMaintenance4Properties:
	maxBufferSize = 0x100000000
GPU1:
VkPhysicalDeviceProperties:
	deviceType        = PHYSICAL_DEVICE_TYPE_CPU
	deviceName        = llvmpipe (LLVM 15.0.6, 256 bits)
	maxMemoryAllocationSize = 0x80000000
	maxBufferSize = 0xffffffff
GPU2:
	deviceName        = something old
"""
LOG = """\
load_tensors:   CPU_Mapped model buffer size =     0.50 MiB
load_tensors:      Vulkan0 model buffer size =     5.76 MiB
llama_kv_cache:    Vulkan0 KV buffer size =  1024.00 MiB
sched_reserve:    Vulkan0 compute buffer size =    23.04 MiB
sched_reserve: Vulkan_Host compute buffer size =  4356.05 MiB
"""


def test_vulkaninfo_gives_each_devices_lesser_limit() -> None:
    assert list(parse_vulkaninfo(VULKANINFO)) == [
        VulkanDevice("AMD Radeon Graphics (RADV GFX1151)", False, 0xFFFFFFFC),
        VulkanDevice("llvmpipe (LLVM 15.0.6, 256 bits)", True, 2 * GIB),
        VulkanDevice("something old", False, None),
    ]
    assert list(parse_vulkaninfo("ERROR: no ICD")) == []


def test_memory_by_theory_is_a_lower_bound_that_says_so() -> None:
    theory = kv_theory(QWEN35_2B, 4_194_304, CacheSettings("q8_0", "q8_0"))
    plan = by_theory(4 * GIB, theory, ram(10))
    assert [part.name for part in plan.parts] == [
        "weights",
        "KV cache, full attention",
        "KV cache, recurrent state",
    ]
    assert theory.total_bytes is not None
    assert plan.total_bytes == 4 * GIB + theory.total_bytes
    assert any("compute buffers" in unknown for unknown in plan.unknown)
    (said,) = memory_objections(plan)
    assert "10 GiB are free there (RAM 10 GiB by the system)" in said
    assert memory_objections(by_theory(4 * GIB, theory, ())) == ()
    assert memory_objections(by_theory(4 * GIB, theory, ram(200))) == ()


def ram(free_gib: float) -> tuple[Pool, ...]:
    return (Pool("RAM", HOST, round(free_gib * GIB), "the system"),)


CARD = Pool("NVIDIA GeForce RTX 4090", GPU, 24 * GIB, "NVML")
CARVE_OUT = Pool("card1 VRAM", GPU, GIB // 2, "amdgpu")
GTT = Pool("card1 GTT", GPU, 96 * GIB, "amdgpu", borrowed=True)


def placed(pools: tuple[Pool, ...], weights: str, cache: str, weights_gib: int = 4):
    theory = kv_theory(QWEN35_2B, 1_048_576, CacheSettings())  # 12.02 GiB
    return by_theory(weights_gib * GIB, theory, pools, weights=weights, cache=cache)


def test_a_cache_that_fits_the_gpu_need_not_fit_the_ram() -> None:
    assert memory_objections(placed((*ram(1), CARD), GPU, GPU)) == ()


def test_a_card_that_is_too_small_is_objected_to_however_much_ram_there_is() -> None:
    (said,) = memory_objections(placed((*ram(64), CARD), GPU, GPU, weights_gib=20))
    assert said.startswith("32.02 GiB on the GPU are needed at least (weights 20 GiB")
    assert "24 GiB are free there (NVIDIA GeForce RTX 4090 24 GiB by NVML)" in said
    assert "leave layers in RAM (-ngl)" in said


def test_a_cache_left_in_ram_is_the_rams() -> None:
    (said,) = memory_objections(placed((*ram(4), CARD), GPU, HOST))
    assert said.startswith("12.02 GiB of RAM are needed at least")


@pytest.mark.parametrize(("ram_gib", "fits"), [(64, True), (8, False)])
def test_an_apu_borrows_as_far_as_the_ram_lasts(ram_gib: int, fits: bool) -> None:
    said = memory_objections(placed((*ram(ram_gib), CARVE_OUT, GTT), GPU, GPU))
    assert (said == ()) is fits


@pytest.mark.parametrize(("ram_gib", "fits"), [(16, True), (8, False)])
def test_layers_on_either_side_need_both_together(ram_gib: int, fits: bool) -> None:
    small = Pool("card", GPU, 4 * GIB, "NVML")
    said = memory_objections(placed((*ram(ram_gib), small), ANYWHERE, ANYWHERE))
    assert (said == ()) is fits


def test_a_gpu_that_nothing_tells_of_is_said_and_not_judged() -> None:
    plan = placed(ram(1), GPU, GPU)
    assert memory_objections(plan) == ()
    assert "free memory of the GPU: nothing here tells it" in plan.unknown


def test_the_log_tells_each_devices_free_memory() -> None:
    device = "0.0 I cmn common_param:  - Vulkan0 : NVIDIA H200 (143771 MiB, 900 MiB free)"
    plan = by_log(scan([device, *LOG.splitlines()]), (*ram(64), CARD))
    assert plan.needed_bytes("Vulkan0") == pytest.approx(1052.8 * MIB, abs=2**12)
    (said,) = memory_objections(plan)
    assert "NVIDIA H200 900 MiB by the server's log" in said
    roomy = by_log(scan([device.replace(" 900", " 143139"), *LOG.splitlines()]), ram(64))
    assert memory_objections(roomy) == ()


def test_unreadable_sizes_are_named_and_not_zero() -> None:
    plan = by_theory(None, None, ())
    assert plan.parts == ()
    assert len(plan.unknown) == 3


def test_memory_by_the_log_goes_by_device() -> None:
    plan = by_log(scan(LOG.splitlines()), ram(8))
    assert plan.total_bytes == pytest.approx(5409.35 * MIB, abs=2**12)
    assert ("KV cache", "Vulkan0") in {(p.name, p.device) for p in plan.parts}
    assert summed(plan.parts).startswith("weights 6.3 MiB, KV cache 1 GiB, compute buffers 4.28")
    empty = by_log(scan(["nothing"]), ())
    assert empty.unknown


def test_buffers_over_the_limit_come_with_what_would_fit() -> None:
    check = check_buffers(
        QWEN35_2B, 1_048_576, 2 * GIB, CacheSettings("q8_0", "q8_0", n_ubatch=1024)
    )
    said = buffer_objections(check, "RADV")
    assert "KQ mask of 2 GiB (ubatch 1024 x 1,048,576 cells x 2 bytes)" in said[0] + said[1]
    assert said[-1].startswith("what would fit: -ub 512 makes mask and scores fit")
    assert buffer_objections(check_buffers(QWEN35_2B, 8192, 2 * GIB, CacheSettings()), "RADV") == ()


def test_a_cache_setting_is_read_from_flags_with_the_servers_defaults() -> None:
    assert cache_settings([]) == CacheSettings()
    given = ["-ctk", "q8_0", "--cache-type-v=q4_0", "-ub", "256", "-np", "3", "-kvu", "-fa", "off"]
    assert cache_settings(given) == CacheSettings("q8_0", "q4_0", 256, 3, True, False, False)
    assert cache_settings(["-np", "-1"]).n_parallel == 1
    with pytest.raises(SetupError, match="f8 is no cache type; expected one of f32, f16"):
        cache_settings(["-ctk", "f8"])
    with pytest.raises(SetupError, match="-ub many in --server-args: expected a number"):
        cache_settings(["-ub", "many"])


def test_sizes_are_in_binary_units() -> None:
    assert size(2 * GIB) == "2 GiB"
    assert size(5.8 * MIB) == "5.8 MiB"


def test_what_theory_cannot_tell_is_handed_on() -> None:
    odd = {**QWEN35_2B, "general.architecture": "brandnew", "brandnew.block_count": 2}
    plan = by_theory(GIB, kv_theory(odd, 8192, CacheSettings()), ())
    assert any("brandnew" in unknown for unknown in plan.unknown), plan.unknown
