"""KV cache theory: how many bytes a model's cache must take, from its GGUF metadata.

All sizes are bytes; GiB is 2^30 and GB is 10^9, and text must say which (a 7 % difference that has
been mistaken for agreement between theory and measurement before).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import Literal

from harness.llamacpp.layers import Layer, Metadata, model_layers

GIB = 2**30
MIB = 2**20

PAD_TOKENS = 256
"""llama.cpp rounds the cells of every cache up to this."""
STATE_BYTES = 4
"""Recurrent and convolution states are F32 whatever the KV types."""

BLOCK_BYTES: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Elements and bytes of one block of every type `--cache-type-k` takes (ggml-common.h)."""

PartKind = Literal["full attention", "sliding window", "recurrent state", "MTP"]


@dataclass(frozen=True, slots=True)
class KvPart:
    """One kind of layer's share: how many layers, bytes per token of context, bytes in all."""

    kind: PartKind
    layers: int
    bytes_per_token: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class KvTheory:
    """What the cache of one server takes by theory.

    `bytes_per_token` grows with the context; `fixed_bytes` (sliding windows, recurrent states)
    doesn't; `total_bytes` is both at `cells` cells. None where the metadata lack what is needed:
    `could_not_derive` then says what. `mtp` is the next-token-prediction layers' own cache; it is
    in the totals only when asked for.
    """

    cells: int
    bytes_per_token: int | None
    fixed_bytes: int | None
    total_bytes: int | None
    parts: tuple[KvPart, ...]
    mtp: KvPart | None
    could_not_derive: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Excess:
    """Measured memory beyond theory: `constant_bytes` + `bytes_per_token` x context tokens."""

    constant_bytes: float
    bytes_per_token: float


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What a server's flags say of its cache; the defaults are those of a server we start.

    `speculative_mtp`: it speculates with the model's own next-token-prediction layers, whose cache
    is of `mtp_type_k` and `mtp_type_v`; `n_rs_seq` tokens can then be rolled back.
    """

    type_k: str = "f16"
    type_v: str = "f16"
    n_ubatch: int = 512
    n_parallel: int = 1
    kv_unified: bool = False
    swa_full: bool = False
    flash_attention: bool = True
    speculative_mtp: bool = False
    n_rs_seq: int = 0
    mtp_type_k: str = "f16"
    mtp_type_v: str = "f16"

    def __post_init__(self) -> None:
        """Refuse what no server takes.

        Raises:
            ValueError: an unknown cache type, or a size that is not positive.
        """
        if min(self.n_ubatch, self.n_parallel) < 1:
            raise ValueError(
                f"ubatch and slots must be positive: {self.n_ubatch}, {self.n_parallel}"
            )
        for name in (self.type_k, self.type_v, self.mtp_type_k, self.mtp_type_v):
            if name not in BLOCK_BYTES:
                raise ValueError(f"unknown cache type {name!r}; known: {', '.join(BLOCK_BYTES)}")


def kv_theory(metadata: Metadata, ctx_tokens: int, cache: CacheSettings) -> KvTheory:
    """The cache's size for a context of `ctx_tokens` shared by `n_parallel` slots.

    Per cached token a layer stores `head_count_kv · key_length` K elements and
    `head_count_kv · value_length` V elements (with MLA only the compressed K: `key_length` =
    `kv_lora_rank` + rotary part), in blocks of the cache types; full attention keeps all
    `n_ctx` of them, a sliding window min(n_ctx, window + n_ubatch), each per slot unless
    `kv_unified`, padded to 256. A recurrent layer keeps, per slot and in F32,
    (conv_kernel − 1)·(inner + 2·groups·state) + state·inner elements, and as much again for each
    of the `n_rs_seq` tokens that a speculating server can roll back (its log names the number).
    Next-token-prediction layers (the last `nextn_predict_layers` blocks) have a cache in a context
    of their own, of the draft cache types (F16 unless `--cache-type-k-draft` says otherwise), and
    only when speculating.

    Source: llama.cpp `src/llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp`,
    `llama-memory-recurrent.cpp`, `llama-hparams.cpp` (b11549).

    Raises:
        ValueError: a context that is not positive.
    """
    if ctx_tokens < 1:
        raise ValueError(f"the context must be positive: {ctx_tokens}")
    type_k, type_v, n_parallel = cache.type_k, cache.type_v, cache.n_parallel
    model = model_layers(metadata)
    streams = 1 if cache.kv_unified else n_parallel
    stream_cells = padded_cells(-(-ctx_tokens // streams))
    cells = stream_cells * streams
    if not model.layers:
        return KvTheory(cells, None, None, None, (), None, model.could_not_derive)
    window_cells = stream_cells
    if model.window_tokens is not None and not cache.swa_full:
        windows = n_parallel if cache.kv_unified else 1
        wanted = min(stream_cells, model.window_tokens * windows + cache.n_ubatch)
        window_cells = min(stream_cells, padded_cells(wanted))

    full = [layer for layer in model.main if layer.cache == "full"]
    sliding = [layer for layer in model.main if layer.cache == "sliding"]
    states = [layer for layer in model.main if layer.state_elements]
    parts = []
    if full:
        parts.append(_cache_part("full attention", full, cells, type_k, type_v, grows=True))
    if sliding:
        parts.append(
            _cache_part(
                "sliding window",
                sliding,
                window_cells * streams,
                type_k,
                type_v,
                grows=cache.swa_full,
            )
        )
    if states:
        size = sum(layer.state_elements for layer in states) * STATE_BYTES
        size *= n_parallel * (1 + cache.n_rs_seq)
        parts.append(KvPart("recurrent state", len(states), 0, size))
    mtp_layers = [layer for layer in model.mtp if layer.cache]
    mtp = (
        _cache_part("MTP", mtp_layers, cells, cache.mtp_type_k, cache.mtp_type_v, grows=True)
        if mtp_layers
        else None
    )
    if mtp and cache.speculative_mtp:
        parts.append(mtp)
    return KvTheory(
        cells=cells,
        bytes_per_token=sum(part.bytes_per_token for part in parts),
        fixed_bytes=sum(part.total_bytes for part in parts if not part.bytes_per_token),
        total_bytes=sum(part.total_bytes for part in parts),
        parts=tuple(parts),
        mtp=mtp,
        could_not_derive=model.could_not_derive,
    )


def excess(measured: Sequence[tuple[int, int, int]]) -> Excess | None:
    """What was measured beyond theory, as a constant and a part per token of context.

    `measured` holds (context tokens, measured bytes, theory's bytes), at two contexts or more; a
    straight line by least squares. None for fewer than two different contexts.
    """
    contexts = [ctx for ctx, _, _ in measured]
    if len(set(contexts)) < 2:
        return None
    line = linear_regression(contexts, [seen - theory for _, seen, theory in measured])
    return Excess(constant_bytes=line.intercept, bytes_per_token=line.slope)


def row_bytes(layer: Layer, type_k: str, type_v: str) -> tuple[int, int]:
    """Bytes one cached token takes in a layer's K and V, in whole blocks."""
    return _row(layer.k_elements, type_k), _row(layer.v_elements, type_v)


def _cache_part(
    kind: PartKind, layers: list[Layer], cells: int, type_k: str, type_v: str, *, grows: bool
) -> KvPart:
    per_token = sum(sum(row_bytes(layer, type_k, type_v)) for layer in layers)
    return KvPart(kind, len(layers), per_token if grows else 0, per_token * cells)


def _row(elements: int, name: str) -> int:
    block_elements, block_bytes = BLOCK_BYTES[name]
    return -(-elements // block_elements) * block_bytes


def padded_cells(tokens: int) -> int:
    """`tokens` rounded up to the 256 cells that every cache is padded to."""
    return -(-tokens // PAD_TOKENS) * PAD_TOKENS
