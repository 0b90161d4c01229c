"""Preflight: what a run will need, from the model's file before a start and the log after it."""

import os
import shutil
from dataclasses import dataclass

import psutil

from harness.llamacpp.buffers import BufferCheck
from harness.llamacpp.flags import cache_settings
from harness.llamacpp.log import LogFindings
from harness.llamacpp.memory_plan import (
    MemoryPlan,
    buffer_objections,
    by_log,
    by_theory,
    gib,
    memory_objection,
    summed,
)
from harness.machine.vulkan import VulkanDevice, vulkan_devices
from harness.records.lines import Event
from harness.serving.gguf_file import GgufInfo
from harness.serving.session import Session, served_model
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
                "free_bytes": self.memory.free_bytes,
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
        free = self.memory.free_bytes
        known = f"; {gib(free)} were free" if free is not None else ""
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
    free_bytes = psutil.virtual_memory().available
    limit = (
        Limit("the device (--max-buffer)", max_buffer_bytes)
        if max_buffer_bytes
        else _limit_of(_devices_of(settings))
    )
    if gguf is None:
        return Preflight(by_theory(None, None, free_bytes), None, limit, ()), None
    memory = by_theory(
        gguf.tensor_bytes, cache.theory(gguf.metadata, settings.ctx_tokens), free_bytes
    )
    short = memory_objection(memory)
    return _with_buffers(settings, gguf, memory, limit, (short,) if short else ()), gguf


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
    memory = by_log(found, foreseen.memory.free_bytes)
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
    check = cache.buffers(gguf.metadata, settings.ctx_tokens, limit.size_bytes)
    return Preflight(memory, check, limit, (*said, *buffer_objections(check, limit.device)))


def _devices_of(settings: Settings) -> list[VulkanDevice]:
    if not (settings.server_bin or (settings.model and shutil.which("llama-server"))):
        return []
    chosen = "GGML_VK_VISIBLE_DEVICES" in os.environ
    return [device for device in vulkan_devices() if chosen or not device.software]


def _limit_of(devices: list[VulkanDevice]) -> Limit | None:
    limited = [
        Limit(d.name, d.max_allocation_bytes) for d in devices if d.max_allocation_bytes is not None
    ]
    return min(limited, key=lambda limit: limit.size_bytes, default=None)
