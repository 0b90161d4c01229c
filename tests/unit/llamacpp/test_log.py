"""Log watch on real logs of both servers, and on the wordings of public reports."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.llamacpp.log import MIB, LogFindings, normalise, scan, telling
from harness.llamacpp.log_patterns import PATTERNS

LOGS = Path(__file__).parents[2] / "data" / "logs"
WORDINGS = [
    line.split("\t")
    for line in (LOGS.parent / "log_wordings.tsv").read_text(encoding="utf-8").splitlines()
]
"""Code, reason ("-" for a note) and a line as sources and public reports word it."""


def read(name: str) -> LogFindings:
    return scan((LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines())


def texts(findings: LogFindings) -> list[str]:
    return [warning.text for warning in findings.warnings]


def mib(findings: LogFindings) -> dict[tuple[str, str], float]:
    return {(b.device, b.use): round(b.total_bytes / MIB, 2) for b in findings.buffers}


@pytest.mark.parametrize("name", ["embedded_default", "embedded_v4", "b10434_cpu_v4"])
def test_healthy_logs_prove_no_failure(name: str) -> None:
    log = read(name)
    assert (log.findings, log.reasons) == ((), ())
    # "n_ctx_seq < n_ctx_train" stands in it and is no warning
    assert set(texts(log)) <= {"srv init: --cache-idle-slots requires --cache-ram, disabling"}


@pytest.mark.parametrize("level", ["I", "W"])
def test_an_unused_part_of_the_models_context_is_no_warning(level: str) -> None:
    line = (
        f"0.00.017.648 {level} llama_context: n_ctx_seq (4096) < n_ctx_train (4194304) -- the full "
        "capacity of the model will not be utilized"
    )
    assert scan([line]).warnings == ()
    assert scan([line.replace("<", ">")]).find("context_beyond_training")


def test_default_verbosity_tells_no_sizes() -> None:
    log = read("embedded_default")
    assert (log.buffers, log.devices, log.kv_types, log.settings) == ((), (), None, {})
    assert (log.on_gpu, log.flash_attention, log.total_bytes("KV")) == (None, None, None)


def test_sizes_settings_and_device_of_the_embedded_server() -> None:
    log = read("embedded_v4")
    assert mib(log) == {
        ("CPU_Mapped", "model"): 4.13,
        ("CPU", "output"): 0.0,
        ("CPU", "KV"): 4.0,
        ("CPU", "compute"): 9.52,
    }
    assert log.total_bytes("KV") == 4 * MIB
    assert (log.kv_types, log.flash_attention, log.on_gpu) == (("f16", "f16"), True, False)
    assert {k: log.settings[k] for k in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch")} == {
        "n_ctx": 4096,
        "n_ctx_seq": 4096,
        "n_batch": 2048,
        "n_ubatch": 512,
    }
    assert [(d.name, d.is_gpu) for d in log.devices] == [("CPU", False)]


def test_layers_offloaded_to_gpu_is_printed_without_a_gpu_too() -> None:
    log = read("b10434_cpu_v4")
    assert (log.offloaded, log.on_gpu) == ((5, 5), False)


def test_partial_offload_to_llvmpipe_which_is_no_gpu() -> None:
    log = read("b10434_llvmpipe_partial_v4")
    assert (log.offloaded, log.on_gpu) == ((2, 5), False)
    vulkan = next(d for d in log.devices if d.name == "Vulkan0")
    assert vulkan.description == "llvmpipe (LLVM 15.0.6, 256 bits)"
    assert (vulkan.memory_bytes, vulkan.is_gpu) == (2048 * MIB, False)
    assert mib(log)["CPU", "KV"] == 3.0
    assert mib(log)["Vulkan0", "KV"] == 1.0
    assert log.total_bytes("KV") == 4 * MIB


@pytest.mark.parametrize("name", ["b10434_llvmpipe_default", "b10434_llvmpipe_v4"])
def test_pinned_memory_is_noted_and_is_no_failure(name: str) -> None:
    log = read(name)
    found = log.find("pinned_memory")
    assert found is not None
    assert (found.count, found.reason) == (1, None)
    assert log.reasons == ()
    assert [f.code for f in log.findings] == ["pinned_memory"]


def test_a_kv_cache_the_device_cannot_hold() -> None:
    log = read("b10434_llvmpipe_abort_default")
    assert log.reasons == ("ALLOC_FAIL", "SERVER_DIED")


def test_a_capped_context() -> None:
    log = read("b10434_capped_default")
    assert log.reasons == ("SETUP",)
    assert [f.code for f in log.findings] == ["context_capped", "context_beyond_training"]


def test_a_refused_cache_type() -> None:
    log = read("b10434_quantised_v_default")
    assert [f.code for f in log.findings] == ["kv_type_refused", "load_failed"]
    assert log.reasons == ("SETUP",)


@pytest.mark.parametrize(("code", "reason", "line"), WORDINGS)
def test_wordings(code: str, reason: str, line: str) -> None:
    for prefix in ("", "0.01.412.043 W "):
        log = scan([prefix + line])
        assert [(f.code, f.reason or "-", f.count) for f in log.findings] == [(code, reason, 1)]
        assert len(log.warnings) == 1


def test_sizes_asked_for_are_bytes() -> None:
    log = scan(
        [
            "ggml_vulkan: Device memory allocation of size 2148532224 failed.",
            "ggml_vulkan: Requested buffer size exceeds device buffer size limit: "
            "ErrorOutOfDeviceMemory",
            "allocating 1024.50 MiB on device 0: cudaMalloc failed: out of memory",
        ]
    )
    found = log.find("allocation")
    assert found is not None
    assert found.sizes_bytes == (2_148_532_224, round(1024.5 * MIB))
    assert (found.count, found.first_line) == (3, 0)


def test_findings_count_and_keep_the_first_line() -> None:
    line = "ggml_vulkan: Failed to allocate pinned memory (x: ErrorOutOfDeviceMemory)"
    found = scan(["ok", f"0.00.000.001 W {line}", "ok", f"0.09.000.001 W {line}"]).find(
        "pinned_memory"
    )
    assert found is not None
    assert (found.count, found.first_line) == (2, 1)
    assert found.example.startswith("0.00.000.001")


def test_a_second_context_adds_and_a_second_reservation_replaces() -> None:
    context = [
        "llama_context: constructing llama_context",
        "llama_kv_cache:    Vulkan0 KV buffer size =   100.00 MiB",
        "llama_kv_cache:    Vulkan0 KV buffer size =    10.00 MiB",  # sliding window
        "sched_reserve:    Vulkan0 compute buffer size =    50.00 MiB",
        "sched_reserve:    Vulkan0 compute buffer size =    60.00 MiB",
    ]
    assert mib(scan(context)) == {("Vulkan0", "KV"): 110.0, ("Vulkan0", "compute"): 60.0}
    assert mib(scan(context * 2)) == {("Vulkan0", "KV"): 220.0, ("Vulkan0", "compute"): 120.0}


def test_a_real_gpu_is_one() -> None:
    log = scan(
        [
            "ggml_vulkan: 0 = AMD Radeon(TM) 8060S Graphics (AMD driver) | uma: 1 | fp16: 1",
            "load_tensors:      Vulkan0 model buffer size =  1220.00 MiB",
            "load_tensors:  Vulkan_Host model buffer size =   200.00 MiB",
        ]
    )
    assert [(d.name, d.is_gpu, d.memory_bytes) for d in log.devices] == [("Vulkan0", True, None)]
    assert log.on_gpu is True


def test_a_gpu_whose_weights_stayed_on_the_host() -> None:
    log = scan(
        [
            "common_param:   - CUDA0   : NVIDIA H200 (140000 MiB, 139000 MiB free)",
            "load_tensors:   CPU_Mapped model buffer size =  1220.00 MiB",
            "load_tensors:        CUDA0 model buffer size =     0.00 MiB",
        ]
    )
    assert [d.is_gpu for d in log.devices] == [True]
    assert log.on_gpu is False


def test_the_same_warning_of_another_run_is_not_new() -> None:
    before = scan(
        [
            "0.03.200.246 W srv load_model: the slot context (8388608) exceeds the training "
            "context of the model (4096) - capping",
            "0.00.000.001 E foo: can't open '/home/a/model.gguf' at 0x7f24b5d4fe72 (pid 123)",
        ]
    )
    after = scan(
        [
            "9.13.000.246 W srv load_model: the slot context (999) exceeds the training "
            "context of the model (77) - capping",
            "0.00.000.002 E foo: can't open '/srv/models/b.gguf' at 0x55c0ffee0000 (pid 98765)",
            "0.00.000.003 W ggml_vulkan: op FLASH_ATTN_EXT not supported by the device",
        ]
    )
    assert len(texts(before)) == 2
    assert texts(after) == [*texts(before), after.warnings[2].text]


def test_normalising_keeps_what_tells_warnings_apart() -> None:
    assert normalise("0.00.1.2 W K (q8_0) on Vulkan0: f16 -> q4_0, 12/33 layers, 1,234.5 MiB") == (
        "K (q8_0) on Vulkan0: f16 -> q4_0, N/N layers, N MiB"
    )
    assert normalise("can't open C:\\models\\x.gguf") == "can't open PATH"


@given(st.lists(st.text()))
def test_any_text_is_read(lines: list[str]) -> None:
    log = scan(lines)
    assert sum(f.count for f in log.findings) <= len(lines)
    assert len(set(texts(log))) == len(log.warnings)


def test_every_pattern_has_its_own_code_and_meaning() -> None:
    assert len({p.code for p in PATTERNS}) == len(PATTERNS)
    assert all(p.means for p in PATTERNS)


def test_telling_lines_are_warnings_failures_and_known_patterns_in_order() -> None:
    lines = [
        "0.02.150.426 I slot launch_slot_: id  0 | task 2 | processing task, is_child = 0",
        "ggml_vulkan: Failed to allocate pinned memory (ErrorOutOfDeviceMemory)",
        "0.00.097.104 W srv          init: something to look at",
        "0.00.097.104 I srv  update_slots: forcing full prompt re-processing due to lack of cache",
        "0.00.097.104 W llama_context: n_ctx_seq (8192) < n_ctx_train (4194304)",
    ]
    assert telling(lines) == (lines[1], lines[2], lines[3])


def holder(name: str) -> LogFindings:
    return scan([f"load_tensors:  {name} model buffer size =   102.07 MiB"])


@pytest.mark.parametrize(
    "name",
    [
        *("CPU", "CPU_Mapped", "CPU_REPACK", "CPU_KLEIDIAI", "CPU_HBM", "CPU_AARCH64", "AMX"),
        *("Vulkan_Host", "CUDA_Host", "BLAS"),
    ],
)
def test_every_buffer_type_of_the_cpu_backend_is_host(name: str) -> None:
    assert holder(name).on_gpu is False
    assert holder(name).unknown_buffers == ()


@pytest.mark.parametrize("name", ["Vulkan0", "CUDA1", "ROCm0", "Metal", "MTL0", "SYCL0"])
def test_a_gpus_buffer_is_a_gpus_also_where_no_device_was_listed(name: str) -> None:
    assert holder(name).on_gpu is True


def test_an_unknown_buffer_is_said_to_be_unknown() -> None:
    found = holder("QUANTUM3")
    assert found.on_gpu is None
    assert found.unknown_buffers == ("QUANTUM3",)
