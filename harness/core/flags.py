"""Which llama-server flags decide whether two runs may be compared, and which are only noted.

Key flags change what is asked of the machine (context, batch sizes, KV types, attention path,
RoPE scaling, speculation). Everything else (threads, polling, NUMA, build, driver …) is recorded
and shown when it differs, since it is often the very thing under test.
"""

import re
from collections.abc import Mapping, Sequence

from harness.core.flag_names import is_flag
from harness.core.kv import BLOCK_BYTES
from harness.core.preflight import CacheSettings
from harness.errors import SetupError

KEY_FLAGS: dict[str, tuple[str, ...]] = {
    "ctx": ("-c", "--ctx-size"),
    "parallel": ("-np", "--parallel"),
    "batch": ("-b", "--batch-size"),
    "ubatch": ("-ub", "--ubatch-size"),
    "cache_type_k": ("-ctk", "--cache-type-k"),
    "cache_type_v": ("-ctv", "--cache-type-v"),
    "flash_attn": ("-fa", "--flash-attn"),
    "gpu_layers": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
    "rope_scaling": ("--rope-scaling",),
    "rope_scale": ("--rope-scale",),
    "yarn_orig_ctx": ("--yarn-orig-ctx",),
    "draft_model": ("-md", "--model-draft", "--spec-draft-model"),
    "draft_max": ("--draft-max", "--draft", "--draft-n", "--spec-draft-n-max"),
    "spec_type": ("--spec-type",),
}
KEY_SWITCHES: dict[str, tuple[str, ...]] = {
    "kv_unified": ("-kvu", "--kv-unified"),
    "swa_full": ("--swa-full",),
    "no_kv_offload": ("-nkvo", "--no-kv-offload"),
}
LLAMA_SERVER_DEFAULTS: dict[str, str] = {
    "batch": "2048",
    "ubatch": "512",
    "cache_type_k": "f16",
    "cache_type_v": "f16",
    "flash_attn": "auto",
}

_SECRET = ("--api-key", "--api-key-file", "-hft", "--hf-token")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)
_PLUMBING = (
    *("-m", "--model", "--port", "--host", "-a", "--alias", "--log-file", "--metrics", "--slots"),
    *("--no-webui", "--no-ui", "--timeout", "-to", "-lv", "--verbosity", "--fit", "-fit"),
    *("--cache-ram", "-cram", "--ctx-checkpoints", "-ctxcp", "--slot-save-path"),
)

Value = str | int | float | bool | None


def pairs(argv: Sequence[str]) -> list[tuple[str, str | None]]:
    """`argv` as (flag, value) pairs, in order; a switch has the value `None`."""
    result: list[tuple[str, str | None]] = []
    for word in argv:
        if is_flag(word):
            name, equals, value = word.partition("=")
            result.append((name, value if equals else None))
        elif result:
            flag, before = result[-1]
            result[-1] = (flag, word if before is None else f"{before} {word}")
    return result


def key_of(argv: Sequence[str]) -> dict[str, Value]:
    """The settings that are part of a baseline's key, llama-server's defaults filled in."""
    given = dict(pairs(argv))
    key: dict[str, Value] = {}
    for name, flags in KEY_FLAGS.items():
        values = [given[flag] or "on" for flag in flags if flag in given]
        value = values[-1] if values else LLAMA_SERVER_DEFAULTS.get(name)
        if value is not None:
            key[name] = value
    for name, flags in KEY_SWITCHES.items():
        if any(flag in given for flag in flags):
            key[name] = True
    return key


def cache_settings(argv: Sequence[str]) -> CacheSettings:
    """What flags say of the cache, llama-server's defaults filled in.

    Raises:
        SetupError: an unknown cache type, or a size that is no number.
    """
    key, given = key_of(argv), dict(pairs(argv))
    type_k, type_v = str(key["cache_type_k"]), str(key["cache_type_v"])
    for name in (type_k, type_v):
        if name not in BLOCK_BYTES:
            known = ", ".join(BLOCK_BYTES)
            raise SetupError(f"--server-args: {name} is no cache type; expected one of {known}")
    switch_off = ("off", "0", "false", "disabled")
    return CacheSettings(
        type_k,
        type_v,
        n_ubatch=_count(key.get("ubatch"), "-ub"),
        n_parallel=_count(key.get("parallel", 1), "-np"),
        kv_unified="kv_unified" in key,
        swa_full="--swa-full" in given,
        flash_attention=str(key.get("flash_attn")) not in switch_off,
    )


def _count(value: object, flag: str) -> int:
    if not str(value).lstrip("-").isdigit():
        raise SetupError(f"{flag} {value} in --server-args: expected a number such as 512")
    return max(1, int(str(value)))  # llama-server takes 0 and -1 for "decide yourself"


def noted_of(argv: Sequence[str]) -> dict[str, Value]:
    """Flags that are neither part of the key nor plumbing (paths, ports, logs, secrets)."""
    known = {f for flags in (*KEY_FLAGS.values(), *KEY_SWITCHES.values()) for f in flags}
    skip = known | set(_SECRET) | set(_PLUMBING)
    return {
        name: True if value is None else value for name, value in pairs(argv) if name not in skip
    }


def noted_env(env: Mapping[str, str]) -> dict[str, Value]:
    """Environment variables a server is started with, as they are noted; secrets hidden."""
    return {f"${k}": "***" if _SECRET_NAME.search(k) else v for k, v in sorted(env.items())}


def without_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` with the values of secret flags replaced by `***`."""
    result: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if name in _SECRET:
            result.append(f"{name}=***" if equals else name)
            hide = not equals
        else:
            result.append("***" if hide else word)
            hide = False
    return tuple(result)


def with_defaults(
    given: Sequence[str], defaults: Sequence[tuple[tuple[str, ...], str | None]]
) -> list[str]:
    """`given` after those `defaults` (spellings, value) whose flag `given` does not set itself."""
    named = {name for name, _ in pairs(given)}
    result: list[str] = []
    for spellings, value in defaults:
        if not named.intersection(spellings):
            result.append(spellings[0])
            if value is not None:
                result.append(value)
    return [*result, *given]
