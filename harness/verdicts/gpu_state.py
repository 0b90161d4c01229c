"""Whether the GPU's own clock explains that two visits differ, in a sentence, and what would help.

A GPU that idles between requests, is at its power limit or hot clocks down by itself: nothing else
ran, and measuring again "when calm" changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.records.lines import GpuAt, Timed
from harness.records.metrics import SPEED
from harness.records.samples import Samples, mostly_at
from harness.verdicts.cell import CellVerdict

MOVED = 0.05
"""A clock that differs by less explains no change that matters against a band of 10 %."""
STEPS = {
    ("NVML", "idle"): (
        "fix its clock (nvidia-smi --lock-gpu-clocks, as administrator) or measure a larger model"
    ),
    ("NVML", "power limit"): (
        "lock its clock below what the limit allows (nvidia-smi --lock-gpu-clocks)"
    ),
    ("NVML", "heat"): "cool it better, or lock its clock lower (nvidia-smi --lock-gpu-clocks)",
    ("amdgpu", "power limit"): "give it a higher limit, or a fixed performance level",
    ("amdgpu", "heat"): "cool it better, or give it a fixed performance level",
    ("amdgpu", ""): (
        "fix its clock: write `high` to power_dpm_force_performance_level, as administrator"
    ),
}
"""What helps, by counter and reason; where nothing is known to help, nothing is said."""


@dataclass(frozen=True, slots=True)
class ClockMove:
    """The GPU's clock in two groups of requests, MHz, and why the lower one was held there."""

    before_mhz: float
    after_mhz: float
    counter: str
    held_by: tuple[str, ...] | None

    @property
    def share(self) -> float:
        """Its change: −0.7 is 70 % lower."""
        return self.after_mhz / self.before_mhz - 1.0

    @property
    def sentence(self) -> str:
        """`the GPU's clock fell from 1,980 to 570 MHz (NVML: idle)`."""
        verb = "fell" if self.share < 0 else "rose"
        why = ", ".join(self.held_by) if self.held_by else "no reason told"
        return (
            f"the GPU's clock {verb} from {self.before_mhz:,.0f} to {self.after_mhz:,.0f} MHz "
            f"({self.counter}: {why})"
        )

    @property
    def next_step(self) -> str | None:
        """What helps against it; `None` where that isn't known."""
        reasons = self.held_by or ("",)
        return next((STEPS[self.counter, r] for r in reasons if (self.counter, r) in STEPS), None)


def clock_move(before: Iterable[Timed], after: Iterable[Timed]) -> ClockMove | None:
    """How the GPU's clock moved from one group of requests to the other; `None` as `moved`."""
    return moved(mostly_at(before), mostly_at(after))


def moved(before: GpuAt | None, after: GpuAt | None) -> ClockMove | None:
    """How the GPU's clock moved; the reason is that of the lower one: what held it back then.

    `None` where a clock isn't known, or it moved by less than `MOVED`.
    """
    if before is None or after is None or not before.core_mhz or not after.core_mhz:
        return None
    if abs(after.core_mhz / before.core_mhz - 1.0) < MOVED:
        return None
    lower = min(before, after, key=lambda gpu: gpu.core_mhz)
    return ClockMove(before.core_mhz, after.core_mhz, lower.counter, lower.held_by)


def unless_clocked(
    cell: CellVerdict, mine: Samples, runs: Sequence[Samples], band: float
) -> CellVerdict:
    """A change of speed, taken back where it is within the band at the baseline's GPU clock.

    A GPU that clocks down between small requests runs one day at 1,980 and the next at 1,200 MHz.
    A software that leaves the GPU idle makes it clock down too: so it is not called PASS either.
    """
    clocks = [run.gpu for run in runs if run.gpu is not None]
    changed = cell.metric.kind in SPEED and cell.outcome in ("REGRESSED", "IMPROVED")
    if not changed or not clocks or len(clocks) < len(runs):
        return cell
    assert cell.low is not None
    assert cell.high is not None
    then = sorted(clocks, key=lambda gpu: gpu.core_mhz)[(len(clocks) - 1) // 2]
    usual = then.model_copy(update={"core_mhz": median(gpu.core_mhz for gpu in clocks)})
    move = moved(usual, mine.gpu)
    if move is None:
        return cell
    speeds = [1.0 + cell.low, 1.0 + cell.high]
    if cell.metric.direction == "lower":
        speeds = [1.0 / speed for speed in speeds]
    at_equal_clocks = [speed / (1.0 + move.share) - 1.0 for speed in speeds]
    if min(at_equal_clocks) > band or max(at_equal_clocks) < -band:
        return replace(cell, message=f"{cell.message}; {move.sentence}, which does not explain it")
    return cell.withheld("pace", move.sentence)


def explains(move: ClockMove, speed_share: float) -> bool:
    """Whether the clock moved the way a speed did (−0.3: 30 % slower), and far enough."""
    same_way = (move.share < 0) == (speed_share < 0)
    return same_way and abs(move.share) >= abs(speed_share) / 2
