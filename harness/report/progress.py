"""Progress of a long prefill: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.quantities import depth_label, duration, share
from harness.report.text import encodable

_PLAIN_EVERY_S = 15.0
_QUIET_FIRST_S = 3.0
_TERMINAL_EVERY_S = 0.5


class TerminalReporter:
    """Writes through pytest's terminal reporter, past its capture.

    A terminal gets one line that is rewritten in place, anything else a plain line every
    15 s; prefills shorter than 3 s get none.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._terminal: pytest.TerminalReporter | None = config.pluginmanager.get_plugin(
            "terminalreporter"
        )
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._quiet = config.option.verbose < 0
        self._started_s = self._last_s = 0.0
        self._rung: int | None = None

    def say(self, text: str) -> None:
        """One line about the run."""
        with self._uncaptured() as terminal:
            if terminal is not None:
                terminal.ensure_newline()
                terminal.write_line(encodable(text, self._encoding(terminal)))

    def progress(
        self, depth: int, done_tokens: int, total_tokens: int, eta_s: float | None
    ) -> None:
        """`done_tokens` of the rung's prompt are read; `eta_s` seconds are left, if known."""
        now = time.monotonic()
        if self._rung != depth or done_tokens == 0:
            self._rung, self._started_s, self._last_s = depth, now, now
        finished = done_tokens >= total_tokens
        with self._uncaptured() as terminal:
            if terminal is None:
                return
            live = terminal.isatty and not self._quiet
            every = _TERMINAL_EVERY_S if live else _PLAIN_EVERY_S
            due = now - self._last_s >= every or (finished and live)
            if now - self._started_s < _QUIET_FIRST_S or not due:
                return
            self._last_s = now
            left = "" if eta_s is None else f", about {duration(eta_s)} left"
            text = f"{depth_label(depth)}: read {share(done_tokens / max(total_tokens, 1))}{left}"
            if live:
                terminal.rewrite("" if finished else text, erase=True)
            else:
                terminal.ensure_newline()
                terminal.write_line(text)

    def doing(self, depth: int, what: str) -> None:
        """What is done at the rung between prefills, on a terminal; it is gone when `what` is."""
        with self._uncaptured() as terminal:
            if terminal is not None and terminal.isatty and not self._quiet:
                terminal.rewrite(f"{depth_label(depth)}: {what}" if what else "", erase=True)

    @contextmanager
    def _uncaptured(self) -> Iterator[pytest.TerminalReporter | None]:
        if self._capture is None:
            yield self._terminal
            return
        with self._capture.global_and_fixture_disabled():
            yield self._terminal

    @staticmethod
    def _encoding(terminal: pytest.TerminalReporter) -> str | None:
        return getattr(terminal._tw._file, "encoding", None)
