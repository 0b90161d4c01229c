"""Preflight: what a server will need in memory, part by part, against what is free, and why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.llamacpp.buffers import BufferCheck, check_buffers
from harness.llamacpp.kv import GIB, MIB, KvTheory, kv_theory
from harness.llamacpp.layers import Metadata
from harness.llamacpp.log import LogFindings

Source = Literal["file", "theory", "log"]

_USES = {
    "model": "weights",
    "KV": "KV cache",
    "RS": "recurrent state",
    "compute": "compute buffers",
    "output": "output buffer",
}


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What a server's flags say of its cache; the defaults are those of a server we start."""

    type_k: str = "f16"
    type_v: str = "f16"
    n_ubatch: int = 512
    n_parallel: int = 1
    kv_unified: bool = False
    swa_full: bool = False
    flash_attention: bool = True

    def theory(self, metadata: Metadata, ctx_tokens: int) -> KvTheory:
        """The cache's size for a context of `ctx_tokens` in all slots together."""
        return kv_theory(
            metadata,
            ctx_tokens,
            self.type_k,
            self.type_v,
            n_ubatch=self.n_ubatch,
            n_parallel=self.n_parallel,
            kv_unified=self.kv_unified,
            swa_full=self.swa_full,
        )

    def buffers(self, metadata: Metadata, ctx_tokens: int, limit_bytes: int) -> BufferCheck:
        """The largest single buffers against a device's limit for one."""
        return check_buffers(
            metadata,
            ctx_tokens,
            limit_bytes,
            type_k=self.type_k,
            type_v=self.type_v,
            n_ubatch=self.n_ubatch,
            n_parallel=self.n_parallel,
            kv_unified=self.kv_unified,
            flash_attention=self.flash_attention,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the memory: bytes, by the file, by theory, or as a started server logged it."""

    name: str
    size_bytes: int
    source: Source
    device: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """All parts, what is free for them (`None`: not readable), and what could not be told."""

    parts: tuple[Part, ...]
    free_bytes: int | None
    unknown: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def short_bytes(self) -> int:
        """By how much the parts exceed what is free; 0 when they fit or that isn't known."""
        return max(0, self.total_bytes - self.free_bytes) if self.free_bytes is not None else 0


def by_theory(
    tensor_bytes: int | None, theory: KvTheory | None, free_bytes: int | None
) -> MemoryPlan:
    """Before anything was started: weights by the file, the cache by theory.

    Compute buffers depend on the backend and are known only once a server has started; they are
    named as unknown, so the total is a lower bound.
    """
    parts, unknown = [], ["compute buffers: known once a server has started"]
    if tensor_bytes is None:
        unknown.append("weights: the file has tensors of a type that is not known here")
    else:
        parts.append(Part("weights", tensor_bytes, "file"))
    if theory is None:
        unknown.append("KV cache: the model's file is not readable from here")
    else:
        parts += [Part(f"KV cache, {p.kind}", p.total_bytes, "theory") for p in theory.parts]
        unknown += theory.could_not_derive
    return MemoryPlan(tuple(parts), free_bytes, tuple(unknown))


def by_log(found: LogFindings, free_bytes: int | None) -> MemoryPlan:
    """What a started server says it has allocated, by use and device."""
    parts = [
        Part(_USES[buffer.use], buffer.total_bytes, "log", buffer.device)
        for buffer in found.buffers
        if buffer.total_bytes
    ]
    unknown = () if parts else ("the server's log states no buffer sizes (it does from -lv 4 on)",)
    return MemoryPlan(tuple(parts), free_bytes, unknown)


def buffer_objections(check: BufferCheck, device: str) -> tuple[str, ...]:
    """Each single buffer that `device` refuses, and what would fit, one sentence each."""
    said = [
        f"{buffer.kind} of {gib(buffer.total_bytes)} ({buffer.how}) is over the limit of "
        f"{gib(check.limit_bytes)} for one buffer of {device}: {buffer.consequence}"
        for buffer in check.over
    ]
    ways = []
    if check.fitting_ubatch is not None:
        ways.append(f"-ub {check.fitting_ubatch} makes mask and scores fit")
    elif any(buffer.kind in ("KQ mask", "KQ scores") for buffer in check.over):
        ways.append("no ubatch of 32 or more makes mask and scores fit")
    if check.fitting_types:
        ways.append(f"a cache of type {' or '.join(check.fitting_types[:3])} fits")
    elif any(buffer.kind in ("K+V scratch", "K cache of a layer") for buffer in check.over):
        ways.append("no cache type fits at this context")
    if check.over and check.fitting_ctx_tokens:
        ways.append(f"with these settings {check.fitting_ctx_tokens:,} tokens of context fit")
    return (*said, *([f"what would fit: {'; '.join(ways)}"] if ways else ()))


def memory_objection(plan: MemoryPlan) -> str | None:
    """That the parts exceed what is free; `None` when they do not, or it can't be told."""
    if not plan.short_bytes or plan.free_bytes is None:
        return None
    return (
        f"{gib(plan.total_bytes)} are needed at least and {gib(plan.free_bytes)} of memory are "
        "free; lower --ctx, take a smaller cache type (-ctk, -ctv) or model, or free memory (a GPU "
        "with memory of its own is not counted here)"
    )


def gib(size_bytes: float) -> str:
    """Bytes in binary units: GiB = 2^30, MiB = 2^20."""
    return f"{size_bytes / GIB:,.2f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:,.1f} MiB"


def summed(parts: Sequence[Part]) -> str:
    """The parts in one line: `weights 5.8 MiB, KV cache 8.0 MiB`."""
    sizes: dict[str, int] = {}
    for part in parts:
        sizes[part.name] = sizes.get(part.name, 0) + part.size_bytes
    return ", ".join(f"{name} {gib(size)}" for name, size in sizes.items())
