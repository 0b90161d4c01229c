"""Outcomes: one per cell."""

from typing import Literal

Outcome = Literal[
    "PASS",
    "IMPROVED",
    "REGRESSED",
    "LEAK",
    "INCONCLUSIVE",
    "INVALID",
    "NO_BASELINE",
    "INCOMPARABLE",
    "ERROR",
]
