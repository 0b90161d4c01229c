"""Tiny GGUFs of random weights: architectures whose cache the reference model doesn't have.

They load and serve; what they say is noise. The tokenizer is the reference model's.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

import harness.models

REFERENCE = next(Path(harness.models.__file__).parent.glob("reference-f16.gguf"))
EMBEDDING, FEED_FORWARD, HEAD = 64, 128, 32
Shapes = dict[str, tuple[int, ...]]


def sliding(path: Path) -> Path:
    """Gemma 3: 12 layers, every sixth global, window 512, 4 heads over 2 KV heads."""
    shapes: Shapes = {"output_norm": (EMBEDDING,)}
    for i in range(12):
        shapes |= _attention(i, heads=4, kv_heads=2) | _feed_forward(i)
        shapes |= {
            f"blk.{i}.post_attention_norm": (EMBEDDING,),
            f"blk.{i}.post_ffw_norm": (EMBEDDING,),
        }
    keys = _keys("gemma3", blocks=12, heads=4, kv_heads=2)
    return _write(path, "gemma3", {**keys, "gemma3.attention.sliding_window": 512}, shapes)


def short_convolution(path: Path) -> Path:
    """LFM2: 6 layers, of which the third and the last have attention (2 KV heads)."""
    kv_heads = [0, 0, 2, 0, 0, 2]
    shapes: Shapes = {"token_embd_norm": (EMBEDDING,)}
    for i, count in enumerate(kv_heads):
        shapes |= _feed_forward(i)
        if count:
            shapes |= _attention(i, heads=2, kv_heads=count)
        else:
            shapes |= {
                f"blk.{i}.attn_norm": (EMBEDDING,),
                f"blk.{i}.shortconv.conv": (EMBEDDING, 3),
                f"blk.{i}.shortconv.in_proj": (3 * EMBEDDING, EMBEDDING),
                f"blk.{i}.shortconv.out_proj": (EMBEDDING, EMBEDDING),
            }
    keys = _keys("lfm2", blocks=6, heads=2, kv_heads=kv_heads)
    return _write(path, "lfm2", {**keys, "lfm2.shortconv.l_cache": 3}, shapes)


def delta_net(path: Path) -> Path:
    """Qwen 3.5: 8 layers, every fourth full attention, the others gated delta nets."""
    state, groups, inner_heads = 32, 2, 4
    inner = state * inner_heads
    shapes: Shapes = {"output_norm": (EMBEDDING,)}
    for i in range(8):
        shapes |= _feed_forward(i, norm="post_attention_norm")
        if (i + 1) % 4 == 0:
            attention = _attention(i, heads=4, kv_heads=2)
            attention[f"blk.{i}.attn_q"] = (2 * 4 * HEAD, EMBEDDING)  # with its gate
            shapes |= attention
            continue
        shapes |= {
            f"blk.{i}.attn_norm": (EMBEDDING,),
            f"blk.{i}.attn_qkv": (inner + 2 * groups * state, EMBEDDING),
            f"blk.{i}.attn_gate": (inner, EMBEDDING),
            f"blk.{i}.ssm_conv1d": (inner + 2 * groups * state, 4),
            f"blk.{i}.ssm_dt.bias": (inner_heads,),
            f"blk.{i}.ssm_a": (inner_heads,),
            f"blk.{i}.ssm_beta": (inner_heads, EMBEDDING),
            f"blk.{i}.ssm_alpha": (inner_heads, EMBEDDING),
            f"blk.{i}.ssm_norm": (state,),
            f"blk.{i}.ssm_out": (EMBEDDING, inner),
        }
    keys = {
        **_keys("qwen35", blocks=8, heads=4, kv_heads=2),
        "qwen35.full_attention_interval": 4,
        "qwen35.rope.dimension_sections": [4, 4, 4, 0],
        "qwen35.ssm.conv_kernel": 4,
        "qwen35.ssm.inner_size": inner,
        "qwen35.ssm.state_size": state,
        "qwen35.ssm.group_count": groups,
        "qwen35.ssm.time_step_rank": inner_heads,
    }
    return _write(path, "qwen35", keys, shapes)


def _attention(i: int, heads: int, kv_heads: int) -> Shapes:
    return {
        f"blk.{i}.attn_norm": (EMBEDDING,),
        f"blk.{i}.attn_q": (heads * HEAD, EMBEDDING),
        f"blk.{i}.attn_k": (kv_heads * HEAD, EMBEDDING),
        f"blk.{i}.attn_v": (kv_heads * HEAD, EMBEDDING),
        f"blk.{i}.attn_output": (EMBEDDING, heads * HEAD),
        f"blk.{i}.attn_q_norm": (HEAD,),
        f"blk.{i}.attn_k_norm": (HEAD,),
    }


def _feed_forward(i: int, norm: str = "ffn_norm") -> Shapes:
    return {
        f"blk.{i}.{norm}": (EMBEDDING,),
        f"blk.{i}.ffn_gate": (FEED_FORWARD, EMBEDDING),
        f"blk.{i}.ffn_up": (FEED_FORWARD, EMBEDDING),
        f"blk.{i}.ffn_down": (EMBEDDING, FEED_FORWARD),
    }


def _keys(architecture: str, blocks: int, heads: int, kv_heads: int | list[int]) -> dict[str, Any]:
    values = {
        "context_length": 131_072,
        "embedding_length": EMBEDDING,
        "block_count": blocks,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": HEAD,
        "rope.freq_base": 10_000.0,
    }
    return {f"{architecture}.{key}": value for key, value in values.items()}


def _write(path: Path, architecture: str, keys: dict[str, Any], shapes: Shapes) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
    for key, value in keys.items():
        add[type(value)](key, value)
    tokenizer = gguf.GGUFReader(REFERENCE).fields
    for key, field in tokenizer.items():
        if key.startswith("tokenizer."):
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type)
    vocabulary = len(tokenizer["tokenizer.ggml.tokens"].data)
    random = np.random.default_rng(0)
    for name, shape in {"token_embd": (vocabulary, EMBEDDING), **shapes}.items():
        data = random.normal(0, 0.02, shape).astype(np.float32)
        suffix = "" if name.endswith((".bias", "ssm_a")) else ".weight"
        writer.add_tensor(name + suffix, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
