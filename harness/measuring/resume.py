"""Going on with a run that was cut short: which record, and what of it is kept."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.questions.needles import Order
from harness.records.files import readable_runs
from harness.records.lines import REGAINED, RESUMED, AskRecord, Event, Header, Rung, RunRecord
from harness.records.samples import REUSE_TOLERANCE_TOKENS
from harness.records.sittings import (
    changed,
    climb_ms,
    finished_arms,
    finished_rungs,
    same_plan,
    unfinished,
)
from harness.serving.slots import Slots
from harness.serving.wire import Exchange

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Resumption:
    """A record to go on with. `offset_s` is how long ago its run began, by the clock on the wall.

    `log` is the name of the new sitting's server log.
    """

    path: Path
    record: RunRecord
    offset_s: float
    log: str

    @property
    def sitting(self) -> int:
        """The number of the sitting that begins now."""
        return self.record.sittings + 1

    @property
    def rungs(self) -> Mapping[int, Rung]:
        """The rungs that are not measured again, by depth."""
        return finished_rungs(self.record)

    @property
    def asks(self) -> Iterator[AskRecord]:
        """Everything that earlier sittings asked."""
        return (ask for rung in self.record.rungs for ask in rung.asks)

    @property
    def sentence(self) -> str:
        """What is reused, for people."""
        header = self.record.header
        missing = [d for d in header.plan.depths if d not in self.rungs]
        rest = "; nothing is left to measure"
        if missing:
            rest = f"; measured now: {', '.join(map(str, missing))}"
        return (
            f"resumed run {header.run_id} (begun {header.started_at}), sitting {self.sitting}: "
            f"reused the rungs {', '.join(map(str, self.rungs))}{rest}"
        )

    def event(self, now: datetime) -> Event:
        """The line that begins the new sitting."""
        data = {
            "sitting": self.sitting,
            "at": now.astimezone().isoformat(timespec="seconds"),
            "start_s": self.offset_s,
            "reused_depths": list(self.rungs),
            "log": self.log,
        }
        return Event(code=RESUMED, message=self.sentence, data=data)


def find_resumption(
    folder: Path, header: Header, say: Say, *, now: datetime, log: str
) -> Resumption | None:
    """The last run of `header`'s plan, if it is unfinished and nothing has changed since.

    An arm that was finished when its matrix was cut short is gone on with, too: nothing of it is
    measured again. `None` means to measure from the start; `say` has then been told why.
    """
    for path, record in readable_runs(folder):
        if record.imported or record.spot or not same_plan(record.header, header):
            continue
        name = record.header.run_id
        if not unfinished(record) and name not in finished_arms(_records(folder), header):
            say(f"nothing to resume: the last run of this plan, {name}, is complete; measuring")
            return None
        if differing := changed(record.header, header):
            say(f"not resuming run {name}: {'; '.join(differing)}; measuring from the start")
            return None
        if not finished_rungs(record):
            say(f"not resuming run {name}: it finished no rung; measuring from the start")
            return None
        found = Resumption(path, record, _offset_s(record, now), log)
        say(found.sentence)
        return found
    say("nothing to resume: no earlier run of this plan; measuring")
    return None


def _records(folder: Path) -> Iterator[RunRecord]:
    return (record for _, record in readable_runs(folder))


def _offset_s(record: RunRecord, now: datetime) -> float:
    """Seconds since the run began; never before its last measured request, whatever the clock."""
    ends = [
        sample.end_s
        for rung in record.rungs
        for sample in (*rung.prefills, *rung.asks, *rung.generations)
        if sample.end_s is not None
    ]
    began = datetime.fromisoformat(record.header.started_at)
    return max((now.astimezone() - began).total_seconds(), *ends, 0.0)


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
