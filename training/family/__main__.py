"""Make members of the family from nothing, and put them in harness/models if they are exact.

    python -m training.family gdn              a second: writes build/family/reference-gdn-f16.gguf
    python -m training.family all --tiny       also asks each a few times on the embedded server
    python -m training.family gdn --install    after 500 answers at 2K and at 8K, all exact

No training: the weights are written by hand, and the same command gives the same bytes.
"""

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness import models
from harness.questions.family import MEMBERS
from training.evaluate import read, serving
from training.family.accept import accept
from training.family.members import RECIPES, make

_TINY = ("2048:8",)
_LEAST = 500
_DEPTHS = (2048, 8192)
_DESCRIBED = Path(str(models.__file__)).parent / "FAMILY.json"


def _asked(name: str, path: Path, spec: Sequence[str], results: Path) -> None:
    deepest = max(int(item.split(":")[0]) for item in spec)
    with serving("embedded", path, deepest, ("-t", "1")) as url:
        accept(MEMBERS[name], path, url, spec, results, labels=_labels(path), limit_s=float("inf"))


def _labels(path: Path) -> dict[str, str]:
    return {"server": "embedded", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _install(name: str, path: Path, results: Path) -> None:
    """Copy an exact member into the package, with what was exact of what was asked.

    Raises:
        SystemExit: it was not asked often enough, or not every answer was exact.
    """
    labels = {"member": name, **_labels(path)}
    rows = [row for row in read(results) if all(row.get(k) == v for k, v in labels.items())]
    exact: dict[str, list[int]] = {}
    for row in rows:
        right, asked = exact.get(str(row["length"]), [0, 0])
        exact[str(row["length"])] = [right + bool(row["exact"]), asked + 1]
    for depth in _DEPTHS:
        right, asked = exact.get(str(depth), [0, 0])
        if asked < _LEAST or right < asked:
            raise SystemExit(f"{name} has {right} of {asked} exact at {depth}: not installed")
    described = json.loads(_DESCRIBED.read_text(encoding="utf-8")) if _DESCRIBED.exists() else {}
    described[name] = {"file": path.name, "sha256": labels["sha256"], "exact": exact}
    shutil.copyfile(path, _DESCRIBED.parent / path.name)
    _DESCRIBED.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("member", choices=[*RECIPES, "all"])
    p.add_argument("--out", type=Path, default=Path("build/family"), help="working folder")
    p.add_argument("--tiny", action="store_true", help="ask a few times, in seconds")
    p.add_argument("--install", action="store_true", help="ask 500 times at 2K and 8K, then copy")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in RECIPES if args.member == "all" else [args.member]:
        path = args.out / MEMBERS[name].file
        make(name, path)
        print(f"{path}: {path.stat().st_size:,} bytes")
        if args.tiny:
            _asked(name, path, _TINY, args.out / "tiny.jsonl")
        if args.install:
            spec = [f"{depth}:{_LEAST}" for depth in _DEPTHS]
            _asked(name, path, spec, args.out / "accepted.jsonl")
            _install(name, path, args.out / "accepted.jsonl")


if __name__ == "__main__":
    main()
