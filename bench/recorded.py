"""Records of real runs from files, folders and archives (`tests/data/records/*.tar.xz`).

`python -m bench.recorded [PATH…]` judges them again: drift, what is impossible, and each as the A,
B and A of a comparison.
"""

import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.quantities import depth_label, percent
from harness.records.files import parse_run, read_run
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS, PREFILL
from harness.verdicts.compare import Visit, judge_arms
from harness.verdicts.verdict import judge

H200 = Path("tests/data/records/h200.tar.xz")
"""Eight runs on two machines of one class: one H200, Vulkan, llama-server b10434."""


def records(paths: Iterable[Path]) -> Iterator[tuple[str, RunRecord]]:
    """Name and record of each run."""
    for path in paths:
        if path.is_dir():
            yield from records(sorted(path.glob("*.jsonl")))
        elif ".tar" in path.suffixes:
            yield from _archived(path)
        else:
            yield path.stem, read_run(path)


def _archived(path: Path) -> Iterator[tuple[str, RunRecord]]:
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            if stream is not None and member.name.endswith(".jsonl"):
                yield Path(member.name).stem, parse_run(stream.read(), member.name)


def main() -> None:
    """Print how each record is judged today, as a row of the table in `docs/verdicts.md`."""
    bands = {name: metric.band or 0.1 for name, metric in METRICS.items()}
    print(
        "| record | drift | INVALID, LEAK | prefill of a sandwich | exit |\n" + "| --- " * 5 + "|"
    )
    for name, record in records(map(Path, sys.argv[1:] or [H200])):
        verdict = judge(record, None, bands)
        moved = [f"{percent(d.share)} {d.state} ({d.what.strip(',')})" for d in verdict.drift]
        bad = [
            f"{cell.outcome} {cell.metric.name} at {depth_label(cell.depth)}"
            for cell in verdict.cells
            if cell.outcome in ("INVALID", "LEAK")
        ]
        sandwich = judge_arms([Visit(side, 0, record) for side in ("A", "B", "A")], bands)
        prefill = Counter(c.outcome for c in sandwich.cells if c.metric is PREFILL)
        counted = ", ".join(f"{count} {outcome}" for outcome, count in prefill.items())
        row = (name, "; ".join(moved), "; ".join(bad) or "–", counted, str(sandwich.exit_code))
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
