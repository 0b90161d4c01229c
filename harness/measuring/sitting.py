"""What one sitting of a run has: server, prompts, record, who is told, what watches, a clock."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from harness.measuring.other_clients import OtherClients
from harness.measuring.recorded import prefill_record
from harness.measuring.reporter import MemoryReader, Reporter, Watcher
from harness.measuring.script import Script
from harness.records.lines import AnyLine, Event, Prefill
from harness.serving.session import Session
from harness.serving.wire import Exchange
from harness.settings import Settings


@dataclass(frozen=True, slots=True)
class Sitting:
    """A sitting: one server, one pass.

    `append` puts a line on the record; `origin_ns` (`time.perf_counter_ns`) is when the run began,
    which the times of samples count from; `number` counts the run's sittings from 1.
    """

    session: Session
    script: Script
    settings: Settings
    append: Callable[[AnyLine], None]
    reporter: Reporter
    watcher: Watcher
    memory: MemoryReader
    number: int = 1
    others: OtherClients = field(default_factory=OtherClients)
    origin_ns: int = field(default_factory=time.perf_counter_ns)

    def event(self, code: str, message: str, **data: object) -> None:
        """Put something about the run as a whole on the record."""
        self.append(Event(code=code, message=message, data=dict(data)))

    def alone(self) -> AbstractContextManager[None]:
        """Around a measured request: another client's that runs meanwhile is seen."""
        return self.others.watched(self.session.client, self.event)

    def reading(self, exchange: Exchange, kind: str, planned_cached_tokens: int = 0) -> Prefill:
        """A reading as the record keeps it."""
        return prefill_record(
            exchange,
            kind,
            planned_cached_tokens=planned_cached_tokens,
            origin_ns=self.origin_ns,
        )
