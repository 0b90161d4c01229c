"""The models that come with the package, checked by their digests."""

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from harness.errors import SetupError


def reference_model() -> Path:
    """Path of the packaged reference model, its SHA-256 checked.

    Raises:
        SetupError: the file is not the one this version was released with.
    """
    return _packaged(_described("MODEL.json"))


def member_model(name: str) -> Path:
    """Path of a member of the family, its SHA-256 checked.

    Raises:
        SetupError: the file is not the one this version was released with.
    """
    return _packaged(_described("FAMILY.json")[name])


def member_answers(name: str) -> dict[int, tuple[int, int]]:
    """(exact, asked) by depth: what a member of the family was packaged for."""
    exact = _described("FAMILY.json")[name]["exact"]
    return {int(depth): (right, asked) for depth, (right, asked) in exact.items()}


def _described(file: str) -> dict[str, Any]:
    found = resources.files("harness.models") / file
    described: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return described


def _packaged(described: Mapping[str, Any]) -> Path:
    path = Path(str(resources.files("harness.models"))) / str(described["file"])
    if not path.is_file():
        raise SetupError(f"the reference model {path} is missing; reinstall longctx-harness")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != described["sha256"]:
        raise SetupError(
            f"the reference model {path} is damaged (SHA-256 {digest[:12]}…, expected "
            f"{described['sha256'][:12]}…); reinstall longctx-harness"
        )
    return path
