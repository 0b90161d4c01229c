"""What a member's answers say: from which depth on its layer is wrong, and what to suspect.

A member answers everything right on a right engine, so that one wrong answer is a finding; shares
have intervals all the same, and no cliff is assumed. Whether attention itself is right is told by
the model of plain attention on the same server, at the same depths.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from harness.quantities import depth_label
from harness.questions.family import MEMBERS, Member
from harness.records.family import FamilyResult, FamilyRung
from harness.records.lines import RunRecord
from harness.records.samples import samples_of
from harness.verdicts.cell import NEXT_STEPS
from harness.verdicts.probes import ProbeVerdict
from harness.verdicts.proportions import wilson

Shares = Mapping[int, tuple[int, int]]
"""(right, asked) by depth."""

_STEP = "this model answers all of this right: look for the fault in the engine or its flags"


def judge_family(result: FamilyResult) -> ProbeVerdict:
    """The verdict on one member."""
    member = MEMBERS[result.member]
    if not any(rung.asked for rung in result.rungs):
        said = f"{member.name}: nothing was asked"
        return ProbeVerdict("INVALID", said, NEXT_STEPS["control"])
    if not _wrong(result):
        shares = ", ".join(_share(rung) for rung in result.rungs)
        return ProbeVerdict("PASS", f"{member.name}: {member.part} is right: {shares}")
    return ProbeVerdict("REGRESSED", f"{member.name}: {'; '.join(_found(member, result))}", _STEP)


def _wrong(result: FamilyResult) -> list[FamilyRung]:
    return [r for r in result.rungs if r.right < r.asked or r.near_right < r.near_asked]


def _found(member: Member, result: FamilyResult) -> Iterator[str]:
    wrong = _wrong(result)
    yield f"{member.part} is wrong {onset(result)}"
    yield ", ".join(_share(rung) for rung in result.rungs)
    classes = Counter[str]()
    for rung in wrong:
        classes.update(rung.classes)
    if classes:
        yield ", ".join(f"{n} {kind}" for kind, n in classes.most_common())
    near = [r for r in wrong if r.near_right < r.near_asked]
    if near:
        places = ", ".join(depth_label(r.depth) for r in near)
        yield f"also right next to the question at {places}: no matter of distance"
    cold = [r for r in wrong if r.cold_asked]
    if cold:
        right = [r for r in cold if r.cold_right == r.cold_asked]
        if len(right) == len(cold):
            yield "right when the document is read anew: suspect what is restored, a checkpoint"
        elif not right:
            yield "wrong as well when the document is read anew"
    first = next((r for r in wrong if r.said), None)
    if first is not None:
        yield f"at {depth_label(first.depth)}: {first.said}"


def onset(result: FamilyResult) -> str:
    """Where it is wrong: `from 8K on`, where all deeper rungs are, or `at 8K`."""
    wrong = [rung.depth for rung in _wrong(result)]
    asked = [rung.depth for rung in result.rungs if rung.asked]
    if wrong == asked:
        return (
            f"at every depth, {depth_label(wrong[0])} and more"
            if wrong[1:]
            else "at " + (depth_label(wrong[0]))
        )
    if wrong == asked[-len(wrong) :] and wrong[1:]:
        return f"from {depth_label(wrong[0])} on"
    return f"at {', '.join(map(depth_label, wrong))}"


def _share(rung: FamilyRung) -> str:
    """`8K 3/14 (8 to 48 %)`; the interval is left out where all are right."""
    said = f"{depth_label(rung.depth)} {rung.right}/{rung.asked}"
    if not rung.asked or rung.right == rung.asked:
        return said
    low, high = wilson(rung.right, rung.asked, 0.95)
    return f"{said} ({100 * low:.0f} to {100 * high:.0f} %)"


def suspicion(result: FamilyResult, attention: Shares | None) -> str | None:
    """What to suspect, beside what plain attention answered; `None` where nothing is wrong.

    `attention` is what the model of plain attention has right by depth, `None` where it was not
    asked.
    """
    wrong = [rung.depth for rung in _wrong(result)]
    if not wrong:
        return None
    member = MEMBERS[result.member]
    said = f"{member.part} is wrong {onset(result)}"
    asked = {d: (right, n) for d, (right, n) in (attention or {}).items() if d in wrong and n}
    if not asked:
        return f"{said}; attention was not asked there: --reference=all tells them apart"
    if all(right == n for right, n in asked.values()):
        kernel = f"the engine's {member.kernel} on this backend"
        return f"{said}; attention is right: suspect {kernel}"
    places = ", ".join(depth_label(d) for d, (right, n) in asked.items() if right < n)
    return f"{said}; so is attention at {places}: suspect what they share, not one kernel"


def attention_of(record: RunRecord) -> Shares:
    """What the model of plain attention has right, by depth."""
    found = {}
    for rung in record.rungs:
        right, asked, *_ = samples_of(rung, contended=True).retrieval
        found[rung.depth] = (right, asked)
    return found
