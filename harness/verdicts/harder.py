"""Scores of the harder tests, by task and depth: their names, their table and their judgement.

A task that the model never could is no fault: only a drop against the accepted runs is one. It
must be beyond chance with all tasks and depths judged at once, in one cell or in a task's depths
together, and is then named with the depth it begins at.
"""

from collections.abc import Collection, Mapping, Sequence

from pydantic import TypeAdapter

from harness.questions.harder import TASKS, Task
from harness.records.lines import RunRecord
from harness.records.probes import ProbeScore
from harness.records.strict import Strict
from harness.verdicts.cell import NEXT_STEPS
from harness.verdicts.probes import ProbeVerdict
from harness.verdicts.proportions import ProportionEstimate, decide_proportion, proportion_estimate
from harness.verdicts.stats import Unjudgeable, significant_in_run

HARDER_EVENT = "harder"
"""Code of the event that holds the verdict's sentence and the shares in a record."""

_NAME = "harder"


class Share(Strict):
    """Right answers of those asked, in a run and in its accepted runs together (`None`: none)."""

    right: int
    asked: int
    base_right: int | None = None
    base_asked: int | None = None

    def __str__(self) -> str:
        base = "" if self.base_asked is None else f" (baseline {self.base_right}/{self.base_asked})"
        return f"{self.right}/{self.asked}{base}"

    @property
    def fell(self) -> bool:
        """Whether a smaller share is right than in the accepted runs."""
        if self.base_right is None or not self.base_asked or not self.asked:
            return False
        return self.right * self.base_asked < self.base_right * self.asked

    @property
    def estimate(self) -> ProportionEstimate | None:
        """The difference to the accepted runs; `None` where there is nothing to compare."""
        if self.base_right is None or self.base_asked is None:
            return None
        found = proportion_estimate(self.right, self.asked, self.base_right, self.base_asked)
        return None if isinstance(found, Unjudgeable) else found


Cells = Mapping[Task, Mapping[int, Share]]
"""Shares by task and depth, both in order."""

_CELLS: TypeAdapter[Cells] = TypeAdapter(Cells)


def score_name(task: Task, depth: int) -> str:
    """What a task's score at a rung is called in records and baselines."""
    return f"{_NAME} {task} {depth}"


def is_harder(name: str) -> bool:
    """Whether a score is one of these."""
    return name.split(" ")[0] == _NAME


def cells(scores: Sequence[ProbeScore], accepted: Sequence[ProbeScore] = ()) -> Cells:
    """The harder tests among `scores`, beside the accepted ones."""
    found: dict[Task, dict[int, Share]] = {}
    for task in TASKS:
        for score in scores:
            if not is_harder(score.name) or score.name.split(" ")[1] != task:
                continue
            mine = [a for a in accepted if a.name == score.name]
            found.setdefault(task, {})[int(score.name.split(" ")[2])] = Share(
                right=score.right,
                asked=score.asked,
                base_right=sum(a.right for a in mine) if mine else None,
                base_asked=sum(a.asked for a in mine) if mine else None,
            )
    return {task: dict(sorted(by_depth.items())) for task, by_depth in found.items()}


def as_data(found: Cells) -> dict[str, object]:
    """The shares as an event holds them."""
    return {"cells": _CELLS.dump_python(found, mode="json")}


def cells_of(record: RunRecord) -> Cells:
    """The shares of a record's harder tests, the latest; empty when it has none."""
    return _CELLS.validate_python(record.event_data(HARDER_EVENT).get("cells", {}))


