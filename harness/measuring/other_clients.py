"""What `/slots` says around a request of ours: another client's, or another server's answer."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.errors import ServerError

if TYPE_CHECKING:
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
    """What was seen of other clients so far: windows of `time.perf_counter_ns`, each a sentence.

    A server numbers its tasks upwards: `_tasks` is the newest number of each slot.
    """

    off: bool = False
    _tasks: dict[Any, int] = field(default_factory=dict)
    _seen: list[tuple[int, int, str]] = field(default_factory=list)

    @contextmanager
    def watched(self, client: "Client", event: Callable[..., None]) -> Iterator[None]:
        """Look before and after a measured request, and put what another client did on record.

        Raises:
            ServerError: the looks are not of one server.
        """
        before, start_ns = self._slots(client), time.perf_counter_ns()
        self._refuse_another_server(client, before, asked=False)
        yield
        after = self._slots(client)
        self._refuse_another_server(client, after, asked=True)
        if before and after and (said := another(before, after)) is not None:
            self._seen.append((start_ns, time.perf_counter_ns(), said))
            event(CONTENTION, said)

    def during(self, start_ns: int, end_ns: int) -> str | None:
        """What another client did in a window; `None`: nothing that was seen."""
        return next((s for a, b, s in self._seen if a < end_ns and b > start_ns), None)

    def _refuse_another_server(
        self, client: "Client", slots: Sequence[Slot], *, asked: bool
    ) -> None:
        """`asked`: a request of ours was answered since the last look, so a slot must show it."""
        tasks = {s.get("id"): t for s in slots if isinstance(t := s.get("id_task"), int) and t >= 0}
        known = [(self._tasks.get(slot, -1), task) for slot, task in tasks.items()]
        working = any(slot.get("is_processing") for slot in slots)
        unseen = asked and known and not working and all(then == task for then, task in known)
        if unseen or any(then > task for then, task in known):
            what = "knows nothing of a request that was answered" if unseen else "counts backwards"
            raise ServerError(
                f"/slots of {client.base_url} {what}: two servers answer on this port in turn, or "
                "one was restarted in between; give each server a port of its own and measure anew",
                cause="SETUP",
            )
        self._tasks |= tasks

    def _slots(self, client: "Client") -> Sequence[Slot]:
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
