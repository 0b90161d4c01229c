"""The plan: which rungs, how many tokens each, how often each thing is repeated."""

from collections.abc import Sequence

from harness.core.needles import GRAMMAR_VERSION
from harness.core.records import Plan

TOTAL_BUDGET = 1.1
"""All prefilled tokens of a run stay within this multiple of the context."""

TAIL_ALLOWANCE_TOKENS = 1600
"""Set aside of that budget for warm-up, controls and what questions re-read, per rung a share."""

MAX_COLD_REPEATS = 3


def make_plan(
    *,
    ctx_tokens: int,
    depths: Sequence[int],
    fill: float,
    tail_tokens: int,
    head_tokens: int,
    seed: int,
    background: str,
    generate_tokens: int,
    repeats: int,
) -> Plan:
    """Token budgets of every rung's document and how often short rungs are read again, cold.

    A rung's whole prompt (template head, document, questions) is `fill` of its depth. The
    shallow rungs take fractions of a second, too short for one reading to be believed, so they are
    read again while the run stays within `TOTAL_BUDGET` x context.
    """
    documents = tuple(round(fill * depth) - tail_tokens - head_tokens for depth in depths)
    spare = (
        TOTAL_BUDGET * ctx_tokens
        - (documents[-1] + head_tokens)
        - TAIL_ALLOWANCE_TOKENS
        - len(depths) * 6 * (tail_tokens + 8)
    )
    cold: dict[int, int] = {}
    for depth, document in zip(depths[:-1], documents[:-1], strict=True):
        while cold.get(depth, 0) < MAX_COLD_REPEATS and document + head_tokens <= spare:
            cold[depth] = cold.get(depth, 0) + 1
            spare -= document + head_tokens
    return Plan(
        ctx_tokens=ctx_tokens,
        depths=tuple(depths),
        document_tokens=documents,
        fill=fill,
        seed=seed,
        background="hard" if background == "hard" else "plain",
        grammar_version=GRAMMAR_VERSION,
        generate_tokens=generate_tokens,
        repeats=repeats,
        cold_repeats=cold,
    )
