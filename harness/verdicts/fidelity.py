"""Fidelity: how far a server's next-token distributions lie from the accepted ones, by depth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from harness.quantities import number, share
from harness.records.baseline import AcceptedRun, Baseline
from harness.records.fidelity import Numbers, Step
from harness.records.lines import Rung, RunRecord
from harness.records.metrics import FIDELITY
from harness.verdicts.cell import CellVerdict, failed, failure_code, no_baseline
from harness.verdicts.proportions import wilson

_LEAST = 1e-6
"""Probability below which the rest of a distribution is rounding."""
_RESAMPLES = 9999


def divergence(p: Step, q: Step) -> float:
    """The least Kullback-Leibler divergence KL(p‖q), in nats, that agrees with both lists.

    Of each only the likeliest tokens are known. Outcomes are the tokens that both lists have, those
    that only `p` has taken together, and the rest. Merging outcomes never raises a divergence (log
    sum inequality: Cover and Thomas, Elements of Information Theory, 2006, theorem 2.7.1), so the
    whole vocabulary's is at least this. What `q` gives to tokens it does not list is at most its
    last listed probability each; within that it is taken as what makes the divergence least.
    """
    here, there = ({t: float(np.exp(x)) for t, x in step} for step in (p, q))
    both = [token for token in here if token in there]
    only = sum(here[t] for t in here if t not in there)
    rest_p = max(_LEAST, 1.0 - sum(here.values()))
    rest_q = max(_LEAST, 1.0 - sum(there[t] for t in both))
    fair = rest_q * only / (only + rest_p)
    only_q = min(fair, (len(here) - len(both)) * min(there.values()))
    ps = np.array([*(here[t] for t in both), only, rest_p])
    qs = np.array([*(there[t] for t in both), only_q, rest_q - only_q])
    ps, qs = ps / ps.sum(), qs / qs.sum()
    some = ps > 0.0
    return max(0.0, float((ps[some] * np.log(ps[some] / qs[some])).sum()))


@dataclass(frozen=True, slots=True)
class Apart:
    """How far two looks lie apart, over the steps that follow the same tokens in both.

    `nats` is the divergence of each step; `agreeing` of them have the same likeliest token;
    `shift` is the largest change of a log-probability of a token that both list, nats;
    `parted_at` counts the trajectory's tokens before the first other one (`None`: none differs),
    of `followed` that could be compared.
    """

    nats: tuple[float, ...]
    agreeing: int
    shift: float
    parted_at: int | None
    followed: int

    @property
    def mean(self) -> float:
        """Mean divergence, nats."""
        return float(np.mean(self.nats))

    @property
    def share_span(self) -> str:
        """Between which shares the agreement lies (95 %, Wilson 1927)."""
        low, high = wilson(self.agreeing, len(self.nats))
        return f"{share(low)} to {share(high)}"

    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean (bootstrap over the steps, its seed fixed)."""
        if len(set(self.nats)) == 1:
            return self.mean, self.mean
        count = len(self.nats)
        drawn = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
        low, high = np.quantile(np.array(self.nats)[drawn].mean(axis=-1), (0.025, 0.975))
        return float(low), float(high)


def apart(p: Numbers, q: Numbers) -> Apart | None:
    """`q` against `p`; `None` where they read other prompts or share no step.

    Steps of a continuation count up to and with the first whose likeliest token differs: after it
    the two stand behind other texts.
    """
    if p.prompt != q.prompt:
        return None
    nats: list[float] = []
    agreeing, shift, parted = 0, 0.0, None
    for which, (mine, theirs) in enumerate(zip(p.steps, q.steps, strict=False)):
        for at, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            nats.append(divergence(a, b))
            known = dict(b)
            shift = max([shift, *(abs(x - known[t]) for t, x in a if t in known)])
            if a[0][0] != b[0][0]:
                parted = at if which == 0 else parted
                break
            agreeing += 1
    if not nats:
        return None
    followed = min(len(p.steps[0]), len(q.steps[0]))
    return Apart(tuple(nats), agreeing, shift, parted, followed)


MATTERS_NATS = 0.005
"""A mean divergence that matters: about what weights of six bits cost a model of 8 billion."""
_FLOORS = 2.0
"""Beyond the floor is more than so many times the largest divergence of the same from itself."""
_LEAST_STEPS = 4


def judge_fidelity(
    record: RunRecord, rungs: Sequence[Rung], baseline: Baseline | None, differing: Sequence[str]
) -> dict[int, CellVerdict]:
    """The cells by depth; none where no numbers were looked at, or the server has none.

    Args:
        record: its rungs' own floor is what lies behind other readings.
        rungs: those to judge.
        baseline: accepted runs; the newest that has numbers at a depth is its reference.
        differing: what else differs from that run, a sentence each, said of numbers that moved.
    """
    floor = max((floor_of(looks_of([rung])) for rung in record.rungs), default=0.0)
    cells = {rung.depth: _judged(rung, floor, baseline, differing) for rung in rungs}
    return {depth: cell for depth, cell in cells.items() if cell is not None}


