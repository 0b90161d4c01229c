"""Weights to GGUF: any architecture of the family, with the reference model's own tokenizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from training.export import LICENSE
from training.family.architectures import Architecture, shapes

Weights = Mapping[str, NDArray[np.float32]]
Precision = Literal["f16", "f32"]

_ALWAYS_F32 = ("ssm_conv1d.weight",)
"""llama.cpp's kernels take this operand in f32 only; vectors stay f32 as well."""

_COPIED: tuple[tuple[str, str], ...] = (
    ("tokenizer_model", "ggml.model"),
    ("tokenizer_pre", "ggml.pre"),
    ("token_list", "ggml.tokens"),
    ("token_types", "ggml.token_type"),
    ("token_merges", "ggml.merges"),
    ("bos_token_id", "ggml.bos_token_id"),
    ("eos_token_id", "ggml.eos_token_id"),
    ("pad_token_id", "ggml.padding_token_id"),
    ("add_bos_token", "ggml.add_bos_token"),
    ("add_eos_token", "ggml.add_eos_token"),
    ("add_space_prefix", "ggml.add_space_prefix"),
    ("chat_template", "chat_template"),
)
"""The writer's method for each field of a tokenizer."""


def export(
    a: Architecture,
    weights: Weights,
    path: Path,
    *,
    name: str,
    description: str,
    tokenizer: Path,
    precision: Precision = "f16",
) -> None:
    """Write the GGUF; `tokenizer` is the GGUF whose tokenizer it gets.

    Raises:
        ValueError: a tensor is missing, is too many, or has another shape.
    """
    _refuse_other_shapes(a, weights)
    w = gguf.GGUFWriter(str(path), a.kind)
    w.add_name(name)
    w.add_license(LICENSE)
    w.add_description(description)
    kind = gguf.LlamaFileType
    w.add_file_type(kind.MOSTLY_F16 if precision == "f16" else kind.ALL_F32)
    w.add_context_length(a.context_tokens)
    w.add_embedding_length(a.width)
    w.add_block_count(a.layers)
    w.add_feed_forward_length(a.feed_forward)
    w.add_head_count(a.heads)
    w.add_head_count_kv(a.kv_heads)
    w.add_key_length(a.head_size)
    w.add_value_length(a.head_size)
    if "rope.dimension_count" not in a.meta:
        w.add_rope_dimension_count(a.head_size)
    w.add_rope_freq_base(a.rope_base)
    w.add_layer_norm_rms_eps(a.epsilon)
    w.add_vocab_size(a.vocabulary)
    for key, value in a.meta.items():
        if isinstance(value, tuple):
            w.add_array(f"{a.kind}.{key}", list(value))
        elif isinstance(value, float):
            w.add_float32(f"{a.kind}.{key}", value)
        else:
            w.add_uint32(f"{a.kind}.{key}", value)
    fields = GGUFReader(str(tokenizer)).fields
    for method, key in _COPIED:
        getattr(w, f"add_{method}")(fields[f"tokenizer.{key}"].contents())
    for tensor, values in weights.items():
        stays = precision == "f32" or values.ndim == 1 or tensor.endswith(_ALWAYS_F32)
        w.add_tensor(tensor, np.ascontiguousarray(values, np.float32 if stays else np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _refuse_other_shapes(a: Architecture, weights: Weights) -> None:
    wanted = shapes(a)
    if odd := sorted(wanted.keys() ^ weights.keys()):
        raise ValueError(f"{a.kind}: {odd[0]} is missing or too many")
    for tensor, value in weights.items():
        if value.shape != wanted[tensor]:
            raise ValueError(f"{tensor} has shape {value.shape}, expected {wanted[tensor]}")


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of a GGUF as f32, rows first."""
    return {
        t.name: t.data.astype(np.float32).reshape([int(n) for n in t.shape[::-1]])
        for t in GGUFReader(str(path)).tensors
    }


def tokens_of(path: Path) -> list[str]:
    """The tokens of a GGUF, as its vocabulary spells them."""
    tokens: list[str] = GGUFReader(str(path)).fields["tokenizer.ggml.tokens"].contents()
    return tokens
