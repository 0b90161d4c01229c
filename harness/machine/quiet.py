"""Preflight: is the machine quiet enough to measure on, and waiting until it is."""

import time
from collections.abc import Callable, Iterable

from harness.core.contention import busy
from harness.machine.contention import Sampler


def busy_now(exclude: Iterable[int] = (), seconds: float = 2.0) -> str | None:
    """Why the machine is too busy to measure on, after watching it for `seconds`; `None`: quiet.

    To be called while neither the harness nor its server works.
    """
    sampler = Sampler(exclude)
    sampler.mark()
    time.sleep(seconds)
    sampler.mark()
    return busy(sampler.readings())


def wait_quiet(
    timeout_s: float,
    exclude: Iterable[int] = (),
    *,
    seconds: float = 2.0,
    say: Callable[[str], None] = lambda _: None,
) -> str | None:
    """Wait until the machine is quiet; the reason it still isn't after `timeout_s`, or `None`.

    `say` gets every reason that differs from the one before.
    """
    deadline = time.monotonic() + timeout_s
    pids = tuple(exclude)
    said: str | None = None
    while True:
        reason = busy_now(pids, seconds)
        if reason is None or time.monotonic() >= deadline:
            return reason
        if reason != said:
            say(reason)
            said = reason
