"""What differs between two arms of a comparison, and whether that is one thing or several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.llamacpp.flags import values_of
from harness.llamacpp.matrices import is_speculation
from harness.records.lines import RunRecord

_STRETCH = frozenset(
    {
        "--rope-scaling",
        "--rope-scale",
        "--rope-freq-scale",
        "--yarn-orig-ctx",
        "--yarn-ext-factor",
        "--yarn-attn-factor",
        "--yarn-beta-slow",
        "--yarn-beta-fast",
        "--override-kv",
        "--ctx-size",
    }
)
"""Settings that stretch a model's context together; a context alone is a thing of its own."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs. Those with the same `thing` are compared as one."""

    thing: str
    name: str
    a: str
    b: str

    @property
    def sentence(self) -> str:
        """The difference in words."""
        return f"{self.name}: {self.a} in A, {self.b} in B"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an arm is started with, or what a server that runs already says it is."""

    server: str
    model: str
    ctx_tokens: int | None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None


def between(a: Configuration, b: Configuration) -> tuple[Difference, ...]:
    """Every setting in which two arms differ before anything is measured."""
    flags_a, flags_b = values_of(a.argv), values_of(b.argv)
    pairs: list[tuple[str, str, object, object]] = [
        ("server", "server", a.server, b.server),
        ("model", "model", a.model, b.model),
        ("--ctx-size", "context", a.ctx_tokens, b.ctx_tokens),
    ]
    names = sorted({*flags_a, *flags_b})
    pairs += [(_thing(n), n, flags_a.get(n), flags_b.get(n)) for n in names]
    env_a, env_b = a.env or {}, b.env or {}
    pairs += [(f"${n}", f"${n}", env_a.get(n), env_b.get(n)) for n in sorted({*env_a, *env_b})]
    found = [Difference(t, n, _shown(x), _shown(y)) for t, n, x, y in pairs if x != y]
    if any(d.thing == "RoPE scaling" for d in found):  # a longer context is what it is for
        found = [
            Difference("RoPE scaling", d.name, d.a, d.b)
            if d.name in ("context", "--ctx-size")
            else d
            for d in found
        ]
    return tuple(found)


def things(found: Sequence[Difference]) -> tuple[str, ...]:
    """The things that differ, once each."""
    return tuple(dict.fromkeys(d.thing for d in found))


def _thing(setting: str) -> str:
    if is_speculation(setting):
        return "speculation"
    return "RoPE scaling" if setting in _STRETCH - {"--ctx-size"} else setting


def _shown(value: object) -> str:
    return "not given" if value is None else "given" if value == "" else str(value)


# -- what only a run shows ------------------------------------------------------------------


def effective(record: RunRecord) -> dict[str, str]:
    """What a server turned out to be, by name: build, device, types, sizes; what it said first."""
    server = record.header.server
    log = next((e.data for e in reversed(record.events) if e.code == "server_log"), {})
    told: dict[str, object] = {
        "build": server.build,
        "context of a slot": server.n_ctx,
        "weights on a GPU": log.get("on_gpu"),
        "devices": ", ".join(log.get("devices") or ()) or None,
        "layers offloaded": log.get("offloaded_layers"),
        "flash attention": log.get("flash_attention"),
        "K and V types": log.get("kv_types"),
        **(log.get("settings") or {}),
    }
    prints = next((e.data.get("tokens") for e in record.events if e.code == "fingerprint"), None)
    if prints:
        told["next tokens after a fixed text"] = prints
    return {name: str(value) for name, value in told.items() if value is not None}


def effective_differences(a: RunRecord, b: RunRecord) -> tuple[str, ...]:
    """What differed between the arms once they ran, a sentence each; log warnings last."""
    told_a, told_b = effective(a), effective(b)
    found = []
    for name in dict.fromkeys([*told_a, *told_b]):
        x, y = told_a.get(name), told_b.get(name)
        if x == y:
            continue
        if name == "next tokens after a fixed text":
            found.append("their output differs: other probabilities after the same text")
        else:
            found.append(f"{name}: {x or 'not told'} in A, {y or 'not told'} in B")
    warned_a, warned_b = _warnings(a), _warnings(b)
    found += [f"only A's log warns: {w}" for w in warned_a if w not in warned_b]
    found += [f"only B's log warns: {w}" for w in warned_b if w not in warned_a]
    return tuple(found)


def other_device(a: RunRecord, b: RunRecord) -> str | None:
    """The sentence for arms of which only one computes on a GPU."""
    on_a, on_b = (effective(r).get("weights on a GPU") for r in (a, b))
    if on_a is None or on_b is None or on_a == on_b:
        return None
    return f"{'A' if on_a == 'True' else 'B'} computes on a GPU and the other arm on the CPU"


def _warnings(record: RunRecord) -> tuple[str, ...]:
    log = next((e.data for e in reversed(record.events) if e.code == "server_log"), {})
    return tuple(log.get("warnings") or ())
