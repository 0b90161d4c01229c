"""Single buffers against a device's limit: a published 4M run's refusals, llama.cpp's own log."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.llamacpp import buffers
from harness.llamacpp.buffers import BufferCheck
from harness.llamacpp.kv import BLOCK_BYTES, GIB, MIB, CacheSettings

QWEN35_2B: dict[str, Any] = {
    "general.architecture": "qwen35",
    "qwen35.block_count": 24,
    "qwen35.embedding_length": 2048,
    "qwen35.attention.head_count": 8,
    "qwen35.attention.head_count_kv": 2,
    "qwen35.attention.key_length": 256,
    "qwen35.attention.value_length": 256,
    "qwen35.ssm.state_size": 128,
    "qwen35.ssm.inner_size": 2048,
}
REFERENCE: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.key_length": 64,
    "llama.attention.value_length": 64,
}
LIMIT = 2 * GIB


def check_buffers(
    metadata: Mapping[str, Any], ctx: int, limit_bytes: int, **settings: Any
) -> BufferCheck:
    return buffers.check_buffers(metadata, ctx, limit_bytes, CacheSettings(**settings))


def sizes(check: BufferCheck) -> dict[str, int]:
    return {buffer.kind: buffer.total_bytes for buffer in check.buffers}


def over(check: BufferCheck) -> set[str]:
    return {buffer.kind for buffer in check.over}


def qwen35_2b(ctx: int, cache_type: str, n_ubatch: int) -> BufferCheck:
    return check_buffers(
        QWEN35_2B, ctx, LIMIT, type_k=cache_type, type_v=cache_type, n_ubatch=n_ubatch
    )


def test_the_4m_reports_cliff_the_mask_of_ubatch_1024_at_1m() -> None:
    check = qwen35_2b(1_048_576, "q8_0", 1024)
    assert sizes(check)["KQ mask"] == 2 * GIB
    assert "KQ mask" in over(check)  # exactly the limit is refused too
    assert check.fitting_ubatch == 512


def test_the_4m_reports_refused_scratch_to_the_byte() -> None:
    check = qwen35_2b(1_049_088, "q8_0", 512)
    assert sizes(check)["K+V scratch"] == 2_148_532_224
    assert over(check) == {"K+V scratch"}
    assert check.fitting_ctx_tokens == 1_048_576 - 256


@pytest.mark.parametrize(
    ("cache_type", "n_ubatch", "refused"),
    [
        ("q8_0", 512, {"KQ mask", "K+V scratch", "K cache of a layer"}),
        ("q8_0", 256, {"KQ mask", "K+V scratch", "K cache of a layer"}),
        ("q4_0", 512, {"KQ mask", "K+V scratch"}),
        ("q4_0", 256, {"KQ mask", "K+V scratch"}),
        ("q4_0", 128, {"K+V scratch"}),
    ],
)
def test_the_4m_reports_4m_settings(cache_type: str, n_ubatch: int, refused: set[str]) -> None:
    check = qwen35_2b(4_194_304, cache_type, n_ubatch)
    assert over(check) == refused
    assert sizes(check)["KQ mask"] == n_ubatch * 8 * MIB
    assert sizes(check)["K+V scratch"] == 8 * GIB
    assert check.fitting_ubatch == (128 if n_ubatch > 128 else None)
    assert check.fitting_types == ()  # why that run needed a patched llama.cpp
    assert [b.total_bytes for b in check.buffers] == sorted(
        (b.total_bytes for b in check.buffers), reverse=True
    )


def test_a_cache_type_that_would_fit_is_named() -> None:
    check = check_buffers(QWEN35_2B, 1_048_576, LIMIT, type_k="q8_0", type_v="q8_0")
    assert over(check) == {"K+V scratch"}
    assert check.fitting_types == ("f16",)  # unquantised: no scratch, 1 GiB of K a layer


def test_without_flash_attention_no_quantised_type_is_proposed() -> None:
    check = check_buffers(
        QWEN35_2B, 1_048_576, LIMIT, type_k="f32", type_v="f32", flash_attention=False
    )
    assert "K cache of a layer" in over(check)
    assert check.fitting_types == ("f16",)


@pytest.mark.parametrize(("n_ubatch", "refused"), [(2048, True), (1024, True), (512, False)])
def test_llvmpipes_pinned_memory_at_1m_as_seen(n_ubatch: int, refused: bool) -> None:
    check = check_buffers(REFERENCE, 1_048_576, LIMIT, n_ubatch=n_ubatch)
    assert ("KQ mask" in over(check)) is refused


@pytest.mark.parametrize(
    ("ctx", "n_ubatch", "logged_mib"),
    [(65_536, 512, 68.76), (131_072, 512, 132.76), (65_536, 1024, 137.52), (131_072, 1024, 265.52)],
)
def test_the_mask_is_what_the_logged_compute_buffer_grows_by(
    ctx: int, n_ubatch: int, logged_mib: float
) -> None:
    mask = sizes(check_buffers(REFERENCE, ctx, LIMIT, n_ubatch=n_ubatch))["KQ mask"] / MIB
    assert 0 < logged_mib - mask < 0.01 * n_ubatch  # the rest grows with the ubatch alone


def test_without_flash_attention_scores_and_an_f32_mask() -> None:
    check = check_buffers(REFERENCE, 65_536, LIMIT, flash_attention=False)
    assert sizes(check)["KQ mask"] == 128 * MIB
    assert sizes(check)["KQ scores"] == 256 * MIB
    assert 0 < 386.76 - (128 + 256) < 3  # logged compute buffer, MiB


def test_slots_divide_the_cells_unless_unified() -> None:
    split = check_buffers(REFERENCE, 65_536, LIMIT, n_parallel=4)
    assert sizes(split)["KQ mask"] == 16 * MIB
    unified = check_buffers(REFERENCE, 65_536, LIMIT, n_parallel=4, kv_unified=True)
    assert sizes(unified)["KQ mask"] == 64 * MIB


def test_consequences_and_unknown_models_are_told() -> None:
    check = qwen35_2b(4_194_304, "q4_0", 512)
    assert all(buffer.consequence and buffer.how for buffer in check.over)
    blank = check_buffers({"general.architecture": "x"}, 4096, LIMIT)
    assert blank.buffers == ()
    assert "block_count" in blank.could_not_derive[0]


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown cache type"):
        check_buffers(REFERENCE, 4096, LIMIT, type_k="q3_0")
    with pytest.raises(ValueError, match="positive"):
        check_buffers(REFERENCE, 4096, 0)


@given(
    ctx=st.integers(1, 2**23),
    limit=st.integers(2**20, 2**33),
    n_ubatch=st.sampled_from([32, 100, 256, 512, 2048]),
    cache_type=st.sampled_from(list(BLOCK_BYTES)),
    flash=st.booleans(),
)
def test_what_is_said_to_fit_fits(
    ctx: int, limit: int, n_ubatch: int, cache_type: str, flash: bool
) -> None:
    def check(ctx: int, n_ubatch: int, cache_type: str) -> BufferCheck:
        return check_buffers(
            QWEN35_2B,
            ctx,
            limit,
            type_k=cache_type,
            type_v=cache_type,
            n_ubatch=n_ubatch,
            flash_attention=flash,
        )

    asked = check(ctx, n_ubatch, cache_type)
    scores = {"KQ mask", "KQ scores"}
    if asked.fitting_ubatch:
        assert over(asked) & scores
        assert not over(check(ctx, asked.fitting_ubatch, cache_type)) & scores
        if asked.fitting_ubatch * 2 < n_ubatch:
            assert over(check(ctx, asked.fitting_ubatch * 2, cache_type)) & scores
    for name in asked.fitting_types:
        assert over(check(ctx, n_ubatch, name)) <= scores
    if asked.fitting_ctx_tokens:
        assert not over(check(asked.fitting_ctx_tokens, n_ubatch, cache_type))
        if asked.over:
            assert over(check(asked.fitting_ctx_tokens + 256, n_ubatch, cache_type))
