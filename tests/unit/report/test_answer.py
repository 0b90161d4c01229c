"""The one answer: what is worse and by how much, what changed, what stayed; one cause, once."""

from dataclasses import replace

from harness.records.lines import Failure, Footer
from harness.report.answer import answer, causes_of
from tests.answers import against, busy
from tests.made import ask, judged, record, rung, whole_run


def test_a_regression_is_said_with_its_numbers_its_depth_and_what_changed() -> None:
    said = list(answer(judged(cliff=0.6, generation=0.7, build="b11549-1b2c3d4e")).lines())
    assert said == [
        "worse: prefill −40 %, generation −30 % from 32K on; 128K: 334 tok/s, was 557",
        "since the baseline: server build b11480 → b11549, threads 16 → 8",
        "as before: warm TTFT, server memory, retrieval (16 of 20)",
        "next: run it again to confirm; if it is meant: `harness baseline update`",
    ]


def test_a_run_like_its_baseline_is_its_deepest_numbers() -> None:
    (said,) = answer(against(record(rung()), *[record(rung())] * 2)).lines()
    assert said == ("same as the baseline; 2K: prefill 1,000, generation 100 tok/s, 15 of 15 right")


def test_a_first_run_says_that_it_has_nothing_to_be_compared_with() -> None:
    line, step = answer(against(record(rung()))).lines()
    assert line.startswith("first run; 2K: prefill 1,000, generation 100 tok/s")
    assert step.startswith("next: run it once more")


def test_a_busy_machine_is_one_sentence_however_many_numbers_it_touches() -> None:
    run = against(busy(whole_run(1)))
    said = list(answer(run).lines())
    assert said[0] == "measured, too disturbed for a baseline: machine busy (pip 35 %, dpkg 14 %)"
    judged_before = answer(against(busy(whole_run(1)), whole_run(2), whole_run(3)))
    assert judged_before.line == (
        "can't tell: 8 of 20 numbers, the machine was busy (pip 35 %, dpkg 14 %)"
    )
    assert len(said) == 2
    assert said[1].startswith("next: stop what is named")


def test_a_wrong_control_is_named_once_with_what_it_takes_along() -> None:
    wrong = [ask(control=False), ask(), ask()]
    now = record(rung(asks=wrong), rung(8192, start=1843, asks=wrong))
    found = answer(against(now, *[record(rung(), rung(8192, start=1843))] * 2))
    assert found.line == (
        "broken: the answer right beside the question was wrong at 2K (2 of 3 right), "
        "8K (2 of 3 right); far ones 30 of 30 right; speeds measured, not judged"
    )
    assert [c.outcome for c in found.causes] == ["INVALID", "PASS"]


def test_a_run_stopped_by_hand_says_how_to_go_on_and_nothing_to_mend() -> None:
    failure = Failure(cause="INTERRUPTED", message="stopped while measuring the rung 8192")
    now = record(rung(), rung(8192, start=1843).model_copy(update={"failure": failure}))
    footer = Footer(
        ended_at="now", complete=False, prefilled_tokens=9, elapsed_s=1.0, failure=failure
    )
    said = list(answer(against(now.model_copy(update={"footer": footer}))).lines())
    assert said == [
        "stopped at 8K; finished: 2K",
        "next: the same command with --resume goes on from there",
    ]


def test_cells_of_one_cause_stand_together_and_every_cell_stands_once() -> None:
    run = judged(cliff=0.6, generation=0.7)
    cells = run.verdict.cells
    withheld = tuple(
        replace(c, outcome="INCONCLUSIVE", code="pace", message=f"would be PASS ({c.depth}), but x")
        if c.metric.name == "ttft"
        else c
        for c in cells
    )
    found = causes_of(withheld)
    assert [(c.outcome, len(c.cells)) for c in found] == [
        ("REGRESSED", 4),
        ("INCONCLUSIVE", 4),
        ("PASS", 12),
    ]
    assert found[1].said == "warm TTFT at 2K, 8K, 32K, 128K: x"
