"""Following a prefill while it runs: what is left, and cliffs said the moment they are one."""

import time

from harness.core.cost import Cliff, PrefillWatch
from harness.core.records import Chunk
from harness.ports import Reporter

_WATCH_EVERY_S = 1.0


def cliff_sentence(cliff: Cliff) -> str:
    """A cliff as one sentence."""
    return (
        f"cliff: from {cliff.at_tokens} tokens on the prefill runs at {cliff.seen_tok_s:.0f} tok/s "
        f"where its own curve says {cliff.expected_tok_s:.0f} ({cliff.factor:.0f} times slower)"
    )


class PrefillProgress:
    """Follows one prefill: a forecast of what is left, and cliffs said the moment they are one.

    The curve is refitted at most once a second, so that on a CPU the fit does not compete with
    the server.
    """

    def __init__(self, depth: int, watch: PrefillWatch, reporter: Reporter) -> None:
        self._depth, self._watch, self._reporter = depth, watch, reporter
        self._from_tokens: int | None = None
        self._from_s = 0.0
        self.cliffs: list[Cliff] = []

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if self._from_tokens is None:
            self._from_tokens, self._from_s = done, now
        elif now - self._from_s >= _WATCH_EVERY_S and done > self._from_tokens:
            chunk = Chunk(
                start_tokens=self._from_tokens, end_tokens=done, ms=(now - self._from_s) * 1e3
            )
            self._from_tokens, self._from_s = done, now
            if cliff := self._watch.add(chunk):
                self.cliffs.append(cliff)
                self._reporter.say(cliff_sentence(cliff))
        left = self._watch.remaining_ms(total)
        eta_s = None if left is None or done >= total else left.ms / 1e3
        self._reporter.progress(self._depth, done, total, eta_s)
