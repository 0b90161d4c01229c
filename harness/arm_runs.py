"""Campaigns of a matrix, one after another: the next is opened once the one before is closed."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from harness.campaign import Campaign, hold_machine
from harness.core.as_asked import values_of
from harness.errors import HarnessError
from harness.ports import Reporter
from harness.report.matrix import ArmResult
from harness.serving.fingerprint import Fingerprint
from harness.settings import Settings


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured on an arm: up to which depth (`None`: no ladder), probes or not."""

    deepest: int | None
    probes: bool


class ArmRuns:
    """The arms' campaigns. Holds the machine over all of them."""

    def __init__(
        self, arms: tuple[Settings, ...], wanted: Mapping[str, Wanted], reporter: Reporter
    ) -> None:
        self._arms = {str(settings.arm): settings for settings in arms}
        self._wanted = wanted
        self._reporter = reporter
        self._stack = ExitStack()
        self._campaigns: dict[str, Campaign] = {}
        self._refused: dict[str, str] = {}
        self._open: Campaign | None = None

    def start(self) -> None:
        """Take the machine.

        Raises:
            LockedError: another run holds it.
        """
        self._stack.enter_context(hold_machine(next(iter(self._arms.values()))))

    def campaign(self, arm: str) -> Campaign:
        """The campaign of `arm`, opened now if it is not; the one before it is then closed.

        Raises:
            HarnessError: it cannot be opened, now or when it was first asked for.
        """
        if arm in self._refused:
            raise HarnessError(self._refused[arm])
        if arm not in self._campaigns:
            self._end()
            wanted = self._wanted[arm]
            campaign = Campaign(
                self._arms[arm],
                self._reporter,
                deepest=wanted.deepest,
                probes=wanted.probes,
                takes_machine=False,
                unlike=self._unlike(arm),
            )
            self._reporter.say(f"arm {arm}: {' '.join(self._arms[arm].server_args)}".rstrip(" :"))
            try:
                campaign.start()
            except HarnessError as error:
                self._refused[arm] = str(error)
                raise
            self._campaigns[arm] = self._open = campaign
        return self._campaigns[arm]

    def _unlike(self, arm: str) -> Fingerprint:
        """The output of an arm measured before whose RoPE is scaled otherwise than `arm`'s."""
        scale = _rope_scale(self._arms[arm])
        others = (c for n, c in self._campaigns.items() if _rope_scale(self._arms[n]) != scale)
        return next((c.fingerprint for c in others), ())

    def _end(self) -> None:
        if self._open is not None:
            campaign, self._open = self._open, None
            campaign.finish()
            campaign.close()

    def finish(self) -> None:
        """End the open arm as a run that got through: its second control and footer."""
        if self._open is not None:
            self._open.finish()

    def close(self) -> None:
        """Stop the open arm's server and let go of the machine; safe to call twice."""
        if self._open is not None:
            self._open.close()
            self._open = None
        self._stack.close()

    def results(self) -> list[ArmResult]:
        """What came of every arm that was tried."""
        results = []
        for arm in self._arms:
            if arm in self._refused:
                results.append(ArmResult(arm, self._refused[arm]))
            elif (campaign := self._campaigns.get(arm)) is not None:
                record, verdict = campaign.record(), campaign.verdict()
                if record is not None and verdict is not None:
                    path = str(campaign.record_path)
                    results.append(ArmResult(arm, None, record, verdict, path))
        return results


def _rope_scale(settings: Settings) -> str | None:
    return values_of(settings.server_args).get("--rope-scale")
