"""Whether another client used the server while a request of ours ran, by what `/slots` says."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.errors import ServerError
from harness.serving.client import Client

Slot = Mapping[str, Any]
CONTENTION = "contention"


def another(before: Sequence[Slot], after: Sequence[Slot]) -> str | None:
    """What another client did between two looks that enclose one request of ours; `None`: nothing.

    Ours takes one slot and is done at the second look.
    """
    known = {slot.get("id"): slot.get("id_task") for slot in before}
    taken = [s for s in after if s.get("id_task") != known.get(s.get("id"))]
    working = [s for s in (*before, *after) if s.get("is_processing")]
    if not working and len(taken) < 2:
        return None
    theirs = {f"{s.get('id')}" for s in working or taken}
    return (
        f"contention: another client's request ran in slot {', '.join(sorted(theirs))} of this "
        "server; measure when nobody else uses it"
    )


@dataclass(slots=True)
class OtherClients:
    """What was seen of other clients so far: windows of `time.perf_counter_ns`, each a sentence."""

    off: bool = False
    _seen: list[tuple[int, int, str]] = field(default_factory=list)

    @contextmanager
    def watched(self, client: Client, event: Callable[..., None]) -> Iterator[None]:
        """Look before and after a measured request, and put what another client did on record."""
        before, start_ns = self._slots(client), time.perf_counter_ns()
        yield
        after = self._slots(client)
        if before and after and (said := another(before, after)) is not None:
            self._seen.append((start_ns, time.perf_counter_ns(), said))
            event(CONTENTION, said)

    def during(self, start_ns: int, end_ns: int) -> str | None:
        """What another client did in a window; `None`: nothing that was seen."""
        return next((s for a, b, s in self._seen if a < end_ns and b > start_ns), None)

    def _slots(self, client: Client) -> Sequence[Slot]:
        if self.off:
            return ()
        try:
            slots = (client.get("/slots") or {}).get("data")
        except ServerError:  # switched off, or a server that is gone: the request itself tells
            slots = None
        if not isinstance(slots, list) or not all(isinstance(slot, dict) for slot in slots):
            self.off = True
            return ()
        return slots
