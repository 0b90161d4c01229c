"""Which llama-server flags decide whether two runs may be compared, and which are only noted.

Key flags change what is asked of the machine (context, batch sizes, KV types, attention path,
RoPE scaling, speculation). Everything else (threads, polling, NUMA, build, driver …) is recorded
and shown when it differs, since it is often the very thing under test.
"""

import re
from collections.abc import Mapping, Sequence

from harness.errors import SetupError
from harness.llamacpp.kv import BLOCK_BYTES, CacheSettings

KEY_FLAGS = {
    "ctx": "--ctx-size",
    "parallel": "--parallel",
    "batch": "--batch-size",
    "ubatch": "--ubatch-size",
    "cache_type_k": "--cache-type-k",
    "cache_type_v": "--cache-type-v",
    "flash_attn": "--flash-attn",
    "gpu_layers": "--gpu-layers",
    "rope_scaling": "--rope-scaling",
    "rope_scale": "--rope-scale",
    "yarn_orig_ctx": "--yarn-orig-ctx",
    "draft_model": "--spec-draft-model",
    "draft_max": "--spec-draft-n-max",
    "spec_type": "--spec-type",
}
KEY_SWITCHES = {"kv_unified": "--kv-unified", "swa_full": "--swa-full"}
LLAMA_SERVER_DEFAULTS: dict[str, str] = {
    "batch": "2048",
    "ubatch": "512",
    "cache_type_k": "f16",
    "cache_type_v": "f16",
    "flash_attn": "auto",
}

_SECRET = ("--api-key", "--api-key-file", "--hf-token")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS", re.IGNORECASE)
SERVER_VARIABLE = re.compile(r"LLAMA_|GGML_|HIP_|HSA_|ROCR?_|CUDA_|VK_|MESA_|RADV_|AMD_|OMP_|GOMP_")
"""Names of environment variables that a server or its backends read: their values are noted."""
_PLUMBING = (
    *("--model", "--port", "--host", "--alias", "--log-file", "--metrics", "--slots", "--ui"),
    *("--timeout", "--verbosity", "--fit", "--cache-ram", "--ctx-checkpoints", "--slot-save-path"),
)
_NOT_NOTED = {*KEY_FLAGS.values(), *KEY_SWITCHES.values(), "--kv-offload", *_SECRET, *_PLUMBING}

Value = str | int | float | bool | None


def key_of(argv: Sequence[str]) -> dict[str, Value]:
    """The settings that are part of a baseline's key, llama-server's defaults filled in."""
    given = values_of(argv)
    key: dict[str, Value] = {
        name: given[flag] or "on" if flag in given else LLAMA_SERVER_DEFAULTS[name]
        for name, flag in KEY_FLAGS.items()
        if flag in given or name in LLAMA_SERVER_DEFAULTS
    }
    key |= {name: True for name, flag in KEY_SWITCHES.items() if is_on(given, flag)}
    if given.get("--kv-offload") == OFF:
        key["no_kv_offload"] = True
    return key


DRAFTED_TOKENS = 3
"""llama-server's default of `--spec-draft-n-max`: so many tokens can be rolled back."""


def cache_settings(argv: Sequence[str]) -> CacheSettings:
    """What flags say of the cache, llama-server's defaults filled in.

    Raises:
        SetupError: an unknown cache type, or a size that is no number.
    """
    key, values = key_of(argv), values_of(argv)
    type_k, type_v = str(key["cache_type_k"]), str(key["cache_type_v"])
    mtp_k, mtp_v = (values.get(f"--spec-draft-type-{letter}", "f16") for letter in "kv")
    for name in (type_k, type_v, mtp_k, mtp_v):
        if name not in BLOCK_BYTES:
            known = ", ".join(BLOCK_BYTES)
            raise SetupError(f"--server-args: {name} is no cache type; expected one of {known}")
    speculation = str(key.get("spec_type", "")).split(",")
    switch_off = ("off", "0", "false", "disabled")
    return CacheSettings(
        type_k,
        type_v,
        n_ubatch=_count(key.get("ubatch"), "-ub"),
        n_parallel=_count(key.get("parallel", 1), "-np"),
        kv_unified="kv_unified" in key,
        swa_full="swa_full" in key,
        flash_attention=str(key.get("flash_attn")) not in switch_off,
        speculative_mtp="draft-mtp" in speculation,
        n_rs_seq=_count(key.get("draft_max", DRAFTED_TOKENS), "--spec-draft-n-max")
        if any(kind.startswith("draft") for kind in speculation)
        else 0,
        mtp_type_k=mtp_k,
        mtp_type_v=mtp_v,
    )


