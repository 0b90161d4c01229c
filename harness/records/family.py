"""What a member of the family answered, rung by rung, as an event of a run's record holds it."""

from pydantic import Field

from harness.records.lines import RunRecord
from harness.records.strict import Strict

FAMILY_EVENT = "family"
"""Code of the event that holds a `FamilyResult`."""


class FamilyRung(Strict):
    """A rung: right answers of those asked, those about what stands next to the question apart.

    `classes` counts wrong answers by class; `said` is what the first wrong ones say. `cold_right`
    and `cold_asked` are a request of its own with the whole document read anew, where there was
    one.
    """

    depth: int
    right: int
    asked: int
    near_right: int
    near_asked: int
    classes: dict[str, int] = Field(default_factory=dict)
    said: str = ""
    cold_right: int | None = None
    cold_asked: int | None = None


class FamilyResult(Strict):
    """A member's rungs, ascending."""

    member: str
    rungs: tuple[FamilyRung, ...]


def family_of(record: RunRecord) -> FamilyResult | None:
    """What a run's member answered; `None` when it served none."""
    data = record.event_data(FAMILY_EVENT)
    return FamilyResult.model_validate(data) if data else None
