"""A run with its verdict and baseline, and an arm of a matrix: what reports are made of."""

from dataclasses import dataclass
from typing import Any

from harness.records.baseline import Baseline
from harness.records.lines import RunRecord
from harness.verdicts.verdict import RunVerdict


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm: why it could not be measured, or its record, verdict and the record's path."""

    arm: str
    refused: str | None
    record: RunRecord | None = None
    verdict: RunVerdict | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """One run as reported."""

    record: RunRecord
    verdict: RunVerdict
    baseline: Baseline | None

    @property
    def name(self) -> str:
        """Short and telling among several: time of the run, machine class and build."""
        header = self.record.header
        return f"{header.run_id[:13]} {header.machine.machine_class} {header.server.build}"

    def event_data(self, code: str) -> dict[str, Any]:
        """The data of the newest event of that code; empty when there is none."""
        return self.record.event_data(code)