def judge_harder(found: Cells, note: str = "") -> ProbeVerdict:
    """One verdict on all tasks and depths, naming what fell and from which depth on.

    `note` follows the shares where nothing fell.
    """
    moved = _beyond_chance(found)
    worse = {task: depths for task in found if (depths := _fallen(found[task], moved[task]))}
    rest = [task for task in found if task not in worse]
    parts = [f"worse than the baseline at {_where(task, ds, found)}" for task, ds in worse.items()]
    said = "; ".join([*parts, *(f"{task} {_together(found[task].values())}" for task in rest)])
    if worse:
        return ProbeVerdict("REGRESSED", said, NEXT_STEPS["regressed"])
    said += note
    new = [(t, d) for t in found for d, share in found[t].items() if share.base_asked is None]
    if new:
        which = "these tests" if len(new) == sum(map(len, found.values())) else _listed(new)
        message = f"{said}; no accepted run has {which}"
        return ProbeVerdict("NO_BASELINE", message, NEXT_STEPS["no_baseline"])
    better = [task for task in found if any(e.difference > 0 for e in moved[task].values())]
    if better:
        message = f"{said}; better than the baseline: {', '.join(better)}"
        return ProbeVerdict("IMPROVED", message, NEXT_STEPS["improved"])
    return ProbeVerdict("PASS", f"{said}; no drop shown")


def table(found: Cells) -> list[str]:
    """The shares as text, a row a task and a column a depth; nothing when there are none."""
    if not found:
        return []
    depths = sorted({depth for by_depth in found.values() for depth in by_depth})
    rows = [["harder", *map(str, depths)]]
    for task, by_depth in found.items():
        rows.append([task, *(str(by_depth.get(depth, "-")) for depth in depths)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


_ALL_DEPTHS = 0
"""Stands for all depths of a task together."""


def _beyond_chance(found: Cells) -> dict[Task, dict[int, ProportionEstimate]]:
    """The changes that are beyond chance, by task and depth, all judged at once."""
    tested: list[tuple[Task, int, ProportionEstimate]] = []
    for task, by_depth in found.items():
        known = {d: s for d, s in by_depth.items() if s.base_asked is not None}
        family = {**known, _ALL_DEPTHS: _together(known.values())} if len(known) > 1 else known
        tested += [(task, d, e) for d, s in family.items() if (e := s.estimate) is not None]
    named = significant_in_run([estimate.p_no_change for *_, estimate in tested])
    moved: dict[Task, dict[int, ProportionEstimate]] = {task: {} for task in found}
    for (task, depth, estimate), beyond in zip(tested, named, strict=True):
        if beyond and decide_proportion(estimate) in ("REGRESSED", "IMPROVED"):
            moved[task][depth] = estimate
    return moved


def _fallen(by_depth: Mapping[int, Share], moved: Mapping[int, ProportionEstimate]) -> list[int]:
    """Depths to name: the cells that fell beyond chance, or where only all together did, all that
    fell.
    """
    own = [d for d, e in moved.items() if e.difference < 0 and d != _ALL_DEPTHS]
    if own:
        return sorted(own)
    together = moved.get(_ALL_DEPTHS)
    if together is None or together.difference >= 0:
        return []
    return [depth for depth, share in by_depth.items() if share.fell]


def _where(task: Task, fallen: Sequence[int], found: Cells) -> str:
    by_depth = found[task]
    deeper = [depth for depth in by_depth if depth >= fallen[0]]
    if all(by_depth[depth].fell for depth in deeper):
        named, place = deeper, f"from {fallen[0]} tokens on"
    else:
        named, place = list(fallen), f"at {', '.join(map(str, fallen))} tokens"
    shares = ", ".join(f"{by_depth[depth]} at {depth}" for depth in named)
    return f"{task} {place}: {shares}"


def _together(shares: Collection[Share]) -> Share:
    """All of these as one; without accepted runs where one of them has none."""
    known = all(s.base_asked is not None for s in shares)
    return Share(
        right=sum(s.right for s in shares),
        asked=sum(s.asked for s in shares),
        base_right=sum(s.base_right or 0 for s in shares) if known else None,
        base_asked=sum(s.base_asked or 0 for s in shares) if known else None,
    )


def _listed(cells_: Sequence[tuple[Task, int]]) -> str:
    return ", ".join(f"{task} at {depth}" for task, depth in cells_)
