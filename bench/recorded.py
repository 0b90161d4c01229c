"""Records of real runs from files, folders and archives (`tests/data/records/*.tar.xz`)."""

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.records.files import parse_run, read_run
from harness.records.lines import RunRecord

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
