"""The numbers behind the words: what a server held for the likeliest next tokens."""

from harness.records.strict import Strict

TOP = 10
"""Tokens kept of a distribution; what the others have together is the rest to 1."""

Step = tuple[tuple[int | str, float], ...]
"""The likeliest next tokens, best first: id (text where a server tells no ids), log-probability."""


class Numbers(Strict):
    """One look at a rung's distributions, after the document.

    `steps` holds, for each continuation, a distribution for each token generated greedily: many for
    the first one (the trajectory), one for the others. `missing` says why there are none;
    `new_tokens` is what the server read for it.
    """

    steps: tuple[tuple[Step, ...], ...] = ()
    missing: str | None = None
    new_tokens: int = 0
    wall_ms: float = 0.0
