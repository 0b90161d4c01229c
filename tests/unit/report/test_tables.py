"""The tables that a comparison and a matrix end with: nothing cut on a terminal of 80 columns."""

import pytest

from harness.records.family import FAMILY_EVENT, FamilyResult, FamilyRung
from harness.records.lines import Event, RunRecord
from harness.records.metrics import METRICS
from harness.report.compare import comparison_text
from harness.report.matrix import matrix_summary
from harness.verdicts.compare import BLOCK, Visit, judge_arms
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests.made import generation, header, rung

BANDS = {name: metric.band for name, metric in METRICS.items()}


def measured(tok_s: float, *, depth: int = 8192, kv_bytes: int = 25_690_112) -> RunRecord:
    made = rung(depth).model_copy(
        update={"generations": tuple(generation(tok_s * x) for x in (0.97, 1.0, 1.03))}
    )
    kv = {"measured_bytes": kv_bytes, "theory_bytes": kv_bytes}
    log = Event(code="server_log", message="", data={"kv": kv})
    return RunRecord(header=header((depth,)), rungs=(made,), events=(log,))


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (256.0, "new is worse than old: generation at 8K 3.9 × slower (1,000 tok/s, then 256"),
        (1000.0, "new is no worse than old"),
    ],
)
def test_a_comparison_begins_and_ends_with_its_answer(now: float, says: str) -> None:
    visits = [
        Visit(side, block, measured(1000.0 if side == "A" else now))
        for block in range(3)
        for side in BLOCK
    ]
    text = comparison_text(
        judge_arms(visits, BANDS, ["generation"]),
        [],
        names=("old", "new"),
        width=200,
        color=False,
        encoding="utf-8",
    )
    lines = text.splitlines()
    assert lines[0].startswith(says)
    assert lines[-1] == lines[0]


@pytest.mark.parametrize("width", [80, 101, 120])
def test_a_comparison_is_not_cut(width: int) -> None:
    visits = [
        Visit(side, block, measured(1000.0 if side == "A" else 905.0 + 5 * block))
        for block in range(3)
        for side in BLOCK
    ]
    text = comparison_text(
        judge_arms(visits, BANDS), [], width=width, color=False, encoding="utf-8"
    )
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    (row,) = [line for line in text.splitlines() if line.startswith(" ") and "| gene" in line]
    assert "INCONCLUSIVE" in row
    assert ("tok/s" in row) == (width > 101)
    assert "1,000" in row
    assert " to " in row


def test_a_matrix_is_not_cut() -> None:
    record = measured(1000.0)
    results = {"q8_0-q8_0": Judged(record, judge(record, None, BANDS), None)}
    text = matrix_summary(results, width=80, color=False, encoding="utf-8")
    assert "…" not in text
    assert "24.5/24.5" in text
    assert "q8_0-q8_0" in text


def test_large_caches_are_whole_numbers_of_mib() -> None:
    record = measured(1000.0, depth=131072, kv_bytes=16 * 2**30)
    results = {"q8_0-q8_0": Judged(record, judge(record, None, BANDS), None)}
    text = matrix_summary(results, width=80, color=False, encoding="utf-8")
    assert "…" not in text
    assert text.count("16,384") == 2


def served(member: str, right: int) -> Judged:
    """A run in which a member of the family had so many of 14 right at 8K."""
    rung = FamilyRung(depth=8192, right=right, asked=14, near_right=2, near_asked=2)
    found = FamilyResult(member=member, rungs=(rung,)).model_dump()
    record = measured(1000.0)
    event = Event(code=FAMILY_EVENT, message="", data=found)
    record = record.model_copy(update={"events": (*record.events, event), "rungs": ()})
    return Judged(record, judge(record, None, BANDS), None)


def test_the_family_is_held_against_attention() -> None:
    record = measured(1000.0, depth=8192)
    plain = Judged(record, judge(record, None, BANDS), None)
    results = {"attention": plain, "gdn": served("gdn", 3)}
    text = " ".join(matrix_summary(results, width=200, color=False, encoding="utf-8").split())
    assert (
        "the recurrent state is wrong at 8K; attention is right: suspect the engine's Gated-"
        in text
    )
    assert "gdn: the recurrent state is wrong at 8K; 8K 3/14 (8 to 48 %)" in text
    alone = matrix_summary({"gdn": served("gdn", 14)}, width=200, color=False, encoding="utf-8")
    assert "gdn: the recurrent state is right: 8K 14/14" in alone
    assert "depth | arm" not in alone  # nothing of the ladder was measured
    assert "suspect" not in alone
