"""pytest-benchmark's JSON: a run's speeds as times per token, for its `compare` and its plots.

pytest-benchmark knows times only, of which more is worse. Prefill and generation are therefore
written in seconds per token and TTFT in seconds; memory and answers have no place there.
"""

import json
from collections.abc import Iterator, Sequence

from pytest_benchmark.stats import Stats

from harness.records.lines import RunRecord
from harness.records.metrics import GENERATION, PREFILL, TTFT, Metric
from harness.records.samples import samples_of, values_of

FORMAT_VERSION = "5.3.1"


def as_json(records: Sequence[RunRecord]) -> str:
    """One document for one or more runs of one machine (the first run's)."""
    header = records[0].header
    body = {
        "machine_info": {
            "node": header.machine.machine_class,
            "processor": header.machine.cpu,
            "machine": header.machine.machine_class,
            "python_version": header.machine.python,
            "system": header.machine.os,
            "cpu": {"brand_raw": header.machine.cpu, "count": header.machine.cpu_cores},
        },
        "commit_info": {
            "id": header.server.build,
            "time": header.started_at,
            "dirty": False,
            "branch": "(unknown)",
            "project": "llama-server",
        },
        "benchmarks": [b for record in records for b in _benchmarks(record)],
        "datetime": header.started_at,
        "version": FORMAT_VERSION,
    }
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _benchmarks(record: RunRecord) -> Iterator[dict[str, object]]:
    for rung in record.rungs:
        samples = samples_of(rung)
        for metric in (PREFILL, GENERATION, TTFT):
            seconds = [_seconds(metric, v) for v in values_of(metric, samples)]
            if not seconds:
                continue
            stats = Stats()
            for value in seconds:
                stats.update(value)
            name = f"{metric.name}[{rung.depth}]"
            yield {
                "group": metric.name,
                "name": name,
                "fullname": f"long-context/{name}",
                "params": {"depth": rung.depth},
                "param": str(rung.depth),
                "extra_info": {
                    "run_id": record.header.run_id,
                    "build": record.header.server.build,
                    "model": record.header.model.name,
                    "unit": "s" if metric is TTFT else "s/token",
                },
                "options": {
                    "disable_gc": False,
                    "timer": "perf_counter",
                    "min_rounds": len(seconds),
                    "max_time": 1.0,
                    "min_time": 0.000005,
                    "warmup": False,
                },
                "stats": {**stats.as_dict(), "data": seconds, "iterations": 1},
            }


def _seconds(metric: Metric, value: float) -> float:
    return value / 1e3 if metric is TTFT else 1.0 / value
