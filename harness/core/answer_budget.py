"""When an answer that its token budget cut is asked for again, and with how much."""

from harness.core.records import AskRecord

FACTOR = 4
"""How much larger the second budget is; there is no third."""


def larger_budget(record: AskRecord, budget_tokens: int, n_ctx: int | None) -> int | None:
    """The budget, in tokens, to ask again with; `None` when asking again would tell nothing new.

    Only an answer whose sole fault is its budget is asked again: every other wrong answer counts as
    it is. `n_ctx` is the server's context, which prompt and answer share.
    """
    if record.invalid != ("budget",):
        return None
    larger = FACTOR * budget_tokens
    if n_ctx is not None and record.prompt_tokens is not None:
        larger = min(larger, n_ctx - record.prompt_tokens)
    return larger if larger > budget_tokens else None
