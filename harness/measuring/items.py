"""A collected test as the run sees it: what it measures, how deep, of which arm, and its turn."""

from collections.abc import Sequence
from typing import Any

import pytest

from harness.questions.family import MEMBERS
from harness.settings import Settings

PROBES = {
    "heatmap": "--heatmap 8x16",
    "fuzz": "--fuzz-examples 20",
    "harder": "--harder kv,hops,count",
    "family": "--reference all",
}
"""Fixtures of what runs only when asked for, and how to ask."""

STATUS = {
    "NO_BASELINE": ("new", "n", "NEW"),
    "INCONCLUSIVE": ("can't tell", "~", "CAN'T TELL"),
}
"""What pytest calls a skipped test of an outcome: its count's name, its letter, its word."""


def asked_for(settings: Settings) -> list[str]:
    """The probes beside the ladder that are to run."""
    asked = {
        "heatmap": settings.heatmap,
        "fuzz": settings.fuzz_examples,
        "harder": settings.harder,
        "family": [name for name in settings.reference or () if name in MEMBERS] or None,
    }
    return [probe for probe in PROBES if asked[probe] is not None]


def measures(item: pytest.Item) -> bool:
    """Whether it is a long or a smoke test."""
    return bool(item.get_closest_marker("long") or item.get_closest_marker("smoke"))


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the command line names its file."""
    at = config.invocation_params.dir
    return item.path in [at / arg.partition("::")[0] for arg in config.args]


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
    return int(_parameters_of(item).get("depth", 0))


def arm_of(item: pytest.Item) -> str | None:
    """The arm of the matrix an item belongs to; `None` without one."""
    named = ("ladder", "server", *PROBES)
    return next((str(v) for k, v in _parameters_of(item).items() if k in named), None)


def deepest_of(items: Sequence[pytest.Item], settings: Settings) -> int | None:
    """The depth that tests of the ladder want; `None` when there are none."""
    depths = [depth_of(i) for i in items if set(fixtures_of(i)) & {"ladder", "closed_ladder"}]
    return (max(depths) or max(settings.rung_depths)) if depths else None


def patience_s(depth: int) -> int:
    """How long a test that climbs to `depth` may take before it is stopped, seconds.

    Five times a slow machine's prefill (100 tok/s on short prompts, attention as costly as seed
    reports of an EVO-X2 show), and ten minutes for loading and answers. Our own limits (silence,
    death) fire long before; this is the last resort.
    """
    from harness.llamacpp.cost import guess

    slow = guess(100.0, 1.0 / 32768)
    return int(600 + 5 * slow.predict_ms(0, depth).ms / 1e3)


def _parameters_of(item: pytest.Item) -> dict[str, Any]:
    """What it is parametrized with."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}
