"""Baselines in git: one small JSON file a configuration, written only by `harness baseline`."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import StoreError
from harness.records.baseline import SCHEMA_VERSION, Baseline, Key
from harness.records.files import replace_whole
from harness.records.metrics import MEASURED
from harness.records.samples import impossible_samples

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda body: {**body, "schema_version": 2},  # no needles, no anchor: both may be absent
}
"""Steps from one schema version to the next, by the version they start from."""


def baseline_path(root: Path, key: Key) -> Path:
    """`<root>/<machine class>/<model>/<configuration>.json`."""
    return root / _safe(key.machine_class) / _safe(key.model) / f"{key.slug}.json"


def find_baseline(root: Path, key: Key) -> Baseline | None:
    """The baseline of a key, `None` when there is none.

    Raises:
        StoreError: there is one, but it cannot be used; the sentence says why.
    """
    path = baseline_path(root, key)
    if not path.exists():
        return None
    found = read_baseline(path)
    check_place(root, path, found)
    return found


def nearest_baseline(root: Path, key: Key) -> Baseline | None:
    """Of the same model, the baseline that differs from a key in the fewest things.

    For runs that have no baseline of their own: what it says is information, not a verdict.
    """
    found: list[Baseline] = []
    for path in list_baselines(root):
        with contextlib.suppress(StoreError):
            found.append(read_baseline(path))
    alike = [b for b in found if b.key.model == key.model and b.key != key]
    return min(alike, key=lambda b: len(key.differences(b.key)), default=None)


def check_place(root: Path, path: Path, baseline: Baseline) -> None:
    """A baseline is where its own key puts it; one that was moved or edited is used for nothing.

    Raises:
        StoreError: its content is of another key than its name.
    """
    right = baseline_path(root, baseline.key)
    if path != right:
        raise StoreError(
            f"the baseline {path} says that it is of {baseline.key.model} on "
            f"{baseline.key.machine_class} as {right.stem}: it was moved or edited; restore it "
            "with git checkout, or delete it and accept new runs"
        )


def read_baseline(path: Path) -> Baseline:
    """Read and, where it is older, migrate one baseline.

    Raises:
        StoreError: broken, newer, or left in the middle of a merge.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read the baseline {path}: {error}") from error
    if re.search(r"^(<{7}|={7}|>{7})", text, re.MULTILINE):
        raise StoreError(
            f"the baseline {path} has unresolved merge conflict marks; choose one side with git "
            "(git checkout --ours/--theirs FILE), then run again"
        )
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"the baseline {path} is not valid JSON ({error}); restore it with git checkout, or "
            "delete it and accept new runs"
        ) from error
    return _validated(path, body)


def _validated(path: Path, body: object) -> Baseline:
    version = body.get("schema_version") if isinstance(body, dict) else None
    if not isinstance(body, dict) or type(version) is not int:
        raise StoreError(
            f"{path} is not a baseline: it has no schema_version; delete or restore it"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the baseline {path} was written by a newer version (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); update longctx-harness"
        )
    while version < SCHEMA_VERSION:
        step = MIGRATIONS.get(version)
        if step is None:
            raise StoreError(
                f"the baseline {path} has schema {version}, which cannot be migrated; delete it "
                "and accept new runs"
            )
        body = step(body)
        version = body["schema_version"]
    try:
        found = Baseline.model_validate(body)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(p) for p in fault["loc"])
        raise _broken(path, f"at {where}: {fault['msg']}") from error
    for run in (*found.runs, *found.anchor):
        for depth, samples in run.cells.items():
            if why := impossible_samples(samples):
                raise _broken(path, f"in run {run.run_id} at {depth}: {why}")
    return found


def _broken(path: Path, how: str) -> StoreError:
    return StoreError(
        f"the baseline {path} is broken {how}; restore it with git checkout, or delete it and "
        "accept new runs"
    )


def write_baseline(root: Path, baseline: Baseline) -> Path:
    """Write atomically: the old file stays whole until the new one is."""
    path = baseline_path(root, baseline.key)
    try:
        replace_whole(path, _rendered(baseline))
    except OSError as error:
        raise StoreError(f"cannot write the baseline {path}: {error.strerror or error}") from error
    return path


def list_baselines(root: Path) -> Iterator[Path]:
    """Baseline files below `root`, sorted."""
    return iter(sorted(root.glob("*/*/*.json")))


def _rendered(baseline: Baseline) -> str:
    body = baseline.model_dump(mode="json", exclude_defaults=False)
    looks: list[str] = []
    for run in (*body["runs"], *body["anchor"]):
        for cell in run["cells"].values():
            cell["chunks"] = [_rounded(c) for c in cell["chunks"]]
            for name in MEASURED:
                cell[name] = [float(f"{value:.5g}") for value in cell[name]]
            if numbers := cell["numbers"]:
                looks.append(json.dumps(numbers, separators=(",", ":")).replace("]],", "]],\n"))
                cell["numbers"] = f"look {len(looks) - 1}"
    text = json.dumps(body, indent=1, ensure_ascii=False)
    flat = re.sub(r"\[[^\[\]{}]*\]", lambda m: re.sub(r"\s+", " ", m[0]), text)
    flat = re.sub(r'"look (\d+)"', lambda m: looks[int(m[1])], flat)
    return (
        re.sub(r"\{[^\[\]{}]*\"end_tokens\"[^\[\]{}]*\}", lambda m: re.sub(r"\s+", " ", m[0]), flat)
        + "\n"
    )


def _rounded(chunk: dict[str, Any]) -> dict[str, Any]:
    return {**chunk, "ms": round(chunk["ms"], 3)}


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", name).strip(".") or "unnamed"
