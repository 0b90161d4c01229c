"""The fault table, all of it."""

from collections.abc import Mapping

from tests.faults.fault import Fault
from tests.faults.rows import answers, before, counts, identity, inside, silence, streams

GROUPS: Mapping[str, tuple[Fault, ...]] = {
    "Streams that are odd but right": streams.ROWS,
    "Errors before the stream": before.ROWS,
    "Errors inside the stream": inside.ROWS,
    "Silence and floods": silence.ROWS,
    "Wrong counts and times": counts.ROWS,
    "Wrong answers": answers.ROWS,
    "Not the server that was meant": identity.ROWS,
}
FAULTS = tuple(fault for rows in GROUPS.values() for fault in rows)
