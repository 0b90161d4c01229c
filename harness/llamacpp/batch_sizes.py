"""How a server reads: a batch is a point of the prefill's curve, and a verdict needs some."""

from collections.abc import Sequence

from harness.llamacpp.flags import values_of

_BATCH_TOKENS = 512
"""Logical batch = llama-server's default physical one: the finest per-batch curve it can report."""
_POINTS = 4
"""Batches that a rung's prefill needs for a verdict."""


def batch_defaults(given: Sequence[str]) -> list[tuple[str, str | None]]:
    """`-b` and `-ub` where not given: as many points as can be, whatever the other one is.

    llama.cpp reads no ubatch larger than its batch, so each follows the other.
    """
    batch, ubatch = _batches(given)
    return [
        ("-b", str(max(_BATCH_TOKENS, ubatch or 0))),
        ("-ub", str(min(_BATCH_TOKENS, batch or _BATCH_TOKENS))),
    ]


def few_points(given: Sequence[str], depths: Sequence[int]) -> str | None:
    """What large batches take from the prefill's curve, in a sentence; `None` where enough is left.

    A rung's new part is read from where the rung below ended.
    """
    batch = max(size or 0 for size in _batches(given))
    parts = zip(depths, (0, *depths), strict=False)
    short = [str(depth) for depth, below in parts if depth - below < _POINTS * batch]
    if not short or batch <= _BATCH_TOKENS:
        return None
    return (
        f"batches of {batch} tokens leave fewer than {_POINTS} points at {', '.join(short)}: "
        f"prefill is judged there by whole readings alone; -b {_BATCH_TOKENS} gives more"
    )


def _batches(given: Sequence[str]) -> list[int | None]:
    """Sizes given for batch and ubatch."""
    values = values_of(given)
    sizes = (values.get(name, "") for name in ("--batch-size", "--ubatch-size"))
    return [int(size) if size.isdigit() and int(size) else None for size in sizes]
