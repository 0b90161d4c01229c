"""Following a prefill while it runs: what is left, cliffs said at once, and when to stop."""

import time
from collections.abc import Callable, Sequence

from harness.llamacpp.cost import Cliff
from harness.measuring.budget import Budget
from harness.measuring.reporter import Reporter
from harness.records.lines import Chunk

_WATCH_EVERY_S = 1.0
_KEEP_EVERY_S = 5.0

Keep = Callable[[int, list[tuple[int, float]]], None]
"""Called with a rung's depth and points (tokens read, ms since the request) not yet on disk."""


def cliff_sentence(cliff: Cliff) -> str:
    """A cliff as one sentence."""
    return (
        f"cliff: from {cliff.at_tokens} tokens on the prefill runs at {cliff.seen_tok_s:.0f} tok/s "
        f"where its own curve says {cliff.expected_tok_s:.0f} ({cliff.factor:.0f} times slower)"
    )


class PrefillProgress:
    """Follows one prefill: a forecast of what is left, and cliffs said the moment they are one.

    What has been read goes to `keep` every `_KEEP_EVERY_S`, so that a run killed in hour 16 of a
    prefill leaves those 16 hours' curve. The curve is refitted at most once a second, so that on a
    CPU the fit does not compete with the server. `log_lines` gives the server's newest telling
    lines. A prefill of the climb (not a cold one) is stopped when its rest passes the budget: the
    call raises `OverBudgetError`.
    """

    def __init__(
        self,
        depth: int,
        budget: Budget,
        reporter: Reporter,
        log_lines: Callable[[], Sequence[str]],
        keep: Keep | None = None,
        *,
        climbing: bool,
    ) -> None:
        self._depth, self._budget, self._reporter = depth, budget, reporter
        self._log_lines = log_lines
        self._keep = keep
        self._climbing = climbing
        self._began_s = self._kept_s = time.perf_counter()
        self._points: list[tuple[int, float]] = []
        self._from_tokens: int | None = None
        self._from_s = 0.0
        self.cliffs: list[tuple[Cliff, tuple[str, ...]]] = []

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        watch = self._budget.watch
        self._points.append((done, round((now - self._began_s) * 1e3, 3)))
        if self._keep is not None and now - self._kept_s >= _KEEP_EVERY_S:
            self._keep(self._depth, self._points)
            self._points, self._kept_s = [], now
        if self._from_tokens is None:
            self._from_tokens, self._from_s = done, now
        elif now - self._from_s >= _WATCH_EVERY_S and done > self._from_tokens:
            chunk = Chunk(
                start_tokens=self._from_tokens, end_tokens=done, ms=(now - self._from_s) * 1e3
            )
            self._from_tokens, self._from_s = done, now
            if cliff := watch.add(chunk):
                self._say(cliff)
            if self._climbing and done < total:
                self._budget.refuse_rest(total)
        left = watch.remaining_ms(total)
        eta_s = None if left is None or done >= total else left.ms / 1e3
        self._reporter.progress(self._depth, done, total, eta_s)

    def _say(self, cliff: Cliff) -> None:
        lines = tuple(self._log_lines())
        self.cliffs.append((cliff, lines))
        self._reporter.say(cliff_sentence(cliff))
        for line in lines:
            self._reporter.say(f"  | {line}")
