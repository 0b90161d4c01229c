# ruff: noqa: E501
"""Is it what you think it is: every way a server can differ from what was asked, and no other."""

import pytest

from harness.llamacpp.discrepancies import discrepancies, other_build
from harness.llamacpp.log import LogFindings, scan

CPU = """
0.00.000.938 I load_tensors: offloaded 5/5 layers to GPU
0.00.000.939 I load_tensors:   CPU_Mapped model buffer size =     5.76 MiB
0.00.000.940 I llama_context: n_ctx                 = 4096
0.00.000.941 I llama_context: n_batch               = 512
0.00.000.942 I llama_context: n_ubatch              = 512
0.00.000.943 I llama_context: flash_attn            = enabled
0.00.000.944 I llama_context: freq_scale            = 0.25
0.00.000.945 I llama_kv_cache: size =    3.06 MiB (  4096 cells,   4 layers,  1/1 seqs), K (q8_0):    1.06 MiB, V (f16):    2.00 MiB
"""
VULKAN = """
ggml_vulkan: 0 = AMD Radeon 8060S Graphics (AMD proprietary driver) | uma: 1 | fp16: 1
0.00.000.938 I load_tensors: offloaded 30/33 layers to GPU
0.00.000.939 I load_tensors:      Vulkan0 model buffer size =   900.00 MiB
0.00.000.939 I load_tensors:   CPU_Mapped model buffer size =     5.76 MiB
"""
LLVMPIPE = """
ggml_vulkan: 0 = llvmpipe (LLVM 19) (Mesa) | uma: 0 | fp16: 1
0.00.000.938 I load_tensors: offloaded 5/5 layers to GPU
0.00.000.939 I load_tensors:      Vulkan0 model buffer size =     5.00 MiB
"""
ASKED = ("-c", "4096", "-np", "1", "-b", "512", "-ub", "512", "-fa", "on", "-ctk", "q8_0")
YARN = ("--rope-scaling", "yarn", "--rope-scale", "4")


def found(text: str) -> LogFindings:
    return scan(text.strip().splitlines())


def clauses(
    text: str, *more: str, n_ctx: int | None = 4096, device: str | None = None
) -> tuple[str, ...]:
    return discrepancies((*ASKED, *YARN, *more), found(text), n_ctx=n_ctx, device=device)


def test_a_server_as_asked_has_no_discrepancy() -> None:
    assert clauses(CPU) == ()
    assert clauses(CPU, "-ngl", "0") == ()
    assert clauses(CPU, "-ngl", "auto") == ()
    assert clauses(CPU, n_ctx=4352) == ()  # padded up


def test_a_log_that_tells_nothing_accuses_nobody() -> None:
    assert clauses("", "-ngl", "99", n_ctx=None, device="Vulkan0") == ()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("-ngl", "99"), "-ngl 99 asks for layers on a GPU but its weights lie on CPU_Mapped"),
        (("--gpu-layers=all",), "asks for layers on a GPU"),
        (("-ctk", "f16"), "its cache holds K as q8_0 and V as f16, not f16 and f16"),
        (("--cache-type-v", "q4_0"), "not q8_0 and q4_0"),
        (("-fa", "off"), "flash attention is on in spite of -fa off"),
        (("-ub", "1024"), "n_ubatch is 512 where -ub asks for 1024"),
        (("-b", "2048"), "n_batch is 512 where -b asks for 2048"),
        (("--rope-scale", "8"), "--rope-scale 8 had no effect: positions are scaled by 0.25"),
        (("-c", "8192"), "its context is 4096 tokens where -c 8192 asks for 8192: it was capped"),
        (("-c", "16384", "-np", "2"), "its context is 4096 tokens in each of 2 slots where"),
    ],
)
def test_each_discrepancy_is_one_clause(more: tuple[str, ...], says: str) -> None:
    (clause,) = clauses(CPU, *more)
    assert says in clause


def test_a_batch_beyond_the_context_may_be_clamped() -> None:
    assert clauses(CPU, "-b", "8192", "-ub", "8192") == ()


@pytest.mark.parametrize("expected", ["CPU", "cpu"])
def test_the_cpu_may_be_what_is_meant(expected: str) -> None:
    assert clauses(CPU, "-ngl", "99", device=expected) == ()
    (clause,) = clauses(VULKAN, device=expected)
    assert "not only on the CPU" in clause


@pytest.mark.parametrize("expected", ["Vulkan", "vulkan0", "8060S"])
def test_a_device_goes_by_name_or_description(expected: str) -> None:
    assert clauses(VULKAN, device=expected) == ()
    (clause,) = clauses(CPU, device=expected)
    assert clause == f"its weights lie on CPU_Mapped, not on {expected}"


def test_another_device_is_not_the_one_expected() -> None:
    (clause,) = clauses(VULKAN, device="ROCm0")
    assert "lie on CPU_Mapped, Vulkan0, not on ROCm0" in clause


def test_software_vulkan_is_no_gpu_unless_named() -> None:
    assert clauses(LLVMPIPE, device="llvmpipe") == ()
    assert len(clauses(LLVMPIPE, device="Vulkan0")) == 1
    assert len(clauses(LLVMPIPE, "-ngl", "99")) == 1


def test_layers_left_on_the_cpu_are_counted() -> None:
    assert clauses(VULKAN, "-ngl", "30") == ()
    (clause,) = clauses(VULKAN, "-ngl", "99")
    assert clause == "30 of 33 layers were offloaded where -ngl asks for 99"


def test_the_build_goes_by_part_of_its_name() -> None:
    assert other_build("b10434-bed0a8566", "b10434") is None
    assert other_build("b10434-bed0a8566", "bed0a85") is None
    assert other_build("b10434", None) is None
    assert other_build("b10434", "b1043") is not None
    assert other_build("b10434", "b11549") == "its build is b10434, not b11549"
