"""Preflight: what a server will need in memory, part by part, against what is free, and why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.llamacpp.buffers import BufferCheck
from harness.llamacpp.kv import KvTheory
from harness.llamacpp.log import LogFindings, is_host
from harness.quantities import size

Source = Literal["file", "theory", "log"]

_USES = {
    "model": "weights",
    "KV": "KV cache",
    "RS": "recurrent state",
    "compute": "compute buffers",
    "output": "output buffer",
}


HOST, GPU, ANYWHERE = "host", "gpu", "host or GPU"
"""Where a part lies: in the machine's RAM, on its GPUs, or on either (layers left in RAM)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the memory: bytes, by the file, by theory, or as a started server logged it.

    `place` is `HOST`, `GPU`, `ANYWHERE`, or the name of the device that a log gives.
    """

    name: str
    size_bytes: int
    source: Source
    device: str | None = None
    place: str = HOST


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory of one kind: what was free of it before, bytes (`None`: not told), and who told.

    `borrowed` pools are parts of the machine's RAM that a GPU may use (an APU's GTT, Windows'
    shared memory): they add to their place's room as far as the RAM lasts.
    """

    name: str
    place: str
    free_bytes: int | None
    source: str
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """All parts, the pools that they must fit into, and what could not be told."""

    parts: tuple[Part, ...]
    pools: tuple[Pool, ...]
    unknown: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        return sum(part.size_bytes for part in self.parts)

    def needed_bytes(self, place: str) -> int:
        """The parts of one place together."""
        return sum(part.size_bytes for part in self.parts if part.place == place)

    def room_bytes(self, place: str) -> int | None:
        """What is free for a place, what it may borrow included; `None` where that isn't told."""
        own = [pool for pool in self.pools if pool.place == place]
        sizes = [pool.free_bytes for pool in own if not pool.borrowed]
        if not own or None in sizes:
            return None
        room = sum(size for size in sizes if size is not None)
        lent = sum(pool.free_bytes or 0 for pool in own if pool.borrowed)
        if lent and place != HOST:
            ram = self.room_bytes(HOST)
            lent = lent if ram is None else min(lent, max(0, ram - self.needed_bytes(HOST)))
        return room + lent


def by_theory(
    tensor_bytes: int | None,
    theory: KvTheory | None,
    pools: tuple[Pool, ...],
    *,
    weights: str = HOST,
    cache: str = HOST,
) -> MemoryPlan:
    """Before anything was started: weights by the file, the cache by theory, and their places.

    Compute buffers depend on the backend and are known only once a server has started; they are
    named as unknown, so the total is a lower bound.
    """
    parts, unknown = [], ["compute buffers: known once a server has started"]
    if tensor_bytes is None:
        unknown.append("weights: the file has tensors of a type that is not known here")
    else:
        parts.append(Part("weights", tensor_bytes, "file", place=weights))
    if theory is None:
        unknown.append("KV cache: the model's file is not readable from here")
    else:
        parts += [
            Part(f"KV cache, {p.kind}", p.total_bytes, "theory", place=cache) for p in theory.parts
        ]
        unknown += theory.could_not_derive
    return MemoryPlan(tuple(parts), pools, (*unknown, *_untold(parts, pools)))


def by_log(found: LogFindings, pools: tuple[Pool, ...]) -> MemoryPlan:
    """What a started server says it has allocated, by use and device.

    A device's free memory is what the server said of it at its start, else what `pools` tell.
    """
    told = tuple(
        Pool(d.description, d.name, d.free_bytes, "the server's log")
        for d in found.devices
        if d.is_gpu and d.free_bytes is not None
    )
    kept = tuple(pool for pool in pools if pool.place == HOST or not told) + told
    parts = [
        Part(
            _USES[buffer.use],
            buffer.total_bytes,
            "log",
            buffer.device,
            HOST if is_host(buffer.device) else buffer.device if told else GPU,
        )
        for buffer in found.buffers
        if buffer.total_bytes
    ]
    if not parts:
        unknown = ("the server's log states no buffer sizes (it does from -lv 4 on)",)
        return MemoryPlan((), kept, unknown)
    return MemoryPlan(tuple(parts), kept, _untold(parts, kept))


def _untold(parts: Sequence[Part], pools: Sequence[Pool]) -> tuple[str, ...]:
    """That nothing tells a place's free memory, for each place that parts lie in."""
    told = {pool.place for pool in pools}
    places = dict.fromkeys(part.place for part in parts)
    return tuple(
        f"free memory of the {'GPU' if place == GPU else place}: nothing here tells it"
        for place in places
        if place not in told | {ANYWHERE}
    )


def memory_objections(plan: MemoryPlan) -> tuple[str, ...]:
    """Each place whose parts exceed what is free for them, one sentence each."""
    said = []
    for place in dict.fromkeys(part.place for part in plan.parts):
        if place == ANYWHERE:
            continue
        need, room = plan.needed_bytes(place), plan.room_bytes(place)
        if room is not None and need > room:
            said.append(_short(plan, place, need, room))
    rooms = [plan.room_bytes(HOST), plan.room_bytes(GPU) or 0]
    if not said and plan.needed_bytes(ANYWHERE) and rooms[0] is not None:
        need, room = plan.total_bytes, rooms[0] + (rooms[1] or 0)
        if need > room:
            said.append(
                f"{size(need)} are needed at least, and {size(room)} are free in RAM and on GPUs "
                f"together; {_LESS}"
            )
    return tuple(said)


_LESS = "lower --ctx, or take a smaller cache type (-ctk, -ctv) or model"


def _short(plan: MemoryPlan, place: str, need: int, room: int) -> str:
    what = summed([part for part in plan.parts if part.place == place])
    pools = [pool for pool in plan.pools if pool.place == place]
    free = ", ".join(f"{p.name} {size(p.free_bytes or 0)} by {p.source}" for p in pools)
    if place == HOST:
        where, way = "of RAM", f"{_LESS}, or free memory"
    else:
        where, way = "on the GPU", f"{_LESS}, or leave layers in RAM (-ngl)"
    return (
        f"{size(need)} {where} are needed at least ({what}) and {size(room)} are free there "
        f"({free}); {way}"
    )


def buffer_objections(check: BufferCheck, device: str) -> tuple[str, ...]:
    """Each single buffer that `device` refuses, and what would fit, one sentence each."""
    said = [
        f"{buffer.kind} of {size(buffer.total_bytes)} ({buffer.how}) is over the limit of "
        f"{size(check.limit_bytes)} for one buffer of {device}: {buffer.consequence}"
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


def summed(parts: Sequence[Part]) -> str:
    """The parts in one line: `weights 5.8 MiB, KV cache 8.0 MiB`."""
    sizes: dict[str, int] = {}
    for part in parts:
        sizes[part.name] = sizes.get(part.name, 0) + part.size_bytes
    return ", ".join(f"{name} {size(held)}" for name, held in sizes.items())
