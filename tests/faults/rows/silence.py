"""Silence and floods."""

from tests.faults import changes as c
from tests.faults.fault import IDLE, Fault


def progress(processed: int) -> bytes:
    """A progress event."""
    point = {"total": 99, "cache": 0, "processed": processed, "time_ms": 1}
    return c.event({"prompt_progress": point})


PINGS = c.every(0.12, b": ping\n\n", 3)

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
        "sent neither text nor progress for 0.6 s (our idle limit)",
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
    *(
        Fault(
            name,
            what,
            "rung",
            c.wire(c.put(at_s, *c.every(0.12, event, 40))),
            "ERROR",
            "STALLED",
            "neither text nor progress for 0.6 s",
            nth=2,
            options=IDLE,
            cases=(75,),
        )
        for name, what, at_s, event in (
            (
                "comments-like-data",
                "hangs in a prefill and sends comments that look like events",
                *(0.2, b": data: still here\n\n"),
            ),
            (
                "progress-that-stands-still",
                "hangs in a prefill and repeats its progress",
                *(0.0, progress(1)),
            ),
        )
    ),
    Fault(
        "empty-events",
        "hangs in an answer and sends events that say nothing",
        "ask",
        c.wire(c.put(0.5, *c.every(0.12, c.event({}), 40))),
        "ERROR",
        "STALLED",
        "neither text nor progress for 0.6 s",
        options=IDLE,
        cases=(75,),
    ),
    Fault(
        "flood-of-progress",
        "floods a prefill with progress",
        "rung",
        c.wire(c.put(0, *[progress(1) * 1000] * 200)),
        "ERROR",
        "SERVER_ERROR",
        "MiB in answer to one request",
        nth=2,
        cases=(75,),
    ),
    Fault(
        "pings-between",
        "pings while it works on a batch for most of the limit, batch after batch",
        "rung",
        c.wire(c.put(0, *[s for n in range(4) for s in (*PINGS, progress(n))])),
        "PASS",
        nth=2,
        options=IDLE,
        cases=(29,),
    ),
    Fault(
        "progress-resets",
        "takes longer than the limit, with progress",
        "rung",
        c.wire(c.put(0, *[s for n in range(8) for s in (c.Pause(0.12), progress(n))])),
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
