"""The numbers behind the words: what a server held for the likeliest next tokens."""

from harness.records.strict import Strict

TOP = 8
"""Tokens kept of a distribution; what the others have together is the rest to 1."""

KEPT = 32
"""Steps of a trajectory that a baseline keeps: it lies in git."""

Step = tuple[tuple[int | str, float], ...]
"""The likeliest next tokens, best first: id (text where a server tells no ids), log-probability."""


class Numbers(Strict):
    """One look at a rung's distributions, after the document.

    `steps` holds, for each continuation, a distribution for each token generated greedily: many for
    the first one (the trajectory), one for the others. `prompt` is a digest of what was read:
    only looks behind the same are compared. `missing` says why there are none;
    `new_tokens` is what the server read for it.
    """

    steps: tuple[tuple[Step, ...], ...] = ()
    prompt: str = ""
    missing: str | None = None
    new_tokens: int = 0
    wall_ms: float = 0.0

    @property
    def kept(self) -> "Numbers":
        """What of it a baseline keeps: no more than `KEPT` steps of the trajectory."""
        return self.model_copy(update={"steps": (self.steps[0][:KEPT], *self.steps[1:])})
