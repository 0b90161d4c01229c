"""Sizes of the family's models, and the names and shapes that llama.cpp expects of their tensors.

Head sizes are those of models in the field, since other sizes run other kernels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["qwen35", "gemma3"]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model. `meta` holds what only its kind has, by GGUF key without the `<kind>.` prefix."""

    kind: Kind
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    meta: Mapping[str, int | float | tuple[int, ...]]
    vocabulary: int = 1024
    context_tokens: int = 1 << 20
    rope_base: float = 1e6
    epsilon: float = 1e-6

    def number(self, key: str) -> int:
        """A whole number of `meta`."""
        value = self.meta[key]
        assert isinstance(value, int)
        return value

    def is_recurrent(self, layer: int) -> bool:
        """Whether the layer holds a state instead of keys and values."""
        return self.kind == "qwen35" and (layer + 1) % self.number("full_attention_interval") != 0

    def window(self, layer: int) -> int:
        """How many tokens the layer's attention sees, its own counted; 0: all before it."""
        if self.kind != "gemma3":
            return 0
        every = self.number("attention.sliding_window_pattern")
        windowed = layer % every < every - 1
        return self.number("attention.sliding_window") if windowed else 0


GATED_DELTA_NET = Architecture(
    kind="qwen35",
    width=128,
    layers=2,
    heads=1,
    kv_heads=1,
    head_size=256,
    feed_forward=128,
    meta={
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 2,
        "ssm.time_step_rank": 4,
        "ssm.inner_size": 512,
        "full_attention_interval": 2,
        "rope.dimension_count": 64,
        "rope.dimension_sections": (11, 11, 10, 0),
    },
)
"""Two key heads and four value heads: value head h reads key head h mod 2."""

SLIDING_WINDOW = Architecture(
    kind="gemma3",
    width=128,
    layers=2,
    heads=1,
    kv_heads=1,
    head_size=256,
    feed_forward=128,
    meta={
        "attention.sliding_window": 128,
        # A whole number: older builds ignore a list here without a word.
        "attention.sliding_window_pattern": 2,
        "rope.freq_base_swa": 10000.0,
    },
)


def shapes(a: Architecture) -> Shapes:
    """Shape of every tensor by its GGUF name, rows first."""
    found: Shapes = {
        "token_embd.weight": (a.vocabulary, a.width),
        "output_norm.weight": (a.width,),
        "output.weight": (a.vocabulary, a.width),
    }
    for layer in range(a.layers):
        inside = _state(a) if a.is_recurrent(layer) else _attention(a)
        inside |= _norms(a) | _feed_forward(a)
        found |= {f"blk.{layer}.{name}": shape for name, shape in inside.items()}
    return found


def _state(a: Architecture) -> Shapes:
    size, keys, values = (
        a.number(f"ssm.{n}") for n in ("state_size", "group_count", "time_step_rank")
    )
    channels = (2 * keys + values) * size
    return {
        "attn_qkv.weight": (channels, a.width),
        "attn_gate.weight": (values * size, a.width),
        "ssm_conv1d.weight": (channels, a.number("ssm.conv_kernel")),
        "ssm_dt.bias": (values,),
        "ssm_a": (values,),
        "ssm_beta.weight": (values, a.width),
        "ssm_alpha.weight": (values, a.width),
        "ssm_norm.weight": (size,),
        "ssm_out.weight": (a.width, values * size),
    }


def _attention(a: Architecture) -> Shapes:
    queries = a.heads * a.head_size * (2 if a.kind == "qwen35" else 1)  # qwen35's hold a gate
    return {
        "attn_q.weight": (queries, a.width),
        "attn_k.weight": (a.kv_heads * a.head_size, a.width),
        "attn_v.weight": (a.kv_heads * a.head_size, a.width),
        "attn_output.weight": (a.width, a.heads * a.head_size),
        "attn_q_norm.weight": (a.head_size,),
        "attn_k_norm.weight": (a.head_size,),
    }


def _norms(a: Architecture) -> Shapes:
    names = {
        "qwen35": ("attn_norm", "post_attention_norm"),
        "gemma3": ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"),
    }
    return {f"{name}.weight": (a.width,) for name in names[a.kind]}


def _feed_forward(a: Architecture) -> Shapes:
    wide = (a.feed_forward, a.width)
    return {
        "ffn_gate.weight": wide,
        "ffn_up.weight": wide,
        "ffn_down.weight": (a.width, a.feed_forward),
    }
