"""What a server will need: by the file, by its log, and against the limits of its device."""

import pytest

from harness.errors import SetupError
from harness.llamacpp.buffers import check_buffers
from harness.llamacpp.flags import cache_settings
from harness.llamacpp.kv import GIB, MIB
from harness.llamacpp.log import scan
from harness.llamacpp.memory_plan import (
    CacheSettings,
    buffer_objections,
    by_log,
    by_theory,
    gib,
    memory_objection,
    summed,
)
from harness.machine.vulkan import VulkanDevice, parse_vulkaninfo
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
    theory = CacheSettings(type_k="q8_0", type_v="q8_0").theory(QWEN35_2B, 4_194_304)
    plan = by_theory(4 * GIB, theory, 10 * GIB)
    assert [part.name for part in plan.parts] == [
        "weights",
        "KV cache, full attention",
        "KV cache, recurrent state",
    ]
    assert theory.total_bytes is not None
    assert plan.total_bytes == 4 * GIB + theory.total_bytes
    assert any("compute buffers" in unknown for unknown in plan.unknown)
    assert plan.short_bytes == plan.total_bytes - 10 * GIB
    said = memory_objection(plan)
    assert said is not None
    assert "10.00 GiB of memory are free" in said
    assert memory_objection(by_theory(4 * GIB, theory, None)) is None
    assert memory_objection(by_theory(4 * GIB, theory, 200 * GIB)) is None


def test_unreadable_sizes_are_named_and_not_zero() -> None:
    plan = by_theory(None, None, None)
    assert plan.parts == ()
    assert len(plan.unknown) == 3


def test_memory_by_the_log_goes_by_device() -> None:
    plan = by_log(scan(LOG.splitlines()), 8 * GIB)
    assert plan.total_bytes == pytest.approx(5409.35 * MIB, abs=2**12)
    assert ("KV cache", "Vulkan0") in {(p.name, p.device) for p in plan.parts}
    assert summed(plan.parts).startswith("weights 6.3 MiB, KV cache 1.00 GiB, compute buffers 4.28")
    empty = by_log(scan(["nothing"]), None)
    assert empty.unknown


def test_buffers_over_the_limit_come_with_what_would_fit() -> None:
    check = check_buffers(
        QWEN35_2B, 1_048_576, 2 * GIB, type_k="q8_0", type_v="q8_0", n_ubatch=1024
    )
    said = buffer_objections(check, "RADV")
    assert "KQ mask of 2.00 GiB (ubatch 1024 x 1,048,576 cells x 2 bytes)" in said[0] + said[1]
    assert said[-1].startswith("what would fit: -ub 512 makes mask and scores fit")
    assert buffer_objections(check_buffers(QWEN35_2B, 8192, 2 * GIB), "RADV") == ()


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
    assert gib(2 * GIB) == "2.00 GiB"
    assert gib(5.8 * MIB) == "5.8 MiB"


def test_what_theory_cannot_tell_is_handed_on() -> None:
    odd = {**QWEN35_2B, "general.architecture": "brandnew", "brandnew.block_count": 2}
    plan = by_theory(GIB, CacheSettings().theory(odd, 8192), None)
    assert any("brandnew" in unknown for unknown in plan.unknown), plan.unknown
