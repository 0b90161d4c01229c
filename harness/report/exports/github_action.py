"""Two files for github-action-benchmark: what is better bigger, and what is better smaller.

Its tools are called `customBiggerIsBetter` and `customSmallerIsBetter`; a file is a JSON array of
name, unit, value, range and extra.
"""

import json
from collections.abc import Iterator
from statistics import median

from harness.records.lines import RunRecord
from harness.records.metrics import METRICS, Direction
from harness.records.samples import samples_of, values_of

FILES: dict[Direction, str] = {"higher": "bigger-is-better.json", "lower": "smaller-is-better.json"}


def as_json(record: RunRecord, direction: Direction) -> str:
    """The entries of all metrics of one direction."""
    return json.dumps(list(_entries(record, direction)), indent=1, ensure_ascii=False) + "\n"


def _entries(record: RunRecord, direction: Direction) -> Iterator[dict[str, object]]:
    header = record.header
    for rung in record.rungs:
        samples = samples_of(rung)
        for metric in METRICS.values():
            values = values_of(metric, samples)
            if metric.direction != direction or not values:
                continue
            middle = median(values)
            score = metric.kind == "score"
            entry: dict[str, object] = {
                "name": f"{metric.label} at {rung.depth}",
                "unit": "% right" if score else metric.unit,
                "value": round(middle * 100 if score else middle, 6),
                "extra": f"{header.model.name}\n{header.machine.cpu}\nbuild {header.server.build}\n"
                f"run {header.run_id}",
            }
            if len(values) > 1:
                entry["range"] = f"± {(max(values) - min(values)) / 2:.4g}"
            yield entry
