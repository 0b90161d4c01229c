"""Whether the GPU's own clock explains that two visits differ, in a sentence, and what would help.

A GPU that idles between requests, is at its power limit or hot clocks down by itself: nothing else
ran, and measuring again "when calm" changes nothing.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.records.lines import GpuAt, Timed

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
    """How the GPU's clock moved from one group of requests to the other.

    `None` where a group's clock isn't known, or it moved by less than `MOVED`. The reason is that
    of the lower clock: what held it back then.
    """
    one, two = _told(before), _told(after)
    if not one or not two:
        return None
    before_mhz, after_mhz = (statistics.median(g.core_mhz for g in told) for told in (one, two))
    if not before_mhz or not after_mhz or abs(after_mhz / before_mhz - 1.0) < MOVED:
        return None
    lower = two if after_mhz < before_mhz else one
    return ClockMove(before_mhz, after_mhz, lower[-1].counter, _reasons(lower))


def explains(move: ClockMove, speed_share: float) -> bool:
    """Whether the clock moved the way a speed did (−0.3: 30 % slower), and far enough."""
    same_way = (move.share < 0) == (speed_share < 0)
    return same_way and abs(move.share) >= abs(speed_share) / 2


def _told(requests: Iterable[Timed]) -> list[GpuAt]:
    return [request.gpu for request in requests if request.gpu is not None]


def _reasons(told: Sequence[GpuAt]) -> tuple[str, ...] | None:
    known = [gpu.held_by for gpu in told if gpu.held_by is not None]
    if not known:
        return None
    counts: dict[str, int] = {}
    for reason in (reason for held_by in known for reason in held_by):
        counts[reason] = counts.get(reason, 0) + 1
    return tuple(
        sorted((r for r, n in counts.items() if 3 * n >= len(known)), key=lambda r: -counts[r])
    )
