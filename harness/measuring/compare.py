"""Measures two arms interleaved: ABBA blocks over short rungs, fewer over long ones."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from harness.errors import SetupError
from harness.llamacpp.cost import PrefillWatch, guess
from harness.measuring.campaign import Campaign, hold_machine
from harness.measuring.reporter import Reporter
from harness.quantities import depth_label, duration
from harness.records.lines import NOT_SPOT, RunRecord
from harness.records.metrics import METRICS, SPEED
from harness.serving.session import open_session, served_model, server_name
from harness.settings import Settings
from harness.verdicts.compare import BLOCK, Compared, Side, Visit, judge_arms, undecided
from harness.verdicts.differences import Configuration, Difference, between, other_device, things
from harness.verdicts.fidelity import onset

TIMED = ("speed", "latency", "memory")
LONG_BLOCKS = 1
"""Blocks that long rungs get in any case: two visits of each arm."""
MOST_LONG_BLOCKS = 3
SLOW_TOK_S = 500.0
LONG_AGAIN_S = 300.0
"""Without --budget, a further block over long rungs may take this long."""
PLAN_FIELDS = (
    *("fill", "seed", "background", "repeats", "max_repeats", "generate_tokens"),
    *("answer_tokens", "distractors"),
)
"""Settings that say what is asked of a server; they cannot be what is compared."""


class ArmError(SetupError):
    """An arm cannot be measured: `side` says which."""

    def __init__(self, side: Side, message: str) -> None:
        super().__init__(message)
        self.side = side


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
        self._budget_s = arms["A"].budget_s
        self._took_s: dict[int, float] = {}
        self._began_s = 0.0
        self.visits: list[Visit] = []

    def differences(self) -> tuple[Difference, ...]:
        """What differs between the arms before anything is measured.

        Raises:
            SetupError: they are not asked the same.
            ArmError: a build cannot be had, or a server that runs does not answer.
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
        try:
            if settings.server_url is not None:
                log = settings.results / "logs" / f"{side}.peek.log"
                with closing(open_session(settings, log, self._reporter.say)) as session:
                    identity, model = session.identity, session.model
                return Configuration(identity.build, model.identity, identity.n_ctx)
            gguf = served_model(settings)
            return Configuration(
                server_name(settings),
                gguf.content_hash[:12] if gguf is not None else "from the hub",
                settings.ctx_tokens,
                settings.server_args,
                settings.env,
            )
        except SetupError as error:
            raise ArmError(side, str(error)) from error

    def measure(self, blocks: int, most_blocks: int) -> Compared:
        """Visit the arms and judge them; more than `blocks` only while a cell hangs on noise.

        Each arm's first visit is a warm-up. Long rungs get `LONG_BLOCKS` blocks, more only within
        `--budget`, or `LONG_AGAIN_S` without one; with a budget short blocks end in time, too.

        Raises:
            HarnessError: an arm cannot be measured, or both don't compute on the same device.
        """
        self._began_s = time.perf_counter()
        long = [d for d in self._depths if d not in self._short]
        with hold_machine(self._arms["A"]):
            at = self._short[-1] if self._short else self._depths[0]
            for side in ("A", "B"):
                self._reporter.say(f"warm-up, arm {side}: shown, not judged")
                self._add(side, -1, at, warm_up=True)
            self._tell_cost(blocks)
            for block in range(most_blocks if self._short else 0):
                if block and not self._fits(self._short[-1], LONG_BLOCKS if long else 0):
                    break
                compared = self._visit_in_order(block, f"block {block + 1}", self._short[-1])
                steady = block + 1 - (len(compared.moved) if self._of_speed else 0)
                if steady >= blocks and not undecided(_at(compared, self._short)):
                    break
            for block in range(MOST_LONG_BLOCKS if long else 0):
                if block >= LONG_BLOCKS and not self._fits(long[-1], 0, LONG_AGAIN_S):
                    break
                name = f"long block {block + 1}"
                compared = self._visit_in_order(most_blocks + block, name, long[-1])
                if not undecided(_at(compared, long)):
                    break
        return self.judged()

    def find_onset(self) -> Compared:
        """The verdict, with rungs put between the last right and the first wrong numbers.

        Each arm is visited once more for them; only numbers and answers are judged there.

        Raises:
            HarnessError: an arm cannot be measured.
        """
        between = onset(self.judged().cells)
        if not between:
            self._reporter.say("no onset to find: no rung's numbers are wrong behind a right one")
            return self.judged()
        block = 1 + max(visit.block for visit in self.visits)
        for side, settings in self._arms.items():
            self._arms[side] = settings.model_copy(update={"depths": between, "spot": False})
        with hold_machine(self._arms["A"]):
            for side in ("A", "B"):
                said = ", ".join(depth_label(d) for d in between)
                self._reporter.say(f"arm {side} at {said}, to find where numbers part")
                self.visits.append(Visit(side, block, self._visit(side, between[-1])))
        compared = self.judged()
        kept = (c for c in compared.cells if c.depth not in between or c.metric.kind not in TIMED)
        return replace(compared, cells=tuple(kept))

    @property
    def _of_speed(self) -> bool:
        return any(METRICS[name].kind in SPEED for name in self._metrics)

    def judged(self) -> Compared:
        """The verdict on the visits made so far."""
        return judge_arms(self.visits, self._bands, self._metrics, contended=self._contended)

    # -- time -----------------------------------------------------------------------------------

    def _visit_s(self, depth: int) -> float:
        """What a visit up to `depth` takes: as the last one did, or by what shorter ones read."""
        if depth in self._took_s:
            return self._took_s[depth]
        known, took_s = max(self._took_s.items())
        rungs = self.visits[-1].record.rungs
        chunks = [c for rung in rungs for p in rung.prefills for c in p.chunks]
        model = PrefillWatch(seen=chunks).model or guess(SLOW_TOK_S, 0.0)
        return took_s + model.predict_ms(known, depth).ms / 1e3

    def _tell_cost(self, blocks: int) -> None:
        told, total_s = [], 0.0
        plans = [(blocks, self._short[-1])] if self._short else []
        plans += [(LONG_BLOCKS, self._depths[-1])] if self._depths != self._short else []
        for count, depth in plans:
            visits, visit_s = count * len(BLOCK), self._visit_s(depth)
            total_s += visits * visit_s
            told.append(f"{visits} visits to {depth} of {duration(visit_s)}")
        budget = f"; --budget leaves {duration(self._left_s)}" if self._left_s is not None else ""
        self._reporter.say(f"forecast: {' and '.join(told)}, {duration(total_s)} in all{budget}")

    @property
    def _left_s(self) -> float | None:
        if self._budget_s is None:
            return None
        return max(0.0, self._budget_s - (time.perf_counter() - self._began_s))

    def _fits(self, depth: int, long_blocks: int, without_s: float = math.inf) -> bool:
        """Whether one more block to `depth` fits what is left, `long_blocks` set aside."""
        left_s = without_s if self._left_s is None else self._left_s
        ahead_s = self._visit_s(depth)
        if long_blocks and self._left_s is not None:
            ahead_s += long_blocks * self._visit_s(self._depths[-1])
        return len(BLOCK) * ahead_s <= left_s

    # -- visits ---------------------------------------------------------------------------------

    def _visit_in_order(self, block: int, name: str, deepest: int) -> Compared:
        for number, side in enumerate(BLOCK, 1):
            self._reporter.say(f"{name}, visit {number} of {len(BLOCK)}: arm {side}")
            self._add(side, block, deepest)
        compared = self.judged()
        if block in compared.moved:
            self._reporter.say(f"{name}: {compared.moved[block]}; its speeds don't count")
        return compared

    def _add(self, side: Side, block: int, deepest: int, *, warm_up: bool = False) -> None:
        since_s = time.perf_counter()
        try:
            record = self._visit(side, deepest)
        except SetupError as error:
            raise ArmError(side, str(error)) from error
        self.visits.append(Visit(side, block, record, warm_up))
        self._took_s[deepest] = time.perf_counter() - since_s
        self._refuse_unlike_devices()

    def _visit(self, side: Side, deepest: int) -> RunRecord:
        settings = self._arms[side]
        if deepest in self._short:  # as quickly read as restored
            settings = settings.model_copy(update={"spot": False})
        campaign = Campaign(settings, self._reporter, deepest=deepest)
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
        if settings.spot and not record.spot:
            said = next(e.message for e in record.events if e.code == NOT_SPOT)
            raise SetupError(f"arm {side}: {said}, and not compared; leave --spot out")
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


def _at(compared: Compared, depths: Sequence[int]) -> Compared:
    """Its cells at some depths."""
    return replace(compared, cells=tuple(c for c in compared.cells if c.depth in depths))


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
            "budget_s": None,
            "heatmap": None,
            "fuzz_examples": None,
            "resume": False,
            "save_slots": False,
            "keep_kv": False,
        }
    )
