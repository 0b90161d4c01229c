"""From a member's shares by rung to the depth it begins at and what to suspect."""

import pytest

from harness.records.family import FamilyResult, FamilyRung
from harness.verdicts.family import judge_family, onset, suspicion

DEPTHS = (2048, 8192, 32768)
EXACT = dict.fromkeys(DEPTHS, (15, 15))


def result(
    *rights: int, member: str = "gdn", near: int = 2, cold: int | None = None
) -> FamilyResult:
    rungs = tuple(
        FamilyRung(
            depth=depth,
            right=right,
            asked=14,
            near_right=near,
            near_asked=2,
            classes={"stale_state": 14 - right} if right < 14 else {},
            said="register S answers what was written 3 writes ago" if right < 14 else "",
            cold_right=None if cold is None or right == 14 else cold,
            cold_asked=None if cold is None or right == 14 else 7,
        )
        for depth, right in zip(DEPTHS, rights, strict=False)
    )
    return FamilyResult(member=member, rungs=rungs)


def test_a_member_that_answers_everything_passes() -> None:
    verdict = judge_family(result(14, 14, 14))
    assert verdict.outcome == "PASS"
    assert verdict.message == "gdn: the recurrent state is right: 2K 14/14, 8K 14/14, 32K 14/14"
    assert suspicion(result(14, 14, 14), EXACT) is None


def test_one_wrong_answer_is_a_finding_with_its_interval_and_class() -> None:
    verdict = judge_family(result(14, 13, 2))
    assert verdict.outcome == "REGRESSED"
    assert verdict.message.startswith(
        "gdn: the recurrent state is wrong from 8K on; 2K 14/14, 8K 13/14 (69 to 99 %), "
        "32K 2/14 (4 to 40 %); 13 stale_state; at 8K: register S answers"
    )


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ((14, 13, 2), "from 8K on"),
        ((14, 14, 2), "at 32K"),
        ((14, 3, 14), "at 8K"),
        ((1, 14, 2), "at 2K, 32K"),
        ((1, 1, 1), "at every depth, 2K and more"),
        ((1,), "at 2K"),
    ],
)
def test_no_cliff_is_assumed(rights: tuple[int, ...], said: str) -> None:
    assert onset(result(*rights)) == said


def test_the_kernel_is_named_where_attention_is_right() -> None:
    assert suspicion(result(14, 3, 2), EXACT) == (
        "the recurrent state is wrong from 8K on; attention is right: suspect the engine's "
        "Gated-DeltaNet kernel on this backend"
    )
    assert "sliding-window mask or cache" in str(suspicion(result(14, 3, member="window"), EXACT))


def test_nothing_is_named_where_attention_is_wrong_or_was_not_asked() -> None:
    wrong = suspicion(result(14, 3, 2), {**EXACT, 32768: (3, 15)})
    assert wrong == (
        "the recurrent state is wrong from 8K on; so is attention at 32K: suspect what they "
        "share, not one kernel"
    )
    for unasked in (None, {}, {2048: (15, 15)}, {8192: (0, 0)}):
        assert "attention was not asked there" in str(suspicion(result(14, 3, 2), unasked))


def test_a_near_register_that_is_wrong_is_no_matter_of_distance() -> None:
    verdict = judge_family(result(14, 14, 14, near=1))
    assert verdict.outcome == "REGRESSED"
    assert "also right next to the question at 2K, 8K, 32K: no matter of distance" in (
        verdict.message
    )


def test_cold_right_and_reused_wrong_points_at_what_is_restored() -> None:
    assert (
        "suspect what is restored, a checkpoint" in judge_family(result(14, 3, 2, cold=7)).message
    )
    wrong = judge_family(result(14, 3, 2, cold=0)).message
    assert "wrong as well when the document is read anew" in wrong
    assert "checkpoint" not in wrong


def test_nothing_asked_is_invalid() -> None:
    nothing = FamilyResult(member="gdn", rungs=())
    assert judge_family(nothing).outcome == "INVALID"
