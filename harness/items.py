"""Selected tests: what each wants of the server, and the order they must run in."""

from typing import Any

import pytest

PROBES = {
    "heatmap": "--heatmap 8x16",
    "fuzz": "--fuzz-examples 20",
    "harder": "--harder kv,hops,count",
}
"""Fixtures of what runs only when asked for, and how to ask."""


def place(item: pytest.Item) -> tuple[int, int]:
    """Its place in the session: stage, then depth."""
    if not item.get_closest_marker("long"):
        return 0, 0
    if set(fixtures_of(item)) & set(PROBES):  # they put other documents into the server's slot
        return 3, 0
    return (2 if "closed_ladder" in fixtures_of(item) else 1), depth_of(item)


def fixtures_of(item: pytest.Item) -> tuple[str, ...]:
    """Names of the fixtures it uses."""
    return tuple(getattr(item, "fixturenames", ()))


def depth_of(item: pytest.Item) -> int:
    """The depth it is about, tokens; 0 for none in particular."""
    return int(parameters_of(item).get("depth", 0))


def arm_of(item: pytest.Item) -> str | None:
    """The arm of the matrix an item belongs to; `None` without one."""
    return next(
        (str(v) for k, v in parameters_of(item).items() if k in ("ladder", "server", *PROBES)), None
    )


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    """What it is parametrized with."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}
