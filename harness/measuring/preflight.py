"""Preflight: what a run will need, from the model's file before a start and the log after it."""

import os
from dataclasses import dataclass

from harness.llamacpp.buffers import BufferCheck, check_buffers
from harness.llamacpp.flags import cache_settings, values_of
from harness.llamacpp.kv import kv_theory
from harness.llamacpp.log import LogFindings
from harness.llamacpp.memory_plan import (
    ANYWHERE,
    GPU,
    HOST,
    MemoryPlan,
    Pool,
    buffer_objections,
    by_log,
    by_theory,
    memory_objections,
    summed,
)
from harness.machine.memory_pools import MemoryPools
from harness.machine.vulkan import VulkanDevice, vulkan_devices
from harness.quantities import size
from harness.records.lines import Event
from harness.serving.gguf_file import GgufInfo
from harness.serving.session import Session, binary_of, served_model
from harness.settings import Settings


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest buffer that a device takes, bytes, and the device's name as people know it."""

    device: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Preflight:
    """What is foreseen: memory by part, the largest single buffers, and what speaks against it.

    `buffers` is `None` where no device's limit is known, or the model's file is not here.
    """

    memory: MemoryPlan
    buffers: BufferCheck | None
    limit: Limit | None
    objections: tuple[str, ...]

    def event(self) -> Event:
        """The record's account of it."""
        return Event(
            code="preflight",
            message="; ".join((self.sentence, *self.objections)),
            data={
                "parts": [
                    {"name": p.name, "bytes": p.size_bytes, "source": p.source, "device": p.device}
                    for p in self.memory.parts
                ],
                "free_bytes": self.memory.room_bytes(HOST),
                "pools": [
                    {"name": p.name, "place": p.place, "free_bytes": p.free_bytes, "by": p.source}
                    for p in self.memory.pools
                ],
                "buffers": [{"name": b.kind, "bytes": b.total_bytes} for b in self.buffers.buffers]
                if self.buffers
                else [],
                "limit_bytes": self.limit.size_bytes if self.limit else None,
                "objections": list(self.objections),
            },
        )

    @property
    def sentence(self) -> str:
        """The memory in one line."""
        free = [f"{size(p.free_bytes)} of {p.name}" for p in self.memory.pools if p.free_bytes]
        known = f"; {', '.join(free)} were free" if free else ""
        return f"memory: {summed(self.memory.parts) or 'not known'}{known}"


def before_start(
    settings: Settings, *, max_buffer_bytes: int | None = None
) -> tuple[Preflight, GgufInfo | None]:
    """What the model's file and the flags foresee, and the file's header.

    The limit for one buffer is `max_buffer_bytes`, else that of a Vulkan device of this machine,
    if a server binary is to be started (of a software device only where `GGML_VK_VISIBLE_DEVICES`
    asks for one: llama.cpp leaves them out otherwise).

    Raises:
        SetupError: the file is missing or broken, or a flag's value is none.
    """
    argv = list(settings.server_args)
    gguf, cache = served_model(settings), cache_settings(argv)
    pools = tuple(
        Pool(p.name, GPU if p.gpu else HOST, p.free_bytes, p.source, p.borrowed)
        for p in MemoryPools().read()
    )
    limit = (
        Limit("the device (--max-buffer)", max_buffer_bytes)
        if max_buffer_bytes
        else _limit_of(_devices_of(settings))
    )
    if gguf is None:
        return Preflight(by_theory(None, None, pools), None, limit, ()), None
    weights, kept = _places(settings, any(pool.place == GPU for pool in pools))
    memory = by_theory(
        gguf.tensor_bytes,
        kv_theory(gguf.metadata, settings.ctx_tokens, cache),
        pools,
        weights=weights,
        cache=kept,
    )
    return _with_buffers(settings, gguf, memory, limit, memory_objections(memory)), gguf


def after_start(
    settings: Settings,
    session: Session,
    found: LogFindings,
    foreseen: Preflight,
    *,
    max_buffer_bytes: int | None = None,
) -> Preflight:
    """What a started server has allocated by its log, and the limits of the devices it uses.

    `foreseen` is `before_start`'s: what was free is as of then. That the server has started shows
    that its memory was to be had.
    """
    memory = by_log(found, foreseen.memory.pools)
    if not memory.parts:
        memory = foreseen.memory
    limit = foreseen.limit if max_buffer_bytes else None
    used = {d.description for d in found.devices if d.name.startswith("Vulkan")}
    if limit is None and used:
        limit = _limit_of([d for d in vulkan_devices() if d.name in used])
    return _with_buffers(settings, session.gguf, memory, limit, ())


def _with_buffers(
    settings: Settings,
    gguf: GgufInfo | None,
    memory: MemoryPlan,
    limit: Limit | None,
    said: tuple[str, ...],
) -> Preflight:
    if gguf is None or limit is None:
        return Preflight(memory, None, limit, said)
    cache = cache_settings(settings.server_args)
    check = check_buffers(gguf.metadata, settings.ctx_tokens, limit.size_bytes, cache)
    return Preflight(memory, check, limit, (*said, *buffer_objections(check, limit.device)))


_PARTIAL = ("--override-tensor", "--cpu-moe", "--n-cpu-moe", "--device")


def _places(settings: Settings, has_gpu: bool) -> tuple[str, str]:
    """Where weights and cache will lie by the flags: in RAM, on the GPU, or that can't be told."""
    given = values_of(settings.server_args)
    layers = given.get("--gpu-layers", "")
    if not has_gpu or layers == "0" or not _may_use_gpu(settings):
        return HOST, HOST
    whole = layers == "all" or (layers.isdigit() and int(layers) >= _MORE_THAN_ANY_MODEL)
    if not whole or any(flag in given for flag in _PARTIAL):
        return ANYWHERE, ANYWHERE
    off = {"--no-kv-offload", "-nkvo"}.intersection(settings.server_args)
    return GPU, HOST if off else GPU


_MORE_THAN_ANY_MODEL = 99


def _may_use_gpu(settings: Settings) -> bool:
    return binary_of(settings) is not None


def _devices_of(settings: Settings) -> list[VulkanDevice]:
    if not _may_use_gpu(settings):
        return []
    chosen = "GGML_VK_VISIBLE_DEVICES" in os.environ
    return [device for device in vulkan_devices() if chosen or not device.software]


def _limit_of(devices: list[VulkanDevice]) -> Limit | None:
    limited = [
        Limit(d.name, d.max_allocation_bytes) for d in devices if d.max_allocation_bytes is not None
    ]
    return min(limited, key=lambda limit: limit.size_bytes, default=None)
