"""Is it what you think it is: what a server's log and properties say, against what was asked for.

A run that measures something else than asked is worse than none: a missing GPU runtime that lets
everything run on the CPU looks like a regression of 70 %, and a context that was capped like a
prompt that fits. Only what is known to differ is said; what a log doesn't tell is passed over.
"""

import re
from collections.abc import Sequence

from harness.llamacpp.flags import values_of
from harness.llamacpp.log import LogFindings, is_host

_SCALE_TOLERANCE = 0.01
_COMMIT_CHARS = 7


def discrepancies(
    argv: Sequence[str],
    found: LogFindings,
    *,
    n_ctx: int | None,
    device: str | None = None,
) -> tuple[str, ...]:
    """What a started server does otherwise than asked, a clause each; empty if nothing.

    Args:
        argv: its whole command line.
        found: what its log says so far.
        n_ctx: tokens of context in a slot, as it reports them.
        device: part of the name of the device that must hold the weights (`Vulkan0`, `8060S`,
            `CPU`), if one is expected.
    """
    given = values_of(argv)
    return tuple(
        clause
        for clause in (
            _device(found, given.get("--gpu-layers"), device),
            _layers(found, given.get("--gpu-layers"), device),
            _context(given, n_ctx),
            _types(given, found),
            _flash(given.get("--flash-attn"), found),
            _batch(given, found, n_ctx),
            _stretch(given.get("--rope-scale"), found),
        )
        if clause is not None
    )


def other_build(build: str, expected: str | None) -> str | None:
    """The clause for a build without the word `expected` (`b10434`), or a commit that begins so."""
    if expected is None:
        return None
    end = "" if len(expected) >= _COMMIT_CHARS else r"(?!\w)"
    if re.search(rf"(?<!\w){re.escape(expected)}{end}", build, re.IGNORECASE):
        return None
    return f"its build is {build}, not {expected}"


def _device(found: LogFindings, gpu_layers: str | None, expected: str | None) -> str | None:
    holders = sorted({b.device for b in found.buffers if b.use == "model" and b.total_bytes})
    if not holders:
        return None
    lie = f"its weights lie on {', '.join(holders)}"
    if expected is None:
        if found.on_gpu is False and gpu_layers not in (None, "", "0", "-1", "auto"):
            return (
                f"-ngl {gpu_layers} asks for layers on a GPU but {lie} (no GPU, or its runtime is "
                "missing); mend that, or say that the CPU is meant with --expect-device CPU"
            )
        return None
    wanted = expected.lower()
    if wanted == "cpu":
        return f"{lie}, not only on the CPU" if found.on_gpu else None
    described = {d.name: d for d in found.devices}
    for name in holders:
        known = described.get(name)
        if known is not None and wanted in known.description.lower():
            return None
        is_gpu = known.is_gpu if known is not None else not is_host(name)
        if is_gpu and wanted in name.lower():
            return None
    return f"{lie}, not on {expected}"


def _layers(found: LogFindings, gpu_layers: str | None, expected: str | None) -> str | None:
    if found.offloaded is None or found.on_gpu is not True or (expected or "").lower() == "cpu":
        return None
    done, of_all = found.offloaded
    if gpu_layers == "all":
        gpu_layers = str(of_all)
    if gpu_layers is None or not gpu_layers.isdigit() or done >= min(int(gpu_layers), of_all):
        return None
    return f"{done} of {of_all} layers were offloaded where -ngl asks for {gpu_layers}"


def _context(given: dict[str, str], n_ctx: int | None) -> str | None:
    asked, slots = given.get("--ctx-size", ""), given.get("--parallel", "1")
    if n_ctx is None or not asked.isdigit() or not slots.isdigit() or int(slots) == 0:
        return None
    wanted = int(asked) // int(slots)
    if n_ctx >= wanted:
        return None
    each = "" if slots == "1" else f" in each of {slots} slots"
    return (
        f"its context is {n_ctx} tokens{each} where -c {asked} asks for {wanted}: it was capped, "
        "most likely to the trained length"
    )


def _types(given: dict[str, str], found: LogFindings) -> str | None:
    if found.kv_types is None:
        return None
    asked = (given.get("--cache-type-k", "f16"), given.get("--cache-type-v", "f16"))
    if found.kv_types == asked:
        return None
    return f"its cache holds K as {found.kv_types[0]} and V as {found.kv_types[1]}, not " + (
        f"{asked[0]} and {asked[1]}"
    )


def _flash(asked: str | None, found: LogFindings) -> str | None:
    wanted = {"on": True, "1": True, "off": False, "0": False, "": True}.get(asked or "auto")
    if asked is None or wanted is None or found.flash_attention in (None, wanted):
        return None
    return f"flash attention is {'on' if found.flash_attention else 'off'} in spite of -fa {asked}"


def _batch(given: dict[str, str], found: LogFindings, n_ctx: int | None) -> str | None:
    for setting, flag, name in (
        ("--batch-size", "-b", "n_batch"),
        ("--ubatch-size", "-ub", "n_ubatch"),
    ):
        asked, is_now = given.get(setting, ""), found.settings.get(name)
        if is_now is None or not asked.isdigit() or n_ctx is None or int(asked) > n_ctx:
            continue
        if is_now != int(asked):
            return f"{name} is {is_now} where {flag} asks for {asked}"
    return None


def _stretch(asked: str | None, found: LogFindings) -> str | None:
    if asked is None or found.freq_scale is None:
        return None
    try:
        wanted = 1.0 / float(asked)
    except (ValueError, ZeroDivisionError):
        return None
    if abs(found.freq_scale / wanted - 1.0) <= _SCALE_TOLERANCE:
        return None
    return (
        f"--rope-scale {asked} had no effect: positions are scaled by {found.freq_scale:g}, "
        f"not by {wanted:g}"
    )
