"""A night: several profiles one after another, what of it is done, and what came of it.

Its books are kept on disk after every change, so that a night that was killed goes on where it was.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.outcomes import OUTCOMES, Outcome
from harness.records.strict import Strict

ENDED_BY_ITSELF = (0, 1, 3, 4, 5)
"""pytest's exit codes of a session that was not cut short from outside (2 is Ctrl-C, SIGTERM)."""
TRIES = 3
"""So often one sitting of a night starts a profile that is cut short again and again."""


def file_name(name: str) -> str:
    """A night's or profile's name as the name of a file; letters of any script are kept."""
    return re.sub(r"[^\w.+-]+", "_", name).strip(".") or "unnamed"


class Attempt(Strict):
    """One start of pytest for a profile; without an exit code it was cut short or is going on."""

    profile: str
    started_at: str
    resumed: bool = False
    ended_at: str | None = None
    exit_code: int | None = None
    run_id: str | None = None

    @property
    def cut_short(self) -> bool:
        """Whether it did not end by itself: killed, interrupted, out of time.

        pytest's code 2 is also that of tests that cannot be imported: then nothing was measured.
        """
        ended = self.exit_code in ENDED_BY_ITSELF or (self.exit_code == 2 and self.run_id is None)
        return not ended


class Followed(Strict):
    """A newer build that a profile was compared with; `passed_over` lie between the two."""

    profile: str
    accepted: str
    newest: str
    passed_over: tuple[str, ...] = ()
    said: str
    exit_code: int | None

    @property
    def sentence(self) -> str:
        """What the comparison said, and how to look between."""
        step = f"; `harness bisect {self.accepted} {self.newest} --profile {self.profile}`"
        return self.said + (step if self.exit_code == 1 and self.passed_over else "")


class Night(Strict):
    """The books of one night."""

    name: str
    started_at: str
    profiles: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()
    followed: tuple[Followed, ...] = ()

    def last(self, profile: str) -> Attempt | None:
        """The newest attempt at a profile."""
        return next((a for a in reversed(self.attempts) if a.profile == profile), None)

    def followed_by(self, profile: str) -> Followed | None:
        """The newer build that this night measures a profile with, once it was compared."""
        return next((f for f in reversed(self.followed) if f.profile == profile), None)

    def done(self, profile: str) -> bool:
        """Whether a profile was measured to the end of its session, whatever came of it."""
        last = self.last(profile)
        return last is not None and not last.cut_short

    def to_do(self, profile: str, tries: int) -> bool:
        """Whether to start a profile, which this sitting of the night did `tries` times already.

        Where nothing was measured, each sitting tries once more: somebody may have mended it.
        """
        last = self.last(profile)
        return not self.done(profile) or (tries == 0 and last is not None and last.run_id is None)

    def begun(self, attempt: Attempt) -> "Night":
        """With an attempt that begins."""
        return self.model_copy(update={"attempts": (*self.attempts, attempt)})

    def ended(self, ended_at: str, exit_code: int | None, run_id: str | None) -> "Night":
        """With the end of the attempt that began last."""
        update = {"ended_at": ended_at, "exit_code": exit_code, "run_id": run_id}
        return self.model_copy(
            update={"attempts": (*self.attempts[:-1], self.attempts[-1].model_copy(update=update))}
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one profile: the run's outcome, or why there is none (`said`)."""

    profile: str
    finished: bool
    exit_code: int | None
    outcome: Outcome | None
    run_id: str | None = None
    sittings: int = 1
    said: str = ""

    @property
    def bad(self) -> bool:
        """Whether somebody has to look at it: a bad outcome, or nothing measured at all.

        What was cut short is an ERROR as long as it is not gone on with: that alone is not bad.
        """
        bad = self.outcome is not None and OUTCOMES[self.outcome].bad
        return (
            bad and self.outcome != "ERROR" if not self.finished else bad or self.nothing_measured
        )

    @property
    def nothing_measured(self) -> bool:
        """Whether pytest ended by itself without having measured."""
        return self.finished and self.exit_code in (2, 3, 4, 5)


def to_be_resumed(nights: Sequence[Night], profile: str) -> bool:
    """Whether the last attempt at a profile, in any night (oldest first), was cut short."""
    attempts = (a for night in reversed(nights) if (a := night.last(profile)) is not None)
    last = next(attempts, None)
    return last is not None and last.cut_short


def exit_code(results: Sequence[Result]) -> int:
    """0 nothing bad; 1 something failed; 3 a profile measured nothing; 2 not finished.

    The first of 1, 3, 2 that applies. `INCONCLUSIVE` and `NO_BASELINE` fail where pytest says so
    (`--strict-verdicts`, as under CI).
    """
    if any((r.bad and not r.nothing_measured) or r.exit_code == 1 for r in results):
        return 1
    if any(r.nothing_measured for r in results):
        return 3
    return 2 if any(not r.finished for r in results) else 0


def headline(night: str, results: Sequence[Result]) -> str:
    """The night in one line: what failed first, then what is not finished, else how many passed."""
    failed = [f"{r.outcome or 'nothing measured'} in {r.profile}" for r in results if r.bad]
    open_ = [f"{r.profile} not finished" for r in results if not r.finished and not r.bad]
    undecided = [
        f"{r.outcome} in {r.profile}"
        for r in results
        if r.finished and not r.bad and r.outcome not in ("PASS", "IMPROVED")
    ]
    said = "; ".join((*failed, *open_, *undecided))
    return f"Night {night}: {said or f'{len(results)} profiles passed'}"
