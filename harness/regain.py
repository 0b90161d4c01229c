"""A resumed run's document back into the KV cache: restored from a saved slot, or read again."""

from collections.abc import Callable

from harness.core.cells import REUSE_TOLERANCE_TOKENS
from harness.core.needles import Order
from harness.core.records import REGAINED, AskRecord, Event, RunRecord
from harness.core.sittings import climb_ms
from harness.serving.client import Exchange
from harness.slots import Slots

Read = Callable[[bool], Exchange]
"""Reads the document, reusing what is cached or not."""
Answer = Callable[[Order], AskRecord]
"""Asks the finished rung's questions again."""


def regain(
    depth: int, record: RunRecord, slots: Slots | None, *, prefill: Read, ask: Answer
) -> tuple[Event, int]:
    """Have the document up to the finished rung `depth` cached; what was done, and its tokens.

    A restored slot counts only if the server then reuses all of it and answers as it did when the
    rung was measured; otherwise the document is read again.
    """
    before_ms = climb_ms(record, depth)
    data: dict[str, object] = {"depth": depth, "read_before_ms": before_ms}
    doubt = None
    restored_ms = slots.restore(depth, record) if slots is not None else None
    if restored_ms is not None:
        exchange = prefill(True)
        data["restored_ms"] = restored_ms
        doubt = _doubt(exchange, depth, record, ask)
        if doubt is None:
            said = (
                f"the document up to {depth} was restored from its saved slot in "
                f"{restored_ms / 1e3:.2f} s instead of being read in {before_ms / 1e3:.2f} s, "
                "and answered as before"
            )
            return Event(code=REGAINED, message=said, data={"how": "slot", **data}), _all(exchange)
    exchange = prefill(False)
    data |= {"read_again_ms": exchange.wall_ms, "doubt": doubt}
    said = f"the document up to {depth} was read again in {exchange.wall_ms / 1e3:.2f} s" + (
        f": {doubt}" if doubt else ""
    )
    return Event(code=REGAINED, message=said, data={"how": "prefill", **data}), _all(exchange)


def _doubt(exchange: Exchange, depth: int, record: RunRecord, ask: Answer) -> str | None:
    """Why a restored slot is not to be built upon; `None` when it may be."""
    total, reused = _all(exchange), exchange.reused_tokens or 0
    if total - reused > REUSE_TOLERANCE_TOKENS:
        return f"its saved slot gave back {reused} of {total} tokens"
    rung = record.rung(depth)
    earlier = [a for a in rung.counted_asks if a.order == "forward"] if rung is not None else []
    again = ask("forward")
    if not earlier or _needles(again) not in [_needles(a) for a in earlier]:
        return "with its saved slot, the rung's questions were answered otherwise than before"
    return None


def _all(exchange: Exchange) -> int:
    return (exchange.new_tokens or 0) + (exchange.reused_tokens or 0)


def _needles(ask: AskRecord) -> dict[int, str]:
    return {number: code for number, code in ask.given.items() if number != ask.control_number}
