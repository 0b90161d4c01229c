"""Scores of the probes beside the ladder (heatmap, fuzz), as a record and a baseline keep them."""

from harness.core.records import RunRecord, Strict

SCORE_EVENT = "probe_score"
"""Code of the event that holds a `ProbeScore` in a record."""


class ProbeScore(Strict):
    """How many answers of a probe were right; `name` says which probe, its shape included."""

    name: str
    right: int
    asked: int


def scores_of(record: RunRecord) -> tuple[ProbeScore, ...]:
    """The scores of a record's probes, the latest of each."""
    found = [ProbeScore.model_validate(e.data) for e in record.events if e.code == SCORE_EVENT]
    return tuple({score.name: score for score in found}.values())
