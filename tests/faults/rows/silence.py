"""Silence and floods."""

from tests.faults import changes as c
from tests.faults.fault import IDLE, Fault

PROGRESS = c.event({"prompt_progress": {"total": 9, "cache": 0, "processed": 1, "time_ms": 1}})

ROWS = (
    Fault(
        "silent",
        "sends nothing at all to a question",
        "ask",
        c.wire(c.put(0, c.Pause(9))),
        "ERROR",
        "STALLED",
        "sent nothing for 0.6 s (our idle limit); raise --idle-timeout",
        options=IDLE,
        cases=(29, 32),
    ),
    Fault(
        "silent-prefill",
        "falls silent during a prefill",
        "rung",
        c.wire(c.only_first(1, c.Pause(9))),
        "ERROR",
        "STALLED",
        "our idle limit",
        nth=2,
        options=IDLE,
        cases=(29,),
    ),
    Fault(
        "silent-answer",
        "falls silent in the middle of an answer",
        "ask",
        c.wire(c.only_first(20, c.Pause(9))),
        "ERROR",
        "STALLED",
        "our idle limit",
        options=IDLE,
    ),
    Fault(
        "slow-first-byte",
        "sends its first byte late, but within the limit",
        "rung",
        c.wire(c.put(0, c.Pause(0.3))),
        "PASS",
        nth=2,
        options=IDLE,
        cases=(29,),
    ),
    Fault(
        "only-pings",
        "hangs in a prefill and goes on sending pings",
        "rung",
        c.wire(c.put(0.2, *c.every(0.12, b": ping\n\n", 40))),
        "ERROR",
        "STALLED",
        "sent nothing but keep-alive comments for 0.6 s (our idle limit)",
        nth=2,
        options=IDLE,
        cases=(29,),
    ),
    Fault(
        "only-pings-at-a-question",
        "hangs in an answer and goes on sending pings",
        "ask",
        c.wire(c.put(0.5, *c.every(0.12, b": ping\n\n", 40))),
        "ERROR",
        "STALLED",
        "it answers and does not work",
        options=IDLE,
    ),
    Fault(
        "pings-between",
        "pings while it works on a batch for most of the limit, batch after batch",
        "rung",
        c.wire(
            c.put(0.2, *[s for _ in range(4) for s in (*c.every(0.12, b": ping\n\n", 3), PROGRESS)])
        ),
        "PASS",
        nth=2,
        options=IDLE,
        cases=(29,),
    ),
    Fault(
        "progress-resets",
        "takes longer than the limit, with progress",
        "rung",
        c.wire(c.put(0.2, *c.every(0.12, PROGRESS))),
        "PASS",
        nth=2,
        options=IDLE,
        cases=(29,),
    ),
    Fault(
        "huge-answer",
        "answers 10 MB in one event",
        "ask",
        c.around("x" * 10_000_000),
        "ERROR",
        "SERVER_ERROR",
        "the server's stream of events is broken",
    ),
    Fault(
        "endless-answer",
        "answers 10 MB in many events",
        "ask",
        c.wire(
            c.put(
                0.5,
                *[c.event({"choices": [{"index": 0, "delta": {"content": "/" * 10_000}}]})] * 1000,
            )
        ),
        "ERROR",
        "SERVER_ERROR",
        "does not keep to the number of tokens",
        cases=(16,),
    ),
)
