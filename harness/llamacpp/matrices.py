"""Matrices: one configuration varied in one respect, as arms that are measured one after another.

An arm is a name and a layer of settings (as in `harness.toml`) that is laid over everything else.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import SetupError
from harness.llamacpp.flags import called, groups, setting_of

KV_TYPES = (("f16", "f16"), ("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))
BATCHES = ((512, 512), (2048, 512), (2048, 1024), (2048, 2048))
YARN_FACTORS = (2, 4, 8, 16)
SLOTS = (1, 2, 4)
SPECULATION = ("--spec-type", "--spec-draft-model")
"""Settings without which a server does not speculate."""
MOST_ARMS = 64

Layer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: its name (unique in its matrix) and what it lays over the other settings."""

    name: str
    layer: Layer = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What built-in matrices are computed from.

    `trained_ctx_tokens`, `architecture` and `mtp_layers` are the model's (None where it is not
    readable from here); `overrides` says that the server takes `--override-kv`.
    """

    ctx_tokens: int
    depths: tuple[int, ...]
    server_args: tuple[str, ...] = ()
    trained_ctx_tokens: int | None = None
    architecture: str | None = None
    mtp_layers: int = 0
    overrides: bool = True
    cpu_cores: int = 1

    def gives(self, setting: str) -> bool:
        """Whether the configuration itself sets a flag, in any spelling."""
        return any(setting_of(group) == called(setting) for group in groups(self.server_args))


def arms_of(name: str, own: Mapping[str, Any], facts: Facts) -> tuple[Arm, ...]:
    """The arms of a matrix: one of the file's own, else a built-in one.

    Raises:
        SetupError: there is no such matrix, or it cannot be had with this model.
    """
    if name in own:
        arms = _own(name, own[name])
    elif name in BUILT_IN:
        arms = BUILT_IN[name](facts)
    else:
        raise SetupError(
            f"--matrix {name}: there is no such matrix; there are {', '.join([*BUILT_IN, *own])}"
        )
    if len(arms) > MOST_ARMS:
        raise SetupError(f"--matrix {name} has {len(arms)} arms; at most {MOST_ARMS} are measured")
    return arms


# -- of the file ----------------------------------------------------------------------------


def _own(name: str, table: object) -> tuple[Arm, ...]:
    if not isinstance(table, Mapping) or not table:
        raise SetupError(
            f"matrix {name}: expected a table such as [matrix.{name}] with ub = [512, 1024]"
        )
    if {"arms", "profiles"} & set(table) and len(table) > 1:
        raise SetupError(
            f"matrix {name}: write `arms`, `profiles` or flags with lists, one of them"
        )
    if "profiles" in table:
        return _of_profiles(name, table["profiles"])
    if "arms" in table:
        arms = table["arms"]
        if not isinstance(arms, Mapping) or not all(isinstance(v, Mapping) for v in arms.values()):
            raise SetupError(f"matrix {name}: expected an arm as [matrix.{name}.arms.NAME]")
        return tuple(Arm(str(arm), dict(layer)) for arm, layer in arms.items())
    for flag, values in table.items():
        if not isinstance(values, list) or not values:
            raise SetupError(
                f"matrix {name}: {flag} = {values!r}; expected a list of values, such as "
                f"{flag} = [512, 1024]"
            )
    return tuple(
        Arm(
            "-".join(_named(flag, value) for flag, value in zip(table, values, strict=True)),
            {"server_args": dict(zip(table, values, strict=True))},
        )
        for values in itertools.product(*table.values())
    )


def _of_profiles(name: str, profiles: object) -> tuple[Arm, ...]:
    if not isinstance(profiles, list) or not all(isinstance(p, str) for p in profiles):
        raise SetupError(f'matrix {name}: expected profiles = ["NAME", "NAME"]')
    return tuple(Arm(profile, {"profile": profile}) for profile in profiles)


def _named(flag: str, value: object) -> str:
    bare = flag.lstrip("-")
    if isinstance(value, bool):
        return bare if value else f"no_{bare}"
    return f"{bare}{value}"


# -- built in -------------------------------------------------------------------------------


def _kv(facts: Facts) -> tuple[Arm, ...]:
    flash = {} if facts.gives("--flash-attn") else {"-fa": "on"}
    return tuple(
        Arm(f"{k}-{v}", {"server_args": {"-ctk": k, "-ctv": v, **flash}}) for k, v in KV_TYPES
    )


def _batch(facts: Facts) -> tuple[Arm, ...]:
    return tuple(
        Arm(f"b{b}-ub{ub}", {"server_args": {"-b": b, "-ub": ub}})
        for b, ub in BATCHES
        if b <= facts.ctx_tokens
    )


def _flash(_facts: Facts) -> tuple[Arm, ...]:
    return tuple(Arm(f"fa-{state}", {"server_args": {"-fa": state}}) for state in ("on", "off"))


def _yarn(facts: Facts) -> tuple[Arm, ...]:
    """The unscaled model at its trained length, then ×2, ×4 … as far as `--ctx`."""
    trained = facts.trained_ctx_tokens
    if trained is None:
        raise SetupError(
            "--matrix yarn needs the length the model was trained to, and its file is not readable "
            "from here; give it with --model"
        )
    if facts.ctx_tokens <= trained:
        raise SetupError(
            f"--matrix yarn stretches a model beyond the {trained} tokens it was trained to, but "
            f"--ctx is {facts.ctx_tokens}; give --ctx {2 * trained} for x2, {4 * trained} for x4"
        )
    factors = [f for f in YARN_FACTORS if f * trained <= facts.ctx_tokens]
    whole = -(-facts.ctx_tokens // trained)
    if whole not in factors:
        factors.append(whole)
    arms = [Arm("x1", {"ctx_tokens": trained, **_depths(facts, trained)})]
    for factor in factors:
        ctx = min(factor * trained, facts.ctx_tokens)
        flags: Layer = {
            "--rope-scaling": "yarn",
            "--rope-scale": factor,
            "--yarn-orig-ctx": trained,
        }
        if facts.overrides:  # without it builds cap a slot to the trained length
            flags["--override-kv"] = f"{facts.architecture}.context_length=int:{ctx}"
        arms.append(
            Arm(f"x{factor}", {"ctx_tokens": ctx, **_depths(facts, ctx), "server_args": flags})
        )
    return tuple(arms)


def _depths(facts: Facts, ctx_tokens: int) -> Layer:
    return {"depths": sorted({*(d for d in facts.depths if d < ctx_tokens), ctx_tokens})}


def _speculation(facts: Facts) -> tuple[Arm, ...]:
    """Without speculation (the control), then as configured, else with the model's MTP layers."""
    off = {setting_of(g): False for g in groups(facts.server_args) if is_speculation(setting_of(g))}
    if any(facts.gives(setting) for setting in SPECULATION):
        on: Layer = {}
    elif facts.mtp_layers:
        on = {"server_args": {"--spec-type": "draft-mtp"}}
    else:
        raise SetupError(
            "--matrix speculation: the model has no MTP layers and the configuration names no "
            "other way; add --spec-type or --model-draft to server_args"
        )
    return Arm("off", {"server_args": off}), Arm("on", on)


def is_speculation(setting: str) -> bool:
    """Whether a setting (by the name of `flags.called`) is about speculative decoding."""
    return setting.startswith("--spec-") or setting == "--lookup-cache-static"


def _threads(facts: Facts) -> tuple[Arm, ...]:
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < facts.cpu_cores]
    return tuple(Arm(f"t{n}", {"server_args": {"-t": n}}) for n in (*counts, facts.cpu_cores))


def _parallel(facts: Facts) -> tuple[Arm, ...]:
    """More slots, each with the whole context; one of them is used."""
    return tuple(
        Arm(f"np{n}", {"server_args": {"-np": n, "-c": n * facts.ctx_tokens}}) for n in SLOTS
    )


BUILT_IN: dict[str, Callable[[Facts], tuple[Arm, ...]]] = {
    "kv": _kv,
    "batch": _batch,
    "flash": _flash,
    "yarn": _yarn,
    "speculation": _speculation,
    "mtp": _speculation,
    "threads": _threads,
    "parallel": _parallel,
}
