"""Combinations of flags that no llama-server takes, refused with the reason before one starts."""

from collections.abc import Sequence

from harness.llamacpp.buffers import QUANTISED
from harness.llamacpp.flags import is_on, values_of
from harness.llamacpp.kv import BLOCK_BYTES
from harness.llamacpp.layers import Metadata, head_length, model_layers


def objection(argv: Sequence[str], metadata: Metadata | None, *, ctx_tokens: int) -> str | None:
    """Why these flags cannot work together; `None` where nothing is known against them.

    Args:
        argv: flags given to llama-server; what is absent has its default.
        metadata: the model's, `None` where it is not readable from here.
        ctx_tokens: the context that a slot must have.
    """
    given = values_of(argv)
    found = (
        _types(given) or _batches(given) or _slots(given, ctx_tokens) or _stretch(given, ctx_tokens)
    )
    if found is None and metadata is not None:
        return _model(given, metadata)
    return found


def _types(given: dict[str, str]) -> str | None:
    for setting, flag in (("--cache-type-k", "-ctk"), ("--cache-type-v", "-ctv")):
        name = given.get(setting, "f16")
        if name not in BLOCK_BYTES:
            return f"{flag} {name} is no cache type; there are {', '.join(BLOCK_BYTES)}"
    value_type = given.get("--cache-type-v", "f16")
    if value_type in QUANTISED and given.get("--flash-attn") in ("off", "0"):
        return f"-ctv {value_type} with -fa off: a quantised V cache needs flash attention"
    return None


def _batches(given: dict[str, str]) -> str | None:
    b, ub = given.get("--batch-size", "2048"), given.get("--ubatch-size", "512")
    if b.isdigit() and ub.isdigit() and int(ub) > int(b) and "--ubatch-size" in given:
        return (
            f"-ub {ub} is larger than -b {b}: the server would take {b} for both, and the arm "
            "would not be what it says"
        )
    return None


def _slots(given: dict[str, str], ctx_tokens: int) -> str | None:
    slots, ctx = given.get("--parallel", "1"), given.get("--ctx-size", str(ctx_tokens))
    if not (slots.isdigit() and ctx.isdigit() and int(slots)) or is_on(given, "--kv-unified"):
        return None
    each = int(ctx) // int(slots)
    if each < ctx_tokens:
        return (
            f"-np {slots} leaves each slot {each} of the {ctx} tokens of -c, and {ctx_tokens} are "
            f"to be measured; give -c {ctx_tokens * int(slots)}"
        )
    return None


def _stretch(given: dict[str, str], ctx_tokens: int) -> str | None:
    scale, trained = given.get("--rope-scale"), given.get("--yarn-orig-ctx", "")
    if given.get("--rope-scaling") == "none" and scale is not None:
        return f"--rope-scale {scale} with --rope-scaling none: nothing would be scaled"
    if given.get("--rope-scaling") != "yarn":
        return None
    if scale is None and "--rope-freq-scale" not in given:
        return "--rope-scaling yarn without --rope-scale: nothing would be stretched"
    try:
        reach = float(scale or "nan") * int(trained)
    except ValueError:
        return None
    if 0 < reach < ctx_tokens:
        return (
            f"--rope-scale {scale} stretches {trained} tokens to {reach:.0f}, and {ctx_tokens} are "
            f"to be measured; give --rope-scale {-(-ctx_tokens // int(trained))}"
        )
    return None


def _model(given: dict[str, str], metadata: Metadata) -> str | None:
    model = model_layers(metadata)
    if "draft-mtp" in given.get("--spec-type", "") and model.layers and not model.mtp:
        return "--spec-type draft-mtp: the model has no MTP layers"
    for setting, flag, key in (
        ("--cache-type-k", "-ctk", "key_length"),
        ("--cache-type-v", "-ctv", "value_length"),
    ):
        name = given.get(setting, "f16")
        block, _ = BLOCK_BYTES[name]
        head = head_length(metadata, f"attention.{key}")
        if head is not None and head % block:
            return (
                f"{flag} {name} stores blocks of {block} values, which the model's heads of {head} "
                "do not fill"
            )
    return None
