"""A run with its verdict and baseline: what reports are made of."""

from dataclasses import dataclass
from typing import Any

from harness.records.baseline import Baseline, key_of
from harness.records.lines import RunRecord
from harness.verdicts.verdict import RunVerdict


@dataclass(frozen=True, slots=True)
class Judged:
    """One run as reported; `path` is the record's, if known; `label` stands for its name.

    `beside`: where no baseline is of its key, the same run judged against the nearest one.
    """

    record: RunRecord
    verdict: RunVerdict
    baseline: Baseline | None
    path: str = ""
    label: str = ""
    beside: "Judged | None" = None

    @property
    def differs(self) -> str | None:
        """In what the nearest baseline's key is another one, where the run has none of its own."""
        if self.beside is None or self.beside.baseline is None:
            return None
        found = key_of(self.record.header).differences(self.beside.baseline.key)
        here = ", ".join(f"{name} is {_said(mine)}" for name, (mine, _) in found.items())
        there = ", ".join(_said(theirs) for _, theirs in found.values())
        return f"{here}, in the nearest baseline {there}"

    @property
    def name(self) -> str:
        """Short and telling among several: time of the run, machine class and build."""
        header = self.record.header
        return (
            self.label
            or f"{header.run_id[:13]} {header.machine.machine_class} {header.server.build}"
        )

    def event_data(self, code: str) -> dict[str, Any]:
        """The data of the newest event of that code; empty when there is none."""
        return self.record.event_data(code)


def _said(value: object) -> str:
    return "not given" if value is None else str(value)
