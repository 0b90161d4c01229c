"""Single buffers: the largest allocations a context asks for, against a device's limit for one.

A device refuses one allocation above its limit (Vulkan's maxBufferSize, maxMemoryAllocationSize;
often 2 or 4 GiB) however much memory is free. At depth three of llama.cpp's buffers get there.
"""

from dataclasses import dataclass
from typing import Literal

from harness.llamacpp.kv import BLOCK_BYTES, PAD_TOKENS, CacheSettings, padded_cells, row_bytes
from harness.llamacpp.layers import Layer, Metadata, model_layers

BufferKind = Literal["KQ mask", "KQ scores", "K+V scratch", "K cache of a layer"]

TYPES_BY_PRECISION = ("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""Cache types proposed, best first."""
QUANTISED = frozenset(name for name, (elements, _) in BLOCK_BYTES.items() if elements > 1)
MIN_UBATCH = 32

CONSEQUENCES: dict[BufferKind, str] = {
    "KQ mask": "falls back to unpinned memory with a pinned-memory warning; prefill can drop 100x",
    "KQ scores": "the compute buffer can't be allocated and the server does not start",
    "K+V scratch": "decoding fails with ErrorOutOfDeviceMemory once the cache is that deep",
    "K cache of a layer": "the cache can't be placed on the device and the server does not start",
}


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation at the full context: `cells` x `bytes_per_cell`, told in words by `how`."""

    kind: BufferKind
    cells: int
    bytes_per_cell: int
    how: str

    @property
    def total_bytes(self) -> int:
        """Its size in bytes."""
        return self.cells * self.bytes_per_cell

    @property
    def consequence(self) -> str:
        """What happens when the device refuses it."""
        return CONSEQUENCES[self.kind]


@dataclass(frozen=True, slots=True)
class BufferCheck:
    """The buffers, largest first, those a device refuses, and what would fit instead.

    `fitting_ubatch` is the largest power of two with which mask and scores fit (None when they do,
    or none of at least 32 helps); `fitting_types` the types for both K and V with which the cache's
    buffers fit at this context, best first (empty when they do, or none helps);
    `fitting_ctx_tokens` the deepest context, in steps of 256, where everything fits with the
    settings asked for. `could_not_derive` is as in `harness.llamacpp.kv.KvTheory`.
    """

    limit_bytes: int
    buffers: tuple[Buffer, ...]
    over: tuple[Buffer, ...]
    fitting_ubatch: int | None
    fitting_types: tuple[str, ...]
    fitting_ctx_tokens: int | None
    could_not_derive: tuple[str, ...]


def check_buffers(
    metadata: Metadata, ctx_tokens: int, limit_bytes: int, cache: CacheSettings
) -> BufferCheck:
    """Sizes of the largest single buffers and which of them a device with this limit refuses.

    With n_kv = the context of one slot padded to 256 cells:

    - KQ mask: n_ubatch · n_kv · 2 bytes (F16) with flash attention, · 4 (F32) without.
    - KQ scores, only without flash attention: heads · n_ubatch · n_kv · 4.
    - K+V scratch, only with flash attention over a quantised cache: one layer's K and V as F16,
      n_kv · (k + v elements) · 2.
    - K cache of a layer: n_kv · K row in the cache's type (V likewise when it is larger).

    A buffer of exactly the limit is refused too (seen with a 2 GiB mask on a 2 GiB device).
    Source: llama.cpp `src/llama-graph.cpp`, `llama-kv-cache.cpp`; compute buffer sizes logged by
    b10434; the scratch from a report of 2,148,532,224 bytes refused at 1,049,088 cells.

    Raises:
        ValueError: a size that is not positive.
    """
    if min(ctx_tokens, limit_bytes) < 1:
        raise ValueError("context and limit must be positive")
    type_k, type_v, n_ubatch = cache.type_k, cache.type_v, cache.n_ubatch
    flash_attention = cache.flash_attention
    model = model_layers(metadata)
    layers = [layer for layer in model.main if layer.cache == "full"]
    streams = 1 if cache.kv_unified else cache.n_parallel
    cells = padded_cells(-(-ctx_tokens // streams))
    score_buffers = _score_buffers(layers, cells, n_ubatch, flash_attention)
    buffers = score_buffers + _cache_buffers(layers, cells, type_k, type_v, flash_attention)
    over = [buffer for buffer in buffers if buffer.total_bytes >= limit_bytes]
    return BufferCheck(
        limit_bytes=limit_bytes,
        buffers=tuple(sorted(buffers, key=lambda b: b.total_bytes, reverse=True)),
        over=tuple(sorted(over, key=lambda b: b.total_bytes, reverse=True)),
        fitting_ubatch=_fitting_ubatch(over, n_ubatch, limit_bytes),
        fitting_types=_fitting_types(layers, cells, flash_attention, limit_bytes)
        if any(buffer.kind in ("K+V scratch", "K cache of a layer") for buffer in over)
        else (),
        fitting_ctx_tokens=_fitting_ctx(over, limit_bytes, streams) if over else ctx_tokens,
        could_not_derive=model.could_not_derive,
    )


def _score_buffers(
    layers: list[Layer], cells: int, n_ubatch: int, flash_attention: bool
) -> list[Buffer]:
    if not layers:
        return []
    if flash_attention:
        how = f"ubatch {n_ubatch} x {cells:,} cells x 2 bytes"
        return [Buffer("KQ mask", cells, n_ubatch * 2, how)]
    heads = max(layer.query_heads for layer in layers)
    return [
        Buffer("KQ mask", cells, n_ubatch * 4, f"ubatch {n_ubatch} x {cells:,} cells x 4 bytes"),
        Buffer(
            "KQ scores",
            cells,
            heads * n_ubatch * 4,
            f"{heads} heads x ubatch {n_ubatch} x {cells:,} cells x 4 bytes",
        ),
    ]


def _cache_buffers(
    layers: list[Layer], cells: int, type_k: str, type_v: str, flash_attention: bool
) -> list[Buffer]:
    if not layers:
        return []
    row = max(max(row_bytes(layer, type_k, type_v)) for layer in layers)
    name = type_k if type_k == type_v else f"{type_k}/{type_v}"
    buffers = [
        Buffer("K cache of a layer", cells, row, f"{cells:,} cells x {row} bytes as {name}"),
    ]
    if flash_attention and {type_k, type_v} & QUANTISED:
        elements = max(layer.k_elements + layer.v_elements for layer in layers)
        how = f"{cells:,} cells x {elements} K and V elements x 2 bytes (F16)"
        buffers.append(Buffer("K+V scratch", cells, elements * 2, how))
    return buffers


def _fitting_ubatch(over: list[Buffer], n_ubatch: int, limit_bytes: int) -> int | None:
    scores = [buffer for buffer in over if buffer.kind in ("KQ mask", "KQ scores")]
    if not scores:
        return None
    largest = max(buffer.total_bytes for buffer in scores) / n_ubatch
    ubatch = 2 ** (n_ubatch.bit_length() - 1)
    while ubatch >= MIN_UBATCH and ubatch * largest >= limit_bytes:
        ubatch //= 2
    return ubatch if ubatch >= MIN_UBATCH else None


def _fitting_types(
    layers: list[Layer], cells: int, flash_attention: bool, limit_bytes: int
) -> tuple[str, ...]:
    return tuple(
        name
        for name in TYPES_BY_PRECISION
        if (flash_attention or name not in QUANTISED)
        and all(
            buffer.total_bytes < limit_bytes
            for buffer in _cache_buffers(layers, cells, name, name, flash_attention)
        )
    )


def _fitting_ctx(over: list[Buffer], limit_bytes: int, streams: int) -> int | None:
    largest = max(buffer.bytes_per_cell for buffer in over)
    cells = (limit_bytes - 1) // largest // PAD_TOKENS * PAD_TOKENS
    return cells * streams or None
