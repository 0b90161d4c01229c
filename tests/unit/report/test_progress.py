"""What a person sees while a rung is measured: a live line on a terminal, else plain ones."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.report import progress
from harness.report.progress import TerminalReporter


class Screen:
    """pytest's terminal reporter, as far as it is used, and all that was written."""

    def __init__(self, isatty: bool) -> None:
        self.isatty = isatty
        self.written: list[str] = []
        self._tw = SimpleNamespace(_file=SimpleNamespace(encoding="utf-8"))

    def ensure_newline(self) -> None:
        self.written.append("\n")

    def write_line(self, text: str) -> None:
        self.written.append(text)

    def rewrite(self, text: str, *, erase: bool) -> None:
        assert erase
        self.written.append(f"\r{text}")


def reporter(screen: Screen, verbose: int = 0) -> TerminalReporter:
    plugins = SimpleNamespace(get_plugin={"terminalreporter": screen}.get)
    config: Any = SimpleNamespace(pluginmanager=plugins, option=SimpleNamespace(verbose=verbose))
    return TerminalReporter(config)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_has_one_line_that_says_what_is_done_and_is_gone_at_the_end(
    clock: list[float],
) -> None:
    screen = Screen(isatty=True)
    shown = reporter(screen)
    shown.progress(2048, 0, 1704, None)
    clock[0] += 4.0
    shown.progress(2048, 1024, 1704, 25.0)
    shown.progress(2048, 1704, 1704, 0.0)
    shown.doing(2048, "asking, 1 of 3")
    shown.doing(2048, "")
    assert screen.written == [
        "\r2K: read 60 %, about 25 s left",
        "\r",
        "\r2K: asking, 1 of 3",
        "\r",
    ]


def test_a_pipe_has_whole_lines_of_its_own_and_only_of_what_takes_long(clock: list[float]) -> None:
    screen = Screen(isatty=False)
    shown = reporter(screen)
    shown.progress(32768, 0, 29491, None)
    clock[0] += 16.0
    shown.progress(32768, 8192, 29491, 200.0)
    shown.doing(32768, "asking, 1 of 3")
    assert screen.written == ["\n", "32K: read 28 %, about 3 min 20 s left"]
