"""Measures two arms interleaved: ABBA blocks over short rungs, a sandwich A-B-A over long ones."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from harness.errors import SetupError
from harness.measuring.campaign import Campaign, hold_machine
from harness.measuring.reporter import Reporter
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS
from harness.serving.session import binary_of, open_session, served_model
from harness.settings import Settings
from harness.verdicts.compare import BLOCK, SANDWICH, Compared, Side, Visit, judge_arms, undecided
from harness.verdicts.differences import Configuration, Difference, between, other_device, things

PLAN_FIELDS = (
    *("fill", "seed", "background", "repeats", "max_repeats", "generate_tokens"),
    *("answer_tokens", "distractors"),
)
"""Settings that say what is asked of a server; they cannot be what is compared."""


class Comparison:
    """Two arms, their settings, and the visits made to them so far.

    Args:
        arms: the settings of A and of B.
        folder: where the visits' records and logs go.
        reporter: what people are told while it runs.
        short_tokens: rungs up to this depth are visited in ABBA blocks.
        metrics: names of the metrics to judge.
        allow_differences: also where only one of them computes on a GPU.
        contended: count samples that other processes disturbed, too.
    """

    def __init__(
        self,
        arms: Mapping[Side, Settings],
        folder: Path,
        reporter: Reporter,
        *,
        short_tokens: int,
        metrics: Sequence[str],
        allow_differences: bool = False,
        contended: bool = False,
    ) -> None:
        self._arms = {side: _visiting(s, side, folder) for side, s in arms.items()}
        self._reporter = reporter
        self._allow_differences = allow_differences
        self._contended = contended
        self._metrics = metrics
        self._bands = {name: arms["A"].band_of(name) for name in METRICS}
        common = set(arms["A"].rung_depths) & set(arms["B"].rung_depths)
        if not common:
            raise SetupError(
                f"A is measured at {arms['A'].rung_depths} and B at {arms['B'].rung_depths}: no "
                "depth in common; give --depths"
            )
        self._depths = sorted(common)
        self._short = [d for d in self._depths if d <= short_tokens]
        self.visits: list[Visit] = []

    def differences(self) -> tuple[Difference, ...]:
        """What differs between the arms before anything is measured.

        Raises:
            SetupError: they are not asked the same, or a server that runs does not answer.
        """
        a, b = self._arms["A"], self._arms["B"]
        unlike = [f for f in PLAN_FIELDS if getattr(a, f) != getattr(b, f)]
        if unlike:
            name = unlike[0]
            raise SetupError(
                f"A and B would not be asked the same: {name} is {getattr(a, name)} in A and "
                f"{getattr(b, name)} in B; give it on the command line for both"
            )
        return between(self._configuration("A"), self._configuration("B"))

    def _configuration(self, side: Side) -> Configuration:
        settings = self._arms[side]
        if settings.server_url is not None:
            log = settings.results / "logs" / f"{side}.peek.log"
            with closing(open_session(settings, log, self._reporter.say)) as session:
                identity, model = session.identity, session.model
            return Configuration(identity.build, model.identity, identity.n_ctx)
        gguf = served_model(settings)
        return Configuration(
            binary_of(settings) or "embedded",
            gguf.content_hash[:12] if gguf is not None else "from the hub",
            settings.ctx_tokens,
            settings.server_args,
            settings.env,
        )

    def measure(self, blocks: int, most_blocks: int) -> Compared:
        """Visit the arms and judge them; more than `blocks` only while a cell hangs on noise.

        Raises:
            HarnessError: an arm cannot be measured, or both don't compute on the same device.
        """
        with hold_machine(self._arms["A"]):
            if self._short:
                for block in range(most_blocks):
                    self._visit_in_order(BLOCK, block, self._short[-1])
                    compared = self.judged()
                    self._say_moved(block, f"block {block + 1}", compared)
                    steady = block + 1 - len(compared.moved)
                    if steady >= blocks and not undecided(compared):
                        break
            if self._depths != self._short:
                self._visit_in_order(SANDWICH, most_blocks, self._depths[-1])
                self._say_moved(most_blocks, "sandwich", self.judged())
        return self.judged()

    def _say_moved(self, block: int, name: str, compared: Compared) -> None:
        if block in compared.moved:
            self._reporter.say(f"{name}: {compared.moved[block]}; its speeds don't count")

    def judged(self) -> Compared:
        """The verdict on the visits made so far."""
        return judge_arms(self.visits, self._bands, self._metrics, contended=self._contended)

    def _visit_in_order(self, order: Sequence[Side], block: int, deepest: int) -> None:
        name = f"block {block + 1}" if order is BLOCK else "sandwich"
        for number, side in enumerate(order, 1):
            self._reporter.say(f"{name}, visit {number} of {len(order)}: arm {side}")
            self.visits.append(Visit(side, block, self._visit(side, deepest)))
            self._refuse_unlike_devices()

    def _visit(self, side: Side, deepest: int) -> RunRecord:
        campaign = Campaign(self._arms[side], self._reporter, deepest=deepest)
        try:
            campaign.start()
            campaign.close_climb()
        finally:
            campaign.close()
        record = campaign.record()
        assert record is not None
        if record.footer is None or record.footer.failure is not None:
            failure = record.footer.failure if record.footer is not None else None
            said = f"{failure.cause}: {failure.message}" if failure else "it was cut short"
            raise SetupError(f"arm {side} could not be measured: {said}")
        return record

    def _refuse_unlike_devices(self) -> None:
        newest = {v.side: v.record for v in self.visits}
        if len(newest) < 2 or self._allow_differences:
            return
        if reason := other_device(newest["A"], newest["B"]):
            raise SetupError(
                f"{reason}: that is a fault of the set-up, not of what is compared; mend it, "
                "or give --allow-differences"
            )


def refuse_mixed(found: Sequence[Difference], *, allowed: bool) -> None:
    """Refuse arms that differ in more than one thing.

    Raises:
        SetupError: with the list of differences.
    """
    if allowed or len(things(found)) < 2:
        return
    listed = "".join(f"\n  {d.sentence}" for d in found)
    raise SetupError(
        f"A and B differ in {len(things(found))} things ({', '.join(things(found))}), so a "
        "difference in speed would have no one cause; make them alike but for one, or give "
        f"--allow-differences:{listed}"
    )


def _visiting(settings: Settings, side: Side, folder: Path) -> Settings:
    return settings.model_copy(
        update={
            "results": folder,
            "arm": side,
            "matrix": None,
            "remeasure_s": 0.0,
            "heatmap": None,
            "fuzz_examples": None,
            "resume": False,
            "save_slots": False,
        }
    )
