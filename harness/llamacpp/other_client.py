"""Whether another client used the same server, by its own counters before and after our requests.

`/slots` lists each slot with the number of its last task; `/metrics` (with `--metrics`) counts the
tokens read and generated for everybody. Neither is to be asked while a request is timed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALLOWED_TOKENS = 16
"""Beyond our own count: the readiness check's and the like."""
_COUNTER = re.compile(r"^llamacpp:(prompt_tokens|tokens_predicted)_total\s+([\d.e+]+)$", re.M)


@dataclass(frozen=True, slots=True)
class Counters:
    """What the server had done at one moment; `None` and empty where it doesn't tell."""

    read_tokens: int | None = None
    generated_tokens: int | None = None
    tasks: dict[int, int] = field(default_factory=dict)
    """Number of the last task of each slot."""
    busy: tuple[int, ...] = ()


def counters(metrics: str | None, slots: Sequence[Mapping[str, Any]] | None) -> Counters:
    """From the text of `/metrics` and the answer of `/slots`, either of which may be missing."""
    found = {name: round(float(value)) for name, value in _COUNTER.findall(metrics or "")}
    return Counters(
        found.get("prompt_tokens"),
        found.get("tokens_predicted"),
        {int(s["id"]): int(s["id_task"]) for s in slots or () if "id" in s and "id_task" in s},
        tuple(int(s["id"]) for s in slots or () if "id" in s and s.get("is_processing")),
    )


def other_client(
    before: Counters,
    after: Counters,
    *,
    read_tokens: int,
    generated_tokens: int,
    own_slot: int = 0,
) -> str | None:
    """That somebody else's requests ran between two moments, in a sentence; `None`: none seen.

    `read_tokens` and `generated_tokens` are what the server did for us between them. Both moments
    lie between our requests, so that no slot should be busy.
    """
    seen = []
    for was, now, ours, verb in (
        (before.read_tokens, after.read_tokens, read_tokens, "read"),
        (before.generated_tokens, after.generated_tokens, generated_tokens, "generated"),
    ):
        if was is not None and now is not None and now - was - ours > ALLOWED_TOKENS:
            seen.append(f"{verb} {now - was - ours:,} tokens that are not ours")
    used = {s for s, task in after.tasks.items() if before.tasks.get(s, task) != task}
    others = sorted(({*used} - {own_slot}) | {*before.busy, *after.busy})
    if others:
        seen.append(f"worked in slot {', '.join(map(str, others))}")
    if not seen:
        return None
    return f"contention: another client used the same server: it {' and '.join(seen)}"
