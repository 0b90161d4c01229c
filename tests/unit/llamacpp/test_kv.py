"""KV theory: published figures, files written here, and the laws that any cache must obey."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.llamacpp import kv
from harness.llamacpp.flags import cache_settings
from harness.llamacpp.kv import BLOCK_BYTES, GIB, MIB, CacheSettings, KvTheory, excess
from harness.llamacpp.layers import model_layers
from harness.llamacpp.log import scan
from harness.serving.gguf_file import read_gguf

LOGS = Path(__file__).parents[2] / "data" / "logs"


def kv_theory(
    metadata: dict[str, Any], ctx: int, type_k: str = "f16", type_v: str = "f16", **more: Any
) -> KvTheory:
    return kv.kv_theory(metadata, ctx, CacheSettings(type_k, type_v, **more))


def model(architecture: str, **keys: Any) -> dict[str, Any]:
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()},
    }


QWEN36_35B = model(  # Qwen3.6-35B-A3B with its MTP layer
    "qwen35moe",
    block_count=41,
    nextn_predict_layers=1,
    embedding_length=2048,
    full_attention_interval=4,
    attention__head_count=16,
    attention__head_count_kv=2,
    attention__key_length=256,
    attention__value_length=256,
    ssm__state_size=128,
    ssm__inner_size=4096,
    ssm__group_count=16,
    ssm__conv_kernel=4,
)
QWEN35_2B = model(  # Qwen3.5-2B
    "qwen35",
    block_count=24,
    embedding_length=2048,
    full_attention_interval=4,
    attention__head_count=8,
    attention__head_count_kv=2,
    attention__key_length=256,
    attention__value_length=256,
    ssm__state_size=128,
    ssm__inner_size=2048,
    ssm__group_count=16,
    ssm__conv_kernel=4,
)
LLAMA = model(
    "llama",
    block_count=32,
    embedding_length=4096,
    attention__head_count=32,
    attention__head_count_kv=8,
)
GEMMA3 = model(
    "gemma3",
    block_count=26,
    embedding_length=1152,
    attention__head_count=4,
    attention__head_count_kv=1,
    attention__key_length=256,
    attention__value_length=256,
    attention__sliding_window=512,
)
LFM2 = model(
    "lfm2",
    block_count=6,
    embedding_length=1024,
    attention__head_count=16,
    attention__head_count_kv=(0, 0, 8, 0, 0, 8),
    shortconv__l_cache=3,
)
DEEPSEEK = model(
    "deepseek2",
    block_count=61,
    embedding_length=7168,
    attention__head_count=128,
    attention__head_count_kv=1,
    attention__key_length=576,
    attention__value_length=512,
    attention__key_length_mla=192,
    attention__value_length_mla=128,
)


def total(metadata: dict[str, Any], ctx: int, *types: str, **options: Any) -> int:
    size = kv_theory(metadata, ctx, *types, **options).total_bytes
    assert size is not None
    return size


def test_the_35b_model_keeps_20480_bytes_a_token_not_81920() -> None:
    theory = kv_theory(QWEN36_35B, 131_072)
    assert theory.bytes_per_token == 20_480
    dense = {k: v for k, v in QWEN36_35B.items() if "ssm" not in k and "interval" not in k}
    dense["general.architecture"] = "plain"
    dense = {k.replace("qwen35moe.", "plain."): v for k, v in dense.items()}
    assert kv_theory(dense, 131_072).bytes_per_token == 81_920


@pytest.mark.parametrize(("ctx", "gib"), [(131_072, 2.5), (262_144, 5.0)])
def test_the_35b_reports_sizes_in_gib_not_in_gb(ctx: int, gib: float) -> None:
    theory = kv_theory(QWEN36_35B, ctx)
    full = theory.parts[0].total_bytes
    assert full / GIB == gib
    assert full / 1e9 == pytest.approx(gib * 1.0737, rel=1e-3)


def test_the_35b_reports_q8_0_saving_at_128k() -> None:
    saving = total(QWEN36_35B, 131_072) - total(QWEN36_35B, 131_072, "q8_0", "q8_0")
    assert saving / GIB == pytest.approx(1.14, rel=0.03)  # measured


def test_the_35b_reports_mtp_layer_is_the_excess_of_two_kilobytes_a_token() -> None:
    quantised = kv_theory(QWEN36_35B, 131_072, "q8_0", "q8_0", speculative_mtp=True)
    assert quantised.mtp is not None
    assert (quantised.mtp.layers, quantised.mtp.bytes_per_token) == (1, 2048)
    assert quantised.bytes_per_token == 10_880 + 2048
    without = kv_theory(QWEN36_35B, 131_072, "q8_0", "q8_0")
    assert without.mtp == quantised.mtp
    assert without.bytes_per_token == 10_880


def test_a_speculating_servers_log_mtp_cache_in_f16_and_states_to_roll_back() -> None:
    tiny = model(  # Qwen 3.5 of random weights, 8 blocks and an MTP layer; cache types q8_0
        "qwen35",
        block_count=9,
        nextn_predict_layers=1,
        embedding_length=64,
        full_attention_interval=4,
        attention__head_count=4,
        attention__head_count_kv=2,
        attention__key_length=32,
        attention__value_length=32,
        ssm__state_size=32,
        ssm__inner_size=128,
        ssm__group_count=2,
        ssm__conv_kernel=4,
    )
    log = scan((LOGS / "b10434_mtp_v4.log").read_text(encoding="utf-8").splitlines())
    argv = ["-ctk", "q8_0", "-ctv", "q8_0", "--spec-type", "draft-mtp"]
    asked = cache_settings(argv)
    assert asked.n_rs_seq == log.settings["n_rs_seq"]  # by default
    theory = kv.kv_theory(tiny, 16_384, asked)
    sizes = {part.kind: part.total_bytes for part in theory.parts}
    assert sizes["full attention"] + sizes["MTP"] == log.total_bytes("KV")
    assert sizes["recurrent state"] == pytest.approx(log.total_bytes("RS"), abs=0.005 * MIB)


@pytest.mark.parametrize(
    ("ctx", "cache_type", "mib"),
    [
        (32_768, "q8_0", 223),
        (262_144, "q8_0", 1_651),
        (262_144, "q4_0", 883),
        (524_288, "q4_0", 1_747),
        (1_048_576, "q4_0", 3_475),
        (1_572_864, "q4_0", 5_203),
        (2_097_152, "q4_0", 6_931),
        (4_194_304, "q4_0", 13_843),
    ],
)
def test_the_4m_reports_logged_context_sizes_to_the_mib(
    ctx: int, cache_type: str, mib: int
) -> None:
    assert total(QWEN35_2B, ctx, cache_type, cache_type) // MIB == mib


def test_full_attention_with_key_length_from_the_embedding() -> None:
    theory = kv_theory(LLAMA, 8192)
    assert theory.bytes_per_token == 32 * 8 * 128 * 2 * 2
    assert (theory.fixed_bytes, theory.could_not_derive) == (0, ())


def test_k_and_v_types_count_apart() -> None:
    both = kv_theory(LLAMA, 8192, "q8_0", "q4_0").bytes_per_token
    assert both == 32 * (8 * 128 * 34 // 32 + 8 * 128 * 18 // 32)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("f32", 32),
        ("f16", 16),
        ("bf16", 16),
        ("q8_0", 8.5),
        ("q5_1", 6),
        ("q5_0", 5.5),
        ("q4_1", 5),
        ("q4_0", 4.5),
        ("iq4_nl", 4.5),
    ],
)
def test_bits_of_every_cache_type(name: str, bits: float) -> None:
    assert kv_theory(LLAMA, 256, name, name).bytes_per_token == 32 * 2 * 1024 * bits / 8
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    assert BLOCK_BYTES[name] == (block, size)


def test_heads_per_layer() -> None:
    varied = {**LLAMA, "llama.attention.head_count_kv": (8, 4, 0, 2) * 8}
    theory = kv_theory(varied, 4096)
    assert theory.bytes_per_token == 8 * (8 + 4 + 2) * 128 * 2 * 2
    assert theory.parts[0].layers == 24


def test_sliding_windows_stop_growing() -> None:
    theory = kv_theory(GEMMA3, 32_768)
    row = 256 * 2 * 2
    assert theory.bytes_per_token == 4 * row  # every sixth of 26 layers is global
    assert theory.fixed_bytes == 22 * row * 1024  # window 512 + ubatch 512
    assert kv_theory(GEMMA3, 65_536).fixed_bytes == theory.fixed_bytes
    assert kv_theory(GEMMA3, 32_768, n_ubatch=2048).fixed_bytes == 22 * row * 2560
    assert kv_theory(GEMMA3, 512).total_bytes == 26 * row * 512
    assert kv_theory(GEMMA3, 32_768, swa_full=True).total_bytes == 26 * row * 32_768


def test_a_window_pattern_in_the_file_is_followed() -> None:
    named = {**GEMMA3, "gemma3.attention.sliding_window_pattern": (True,) * 25 + (False,)}
    assert kv_theory(named, 32_768).parts[0].layers == 1
    period = {**GEMMA3, "gemma3.attention.sliding_window_pattern": 2}
    assert kv_theory(period, 32_768).parts[0].layers == 13


def test_dense_layer_first_in_the_pattern() -> None:
    first = model(
        "smallthinker",
        block_count=8,
        attention__head_count=4,
        attention__key_length=64,
        attention__value_length=64,
        attention__sliding_window=4096,
    )
    kinds = [layer.cache for layer in model_layers(first).layers]
    assert kinds == ["full", "sliding", "sliding", "sliding"] * 2


def test_windows_that_llama_cpp_ignores_are_ignored() -> None:
    mistral = {**LLAMA, "llama.attention.sliding_window": 4096}
    assert kv_theory(mistral, 8192) == kv_theory(LLAMA, 8192)


def test_other_head_sizes_and_shared_caches_of_gemma4() -> None:
    gemma4 = model(
        "gemma4",
        block_count=12,
        attention__shared_kv_layers=4,
        attention__head_count=8,
        attention__head_count_kv=2,
        attention__key_length=512,
        attention__value_length=512,
        attention__key_length_swa=256,
        attention__value_length_swa=256,
        attention__sliding_window=1024,
        attention__sliding_window_pattern=(True, True, True, False) * 3,
    )
    theory = kv_theory(gemma4, 65_536)
    assert theory.bytes_per_token == 2 * 2 * (512 + 512) * 2
    assert theory.fixed_bytes == 6 * 2 * (256 + 256) * 2 * (1024 + 512)


def test_short_convolutions_keep_a_state_and_no_kv() -> None:
    theory = kv_theory(LFM2, 4096)
    assert theory.bytes_per_token == 2 * 8 * 64 * 2 * 2
    assert theory.fixed_bytes == 4 * 1024 * 2 * 4
    assert [part.kind for part in theory.parts] == ["full attention", "recurrent state"]


def test_every_fourth_layer_counts_from_the_first() -> None:
    six = {**QWEN35_2B, "qwen35.block_count": 6}
    assert [layer.cache for layer in model_layers(six).layers] == [None, None, None, "full"] + [
        None
    ] * 2
    named = {**six, "qwen35.attention.recurrent_layers": (True, False) * 3}
    assert [layer.cache for layer in model_layers(named).layers] == [None, "full"] * 3


def test_states_are_per_slot_and_f32_whatever_the_kv_types() -> None:
    one = kv_theory(LFM2, 4096, "q4_0", "q4_0").fixed_bytes
    assert one == kv_theory(LFM2, 4096).fixed_bytes
    assert kv_theory(LFM2, 4096, n_parallel=4).fixed_bytes == 4 * (one or 0)


def test_attention_free_models_keep_only_states() -> None:
    mamba = model(
        "mamba",
        block_count=4,
        embedding_length=768,
        ssm__state_size=16,
        ssm__inner_size=1536,
        ssm__conv_kernel=4,
    )
    theory = kv_theory(mamba, 100_000)
    assert (theory.bytes_per_token, theory.fixed_bytes) == (0, 4 * (3 * 1536 + 16 * 1536) * 4)


def test_mla_caches_the_compressed_k_alone() -> None:
    assert kv_theory(DEEPSEEK, 4096).bytes_per_token == 61 * 576 * 2
    without = {k: v for k, v in DEEPSEEK.items() if not k.endswith("_mla")}
    assert kv_theory(without, 4096).bytes_per_token == 61 * (576 + 512) * 2


def test_falcon_h1_has_both_in_every_layer() -> None:
    both = model(
        "falcon-h1",
        block_count=2,
        embedding_length=1024,
        attention__head_count=8,
        attention__head_count_kv=2,
        attention__key_length=64,
        attention__value_length=64,
        ssm__state_size=128,
        ssm__inner_size=1536,
        ssm__group_count=1,
        ssm__conv_kernel=4,
    )
    theory = kv_theory(both, 1024)
    assert theory.bytes_per_token == 2 * 2 * 128 * 2
    assert theory.fixed_bytes == 2 * (3 * (1536 + 2 * 128) + 128 * 1536) * 4


def test_what_cannot_be_derived_is_said() -> None:
    assert "block_count" in kv_theory({"general.architecture": "x"}, 512).could_not_derive[0]
    assert kv_theory({}, 512).total_bytes is None

    headless = {k: v for k, v in LLAMA.items() if "head_count" not in k}
    theory = kv_theory(headless, 512)
    assert theory.total_bytes is None
    assert any("attention.head_count_kv" in note for note in theory.could_not_derive)

    unknown = {k.replace("llama", "newarch"): v for k, v in LLAMA.items()}
    unknown["general.architecture"] = "newarch"
    unknown["newarch.attention.sliding_window"] = 1024
    theory = kv_theory(unknown, 512)
    assert theory.bytes_per_token == kv_theory(LLAMA, 512).bytes_per_token
    notes = " ".join(theory.could_not_derive)
    assert "newarch is not known" in notes
    assert "1024-token sliding window" in notes


def test_slots_share_or_split_the_context() -> None:
    assert kv_theory(LLAMA, 10_000, n_parallel=3).cells == 3 * 3_584
    assert kv_theory(LLAMA, 10_000, n_parallel=3, kv_unified=True).cells == 10_240


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown cache type 'q3_0'"):
        kv_theory(LLAMA, 4096, "q3_0")
    with pytest.raises(ValueError, match="must be positive"):
        kv_theory(LLAMA, 0)


def test_excess_is_split_into_a_constant_and_a_part_per_token() -> None:
    measured = [
        (ctx, total(QWEN36_35B, ctx) + 2048 * ctx + 64 * MIB, total(QWEN36_35B, ctx))
        for ctx in (32_768, 65_536, 131_072)
    ]
    found = excess(measured)
    assert found is not None
    assert found.bytes_per_token == pytest.approx(2048)
    assert found.constant_bytes == pytest.approx(64 * MIB)
    assert excess(measured[:1] * 2) is None


@given(
    metadata=st.sampled_from([QWEN36_35B, QWEN35_2B, LLAMA, GEMMA3, LFM2, DEEPSEEK]),
    ctx=st.integers(1, 300_000),
    more=st.integers(0, 300_000),
    type_k=st.sampled_from(list(BLOCK_BYTES)),
    type_v=st.sampled_from(list(BLOCK_BYTES)),
    slots=st.integers(1, 4),
)
def test_laws_of_any_cache(
    metadata: dict[str, Any], ctx: int, more: int, type_k: str, type_v: str, slots: int
) -> None:
    theory = kv_theory(metadata, ctx, type_k, type_v, n_parallel=slots)
    assert theory.total_bytes == sum(part.total_bytes for part in theory.parts)
    assert theory.total_bytes == (theory.bytes_per_token or 0) * theory.cells + (
        theory.fixed_bytes or 0
    )
    assert ctx <= theory.cells < ctx + slots * 257
    assert total(metadata, ctx + more, type_k, type_v, n_parallel=slots) >= theory.total_bytes
    assert total(metadata, ctx, "f32", "f32", n_parallel=slots) >= theory.total_bytes


def write(path: Path, metadata: dict[str, Any]) -> Path:
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if isinstance(value, tuple):
            writer.add_array(key, list(value))
        elif not isinstance(value, str):
            writer.add_uint32(key, value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("metadata", [GEMMA3, LFM2, QWEN36_35B], ids=["sliding", "hybrid", "mtp"])
def test_through_a_file(tmp_path: Path, metadata: dict[str, Any]) -> None:
    info = read_gguf(write(tmp_path / "m.gguf", metadata))
    assert kv_theory(info.metadata, 32_768) == kv_theory(metadata, 32_768)
    assert kv_theory(info.metadata, 32_768).total_bytes
