"""SIGTERM, by which job schedulers end a job: taken once as Ctrl-C, then passed over."""

import signal
import threading


def as_ctrl_c() -> None:
    """From now on the first SIGTERM is a Ctrl-C; summary and record are due then, too.

    Those that follow are passed over, so that none tears the summary.
    """

    def interrupt(_number: int, _frame: object) -> None:
        pass_over()
        raise KeyboardInterrupt("SIGTERM")

    _set(interrupt)


def pass_over() -> None:
    """Pass it over: what was measured is being written."""
    _set(signal.SIG_IGN)


def as_usual() -> None:
    """Let it end the process, as it does by itself."""
    _set(signal.SIG_DFL)


def _set(handler: "signal._HANDLER") -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
