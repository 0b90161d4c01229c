"""How llama-server's flags are spelt: several names for one setting, and names without dashes."""

from collections.abc import Sequence

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
_SHORT = {name.lstrip("-"): name for name in _CALLED if not name.startswith("--")}

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