def _count(value: object, flag: str) -> int:
    if not str(value).lstrip("-").isdigit():
        raise SetupError(f"{flag} {value} in --server-args: expected a number such as 512")
    return max(1, int(str(value)))  # llama-server takes 0 and -1 for "decide yourself"


def noted_of(argv: Sequence[str]) -> dict[str, Value]:
    """Flags that are neither part of the key nor plumbing (paths, ports, logs, secrets)."""
    noted = ((name, value) for name, value in pairs(argv) if called(name) not in _NOT_NOTED)
    return {name: True if value is None else _bare(value) for name, value in noted}


def noted_env(env: Mapping[str, str]) -> dict[str, Value]:
    """Environment variables a server is started with; values only of those that servers read."""
    return {
        f"${name}": _bare(value)
        if SERVER_VARIABLE.match(name) and not _SECRET_NAME.search(name)
        else "***"
        for name, value in sorted(env.items())
    }


def _bare(value: str) -> str:
    """A value without what only its address lets in: user, password, query."""
    if "://" not in value:
        return value
    scheme, _, rest = value.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{re.split('[?#]', path)[0]}"


def without_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` with the values of secret flags replaced by `***`, addresses without theirs."""
    result: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if called(name) in _SECRET:
            result.append(f"{name}=***" if equals else name)
            hide = not equals
        else:
            result.append("***" if hide else _bare(word))
            hide = False
    return tuple(result)


def with_defaults(given: Sequence[str], defaults: Sequence[tuple[str, str | None]]) -> list[str]:
    """`given` after those `defaults` (flag, value) that `given` does not set itself."""
    named = values_of(given)
    wanted = [default for default in defaults if called(default[0]) not in named]
    return [*(word for default in wanted for word in default if word is not None), *given]


SPELLINGS: tuple[tuple[str, ...], ...] = (
    ("--threads", "-t"),
    ("--threads-batch", "-tb"),
    ("--cpu-mask", "-C"),
    ("--cpu-range", "-Cr"),
    ("--ctx-size", "-c"),
    ("--predict", "--n-predict", "-n"),
    ("--batch-size", "-b"),
    ("--ubatch-size", "-ub"),
    ("--flash-attn", "-fa"),
    ("--kv-offload", "--no-kv-offload", "-kvo", "-nkvo"),
    ("--repack", "--no-repack", "-nr"),
    ("--cache-type-k", "-ctk"),
    ("--cache-type-v", "-ctv"),
    ("--defrag-thold", "-dt"),
    ("--direct-io", "--no-direct-io", "-dio", "-ndio"),
    ("--load-mode", "-lm"),
    ("--device", "-dev"),
    ("--override-tensor", "-ot"),
    ("--cpu-moe", "-cmoe"),
    ("--n-cpu-moe", "-ncmoe"),
    ("--gpu-layers", "--n-gpu-layers", "-ngl"),
    ("--split-mode", "-sm"),
    ("--tensor-split", "-ts"),
    ("--main-gpu", "-mg"),
    ("--fit", "-fit"),
    ("--fit-target", "-fitt"),
    ("--fit-ctx", "-fitc"),
    ("--model", "-m"),
    ("--model-url", "-mu"),
    ("--hf-repo", "-hf", "-hfr"),
    ("--hf-file", "-hff"),
    ("--hf-token", "-hft"),
    ("--verbosity", "--log-verbosity", "-lv"),
    ("--verbose", "--log-verbose", "-v"),
    ("--seed", "-s"),
    ("--parallel", "-np"),
    ("--cont-batching", "--no-cont-batching", "-cb", "-nocb"),
    ("--kv-unified", "--no-kv-unified", "-kvu", "-no-kvu"),
    ("--cache-ram", "-cram"),
    ("--ctx-checkpoints", "--swa-checkpoints", "-ctxcp"),
    ("--checkpoint-min-step", "-cms"),
    ("--mmproj", "-mm"),
    ("--alias", "-a"),
    ("--timeout", "-to"),
    ("--reasoning", "-rea"),
    ("--ui", "--webui", "--no-ui", "--no-webui"),
    ("--spec-draft-model", "--model-draft", "-md"),
    ("--spec-draft-n-max", "--draft", "--draft-n", "--draft-max"),
    ("--spec-draft-n-min", "--draft-min", "--draft-n-min"),
    ("--spec-draft-p-min", "--draft-p-min"),
    ("--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft", "-ngld"),
    ("--spec-draft-device", "--device-draft", "-devd"),
    ("--spec-draft-threads", "--threads-draft", "-td"),
    ("--spec-draft-type-k", "--cache-type-k-draft", "-ctkd"),
    ("--spec-draft-type-v", "--cache-type-v-draft", "-ctvd"),
)
"""Spellings of one setting, the one it is called by first (llama.cpp b10434, `--help`)."""


_CALLED = {name: group[0] for group in SPELLINGS for name in group}
_NEGATIVE = {"-nkvo", "-nr", "-ndio", "-nocb", "-no-kvu"}
_SHORT = {name.lstrip("-"): name for name in _CALLED if not name.startswith("--")}


OFF = "off"
"""Value of a switch that is given as `--no-…`."""
Group = tuple[str, ...]
"""A flag and the words of its value."""


def called(flag: str) -> str:
    """The one name of a setting: `-ctk` and `--cache-type-k`, `--no-mmap` and `--mmap` are one."""
    if flag in _CALLED:
        return _CALLED[flag]
    return "--" + flag[5:] if flag.startswith("--no-") else flag


def with_dashes(name: str) -> str:
    """A flag written without dashes, as a key of a table: `ctk`, `cache_type_k`, `rope-scale`."""
    if name.startswith("-"):
        return name
    return _SHORT.get(name) or "--" + name.replace("_", "-")


def groups(words: Sequence[str]) -> list[Group]:
    """The words of a command line, a flag and its values together."""
    result: list[Group] = []
    for word in words:
        if is_flag(word) or not result:
            result.append((word,))
        else:
            result[-1] = (*result[-1], word)
    return result


def pairs(argv: Sequence[str]) -> list[tuple[str, str | None]]:
    """`argv` as (flag, value) pairs, in order; a switch has the value `None`."""
    result: list[tuple[str, str | None]] = []
    for flag, *words in groups(argv):
        name, equals, value = flag.partition("=")
        if is_flag(name):
            result.append((name, value if equals else " ".join(words) if words else None))
    return result


def is_flag(word: str) -> bool:
    """Whether a word of a command line is a flag and not a (perhaps negative) value."""
    return word.startswith("-") and not word[1:].replace(".", "", 1).isdigit()


def setting_of(group: Group) -> str:
    """The setting that a flag with its value is about."""
    return called(group[0].partition("=")[0])


def merged(under: Sequence[str], over: Sequence[str]) -> tuple[str, ...]:
    """`under` without the settings that `over` gives, whatever their spelling, then `over`."""
    given = {setting_of(group) for group in groups(over)}
    kept = [g for g in groups(under) if setting_of(g) not in given]
    return (*(word for group in kept for word in group), *over)


def values_of(argv: Sequence[str]) -> dict[str, str]:
    """Value of every setting of a command line, by its first name: the last one given counts.

    A switch has "", and `OFF` where it was given as `--no-…`.
    """
    return {
        called(name): (OFF if name.startswith("--no-") or name in _NEGATIVE else "")
        if value is None
        else value
        for name, value in pairs(argv)
    }


def is_on(given: Mapping[str, str], switch: str) -> bool:
    """Whether `values_of` some argv has this switch on."""
    return given.get(switch, OFF) != OFF


def spellings(flag: str) -> tuple[str, ...]:
    """All that `flag` may be written as, `flag` first."""
    return (flag, *(name for name, first in _CALLED.items() if first == called(flag)))
