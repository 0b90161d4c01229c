"""Every guard with what it becomes without it, and the rows that must then fail.

`python -m tests.faults.mutate` takes them out one at a time, in a copy of the project.
"""

from tests.faults import guards_of_client, guards_of_run

UNGUARDED = {
    "healthy": "the control of all rows",
    "started": "the control of the rows about started servers",
    "empty-chunks": "`test_client` counts events that carry text",
    "hostile-reason": "a finish_reason is shown nowhere; the row would see it if it were",
}
"""Rows that no single guard makes pass, and why they are there."""

GUARDS = (*guards_of_client.GUARDS, *guards_of_run.GUARDS)
