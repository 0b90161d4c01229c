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

    def check(self, metric: str, depth: int) -> CellVerdict:
        """Measure as far as needed, judge one cell, and pass, fail or skip the test accordingly."""
        cell = self.campaign.cell(depth, metric)
        self._conclude(cell)
        return cell


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