def _judged(
    rung: Rung, noise_nats: float, baseline: Baseline | None, differing: Sequence[str]
) -> CellVerdict | None:
    """The cell of one rung; `noise_nats` is the run's own floor."""
    cell = CellVerdict(rung.depth, FIDELITY, "NO_BASELINE", None, "")
    mine = looks_of([rung])
    if not mine:
        if rung.failure is None:
            return None
        return replace(cell, outcome="ERROR", code=failure_code(rung), message=failed(rung))
    looks = accepted_looks(baseline, rung.depth)
    if not looks:
        return no_baseline(cell, baseline)
    looks = [look for look in looks if look.prompt == mine[0].prompt]
    if not looks:
        return replace(
            cell,
            code="no_depth",
            message="the accepted runs read another document here (other depths, or a template "
            "that changed)",
        )
    floor = max(noise_nats, floor_of(looks))
    return replace(
        against(cell, looks[-1], mine[0], floor, "the newest accepted run", differing),
        n_baseline=len(looks),
    )


def against(
    cell: CellVerdict,
    reference: Numbers,
    mine: Numbers,
    floor_nats: float,
    name: str,
    differing: Sequence[str],
) -> CellVerdict:
    """`cell` judged: PASS or REGRESSED only where the mean's whole interval says so.

    The limit is an effect that matters, and beyond the floor where that is larger.
    """
    found = apart(reference, mine)
    if found is None or len(found.nats) < _LEAST_STEPS:
        said = f"{len(found.nats) if found else 0} tokens to compare; needed: {_LEAST_STEPS}"
        return replace(cell, outcome="INCONCLUSIVE", code="too_few", message=said)
    low, high = found.interval()
    limit = max(MATTERS_NATS, _FLOORS * floor_nats)
    cell = replace(
        cell, measured=found.mean, baseline=floor_nats, n_current=len(found.nats), n_baseline=1
    )
    said = (
        f"KL divergence {number(found.mean)} nats ({number(low)} to {number(high)}) from {name}, "
        f"floor {number(floor_nats)}, limit {number(limit)}; likeliest token the same in "
        f"{found.agreeing} of {len(found.nats)} ({found.share_span}), "
        f"largest shift {number(found.shift)} nats"
    )
    if found.parted_at is not None:
        said += f", answer parts after {found.parted_at} of {found.followed} tokens"
    if found.mean > _FLOORS * floor_nats and differing:
        said += f"; differs: {'; '.join(differing)}"
    if low > limit:
        return replace(cell, outcome="REGRESSED", code="numbers", message=said)
    if high > limit:
        return replace(cell, outcome="INCONCLUSIVE", code="noise", message=said)
    if found.mean > max(_LEAST, _FLOORS * floor_nats):
        return replace(
            cell, outcome="PASS", code="moved", message=f"numbers moved, answers did not: {said}"
        )
    return replace(cell, outcome="PASS", message=said)


_BETWEEN = 3
_STEP_TOKENS = 256


def onset(cells: Iterable[CellVerdict]) -> tuple[int, ...]:
    """Depths to look at between the last rung whose numbers are right and the first wrong one.

    They are spread evenly by ratio. None where no rung is wrong, or none before it is right.
    """
    found = {c.depth: c.outcome for c in cells if c.metric is FIDELITY}
    wrong = min((d for d, outcome in found.items() if outcome == "REGRESSED"), default=0)
    right = max((d for d, outcome in found.items() if outcome == "PASS" and d < wrong), default=0)
    if not right:
        return ()
    ratio = wrong / right
    places = (right * ratio ** (n / (_BETWEEN + 1)) for n in range(1, _BETWEEN + 1))
    depths = {round(place / _STEP_TOKENS) * _STEP_TOKENS for place in places}
    return tuple(sorted(d for d in depths if right < d < wrong))


def floor_of(looks: Sequence[Numbers]) -> float:
    """The largest mean divergence among looks at the same."""
    pairs = (apart(a, b) for a, b in combinations(looks, 2))
    return max((found.mean for found in pairs if found is not None), default=0.0)


def looks_of(rungs: Iterable[Rung]) -> list[Numbers]:
    """The looks that have numbers."""
    return [look for rung in rungs for look in rung.numbers if look.steps]


def accepted_looks(baseline: Baseline | None, depth: int) -> list[Numbers]:
    """Looks at a depth of the accepted runs that have the newest one's build and flags."""
    runs = [run for run in baseline.runs if _look(run, depth)] if baseline else []
    alike = [r for r in runs if (r.build, r.noted) == (runs[-1].build, runs[-1].noted)]
    return [look for run in alike if (look := _look(run, depth))]


def _look(run: AcceptedRun, depth: int) -> Numbers | None:
    return run.cells[depth].numbers if depth in run.cells else None
