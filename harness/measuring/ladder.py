"""What the suite's tests talk to: measure as far as a test needs, judge, and let it conclude."""

from collections.abc import Callable

from harness.errors import HarnessError
from harness.measuring.campaign import Campaign
from harness.measuring.probes import ProbeKind
from harness.verdicts.cell import CellVerdict
from harness.verdicts.probes import ProbeVerdict

Conclude = Callable[[CellVerdict | ProbeVerdict | HarnessError], None]
"""Passes, fails or skips the test by a verdict, or fails it by what kept one away."""


class Ladder:
    """The climb of one campaign."""

    def __init__(self, campaign: Campaign, conclude: Conclude) -> None:
        self.campaign = campaign
        self._conclude = conclude

    def numbers_missing(self, depth: int) -> str | None:
        """Why there are no numbers at a rung that was measured; `None` where there are."""
        record = self.campaign.record()
        rung = record.rung(depth) if record is not None else None
        looks = rung.numbers if rung is not None else ()
        if rung is None or rung.failure is not None or any(look.steps for look in looks):
            return None
        return looks[0].missing if looks else "the rung was measured before there were numbers"

    def check(self, metric: str, depth: int) -> CellVerdict:
        """Measure as far as needed, judge one cell, and pass, fail or skip the test accordingly."""
        try:
            cell = self.campaign.cell(depth, metric)
        except HarnessError as error:
            self._conclude(error)
            raise
        self._conclude(cell)
        return cell

    def close(self) -> None:
        """Climb to the end and close the climb, as verdicts on speed need it."""
        try:
            self.campaign.close_climb()
        except HarnessError as error:
            self._conclude(error)
            raise


class Probe:
    """What the tests of heatmap, fuzz and harder tasks talk to."""

    def __init__(self, campaign: Campaign, conclude: Conclude) -> None:
        self._campaign = campaign
        self._conclude = conclude

    def check(self, kind: ProbeKind) -> ProbeVerdict:
        """Run one probe, and pass, fail or skip the test by its verdict."""
        try:
            verdict = self._campaign.probe(kind)
        except HarnessError as error:
            self._conclude(error)
            raise
        self._conclude(verdict)
        return verdict
