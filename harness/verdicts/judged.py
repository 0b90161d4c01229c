"""A run with its verdict and baseline: what reports are made of."""

from dataclasses import dataclass
from typing import Any

from harness.records.baseline import Baseline
from harness.records.lines import RunRecord
from harness.verdicts.verdict import RunVerdict


@dataclass(frozen=True, slots=True)
class Judged:
    """One run as reported; `path` is the record's, if known; `label` stands for its name."""

    record: RunRecord
    verdict: RunVerdict
    baseline: Baseline | None
    path: str = ""
    label: str = ""

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
