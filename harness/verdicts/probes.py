"""Judges the probes beside the ladder (heatmap, fuzz) by the share of answers that are right.

A model that is known to answer everything right, the reference model, has no right to a wrong
answer: the engine is at fault. Any other model is judged against what it did when its baseline was
accepted, however little that was.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.outcomes import Outcome
from harness.records.probes import Matrix, ProbeScore
from harness.verdicts.cell import NEXT_STEPS
from harness.verdicts.proportions import decide_proportion, proportion_estimate
from harness.verdicts.stats import Unjudgeable


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """What a probe came to: an outcome, the sentence that says why, and what to do next."""

    outcome: Outcome
    message: str
    next_step: str | None = None


def judge_probe(
    score: ProbeScore, said: str, accepted: Sequence[ProbeScore], *, exact: bool
) -> ProbeVerdict:
    """Judge a probe whose result reads `said`.

    Args:
        score: what was right of what was asked.
        said: the result as a sentence, for the message.
        accepted: scores of the same probe in the baseline's runs.
        exact: the model is known to answer everything right.
    """
    if not score.asked:
        return ProbeVerdict("INVALID", f"{said}; no answer counts", NEXT_STEPS["control"])
    if exact and score.right < score.asked:
        step = "this model answers all of this right: look for the fault in the engine or its flags"
        return ProbeVerdict("REGRESSED", said, step)
    mine = [one for one in accepted if one.name == score.name]
    if not mine:
        if exact:
            return ProbeVerdict("PASS", said)
        message = f"{said}; no accepted run has this probe"
        return ProbeVerdict("NO_BASELINE", message, NEXT_STEPS["no_baseline"])
    right, asked = sum(one.right for one in mine), sum(one.asked for one in mine)
    said = f"{said}; baseline {right}/{asked}"
    estimate = proportion_estimate(score.right, score.asked, right, asked)
    if isinstance(estimate, Unjudgeable):
        message = f"{said}; {estimate.reason}, needed: {estimate.needed}"
        return ProbeVerdict("INCONCLUSIVE", message, "ask for more examples")
    said = (
        f"{said}: {100 * estimate.difference:+.0f} points "
        f"({100 * estimate.low:+.0f} to {100 * estimate.high:+.0f})"
    )
    decision = decide_proportion(estimate)
    if decision == "UNDECIDED":
        # A smaller share, not told from chance: a probe is drawn anew, so equal shares are rare.
        return ProbeVerdict("PASS", f"{said}, no drop shown")
    return ProbeVerdict(decision, said, NEXT_STEPS.get(decision.lower()))


def score_heatmap(matrix: Matrix, *, exact: bool) -> ProbeScore:
    """Right cells of those that count.

    Of a model that answers everything right, invalid and unconfirmed cells do not count; of any
    other they do, as not right: its control may fail wherever the needle does.
    """
    counted = ["right", "wrong", "wrong_warm_only"]
    if not exact:
        counted += ["invalid", "unconfirmed"]
    states = [state for row in matrix.rows() for state in row]
    return ProbeScore(
        name=f"heatmap {len(matrix.lengths)}x{matrix.bands}",
        right=states.count("right"),
        asked=sum(state in counted for state in states),
    )


def judge_heatmap(
    matrix: Matrix, said: str, accepted: Sequence[ProbeScore], *, exact: bool
) -> ProbeVerdict:
    """Judge a heatmap whose result reads `said`; the other arguments as of `judge_probe`.

    A drop that comes with invalid cells is INVALID: it says nothing of distance.
    """
    verdict = judge_probe(score_heatmap(matrix, exact=exact), said, accepted, exact=exact)
    if matrix.count("invalid") and (exact or verdict.outcome == "REGRESSED"):
        return ProbeVerdict("INVALID", said if exact else verdict.message, NEXT_STEPS["control"])
    if verdict.outcome == "PASS" and exact and matrix.count("unconfirmed"):
        return ProbeVerdict("INCONCLUSIVE", said, "run it again, with fewer cells")
    return verdict
