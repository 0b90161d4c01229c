"""Runs in several sittings: each is judged by the controls around it, and only equals are kept."""

from collections.abc import Sequence

import pytest

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import (
    CURVE,
    RESUMED,
    Control,
    Event,
    Failure,
    Footer,
    Header,
    Rung,
    RunRecord,
)
from harness.records.metrics import METRICS
from harness.records.sittings import changed, climb_ms, finished_rungs, same_plan, unfinished
from harness.verdicts.verdict import RunVerdict, judge
from tests.made import control, header, rung

BANDS = dict.fromkeys(METRICS, 0.1)
STEADY = (1000.0, 1001.0, 999.0)
SLOWED = (700.0, 701.0, 699.0)


def sitting_of(line: Control | Rung, sitting: int) -> Control | Rung:
    return line.model_copy(update={"sitting": sitting})


def two_sittings(
    *controls: tuple[int, str, Sequence[float]], complete: bool = True, resumes: int = 1
) -> RunRecord:
    """2048 of the first sitting, 8192 of the last; `controls` are (sitting, position, rates)."""
    footer = Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0)
    return RunRecord(
        header=header(),
        rungs=(rung(2048), rung(8192, start=1843).model_copy(update={"sitting": 1 + resumes})),
        controls=tuple(
            control(position, rates).model_copy(update={"sitting": sitting})
            for sitting, position, rates in controls
        ),
        events=(Event(code=RESUMED, message="resumed"),) * resumes,
        footer=footer if complete else None,
    )


def judged(record: RunRecord) -> RunVerdict:
    runs = tuple(accepted(record, "now", None) for _ in range(2))
    return judge(record, Baseline(key=key_of(record.header), runs=runs), BANDS)


def reason(verdict: RunVerdict, depth: int) -> tuple[str, str]:
    cell = verdict.cell(depth, "generation")
    assert cell is not None
    return cell.outcome, cell.message


def test_the_next_sittings_first_control_closes_one_that_was_cut_short() -> None:
    verdict = judged(
        two_sittings((1, "before", STEADY), (2, "before", STEADY), (2, "after", STEADY))
    )
    assert reason(verdict, 2048)[0] == "PASS"
    assert reason(verdict, 8192)[0] == "PASS"


def test_drift_between_two_sittings_takes_back_the_first_ones_cells_only() -> None:
    verdict = judged(
        two_sittings((1, "before", STEADY), (2, "before", SLOWED), (2, "after", SLOWED))
    )
    outcome, message = reason(verdict, 2048)
    assert outcome == "INCONCLUSIVE"
    assert "sitting 1 of 2" in message
    assert "over sitting 1" in message
    assert reason(verdict, 8192)[0] == "PASS"


def test_drift_within_the_second_sitting_leaves_the_first_ones_cells() -> None:
    verdict = judged(
        two_sittings((1, "before", STEADY), (2, "before", STEADY), (2, "after", SLOWED))
    )
    assert reason(verdict, 2048)[0] == "PASS"
    assert reason(verdict, 8192)[0] == "INCONCLUSIVE"


def test_a_sitting_that_no_control_closed_is_not_judged() -> None:
    verdict = judged(two_sittings((1, "before", STEADY), complete=False))
    outcome, message = reason(verdict, 2048)
    assert outcome == "INCONCLUSIVE"
    assert "no control was measured after it" in message


def test_a_second_sitting_cut_short_takes_back_its_own_cells_only() -> None:
    verdict = judged(two_sittings((1, "before", STEADY), (2, "before", STEADY), complete=False))
    assert reason(verdict, 2048)[0] == "PASS"
    outcome, message = reason(verdict, 8192)
    assert outcome == "INCONCLUSIVE"
    assert "ended before its second control" in message


def test_three_sittings_are_bracketed_each_by_itself() -> None:
    record = two_sittings(
        (1, "before", STEADY), (3, "before", STEADY), (3, "after", STEADY), resumes=2
    )
    verdict = judged(record)
    assert reason(verdict, 2048)[0] == "PASS"
    assert next(d.over for d in verdict.drift) == "sitting 1"


def with_machine(one: Header, **changes: object) -> Header:
    return one.model_copy(update={"machine": one.machine.model_copy(update=changes)})


def with_server(one: Header, **changes: object) -> Header:
    return one.model_copy(update={"server": one.server.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (with_machine(header(), os="Linux 7"), "OS: Linux then, Linux 7 now"),
        (with_machine(header(), memory_bytes=1), "memory"),
        (with_machine(header(), driver="2"), "driver: not given then, 2 now"),
        (with_server(header(), build="b2"), "server build: b1 then, b2 now"),
        (with_server(header(), noted={"-t": "1"}), "flag -t: not given then, 1 now"),
        (with_server(header(), key={"ctx": "8192", "ubatch": "64"}), "flag ubatch"),
        (header().model_copy(update={"harness_version": "1"}), "harness: 0 then, 1 now"),
    ],
)
def test_what_changed_is_named(now: Header, said: str) -> None:
    (phrase,) = changed(header(), now)
    assert said in phrase


def test_another_interpreter_or_run_id_is_no_change() -> None:
    now = with_machine(header(run_id="other"), python="3.12")
    assert changed(header(), now) == ()
    assert same_plan(header(), now)


def test_another_ladder_is_another_plan() -> None:
    assert not same_plan(header(), header((2048, 4096)))
    assert not same_plan(header(), header().model_copy(update={"profile": "rocm"}))


def test_failed_rungs_are_measured_again() -> None:
    failure = Failure(cause="INTERRUPTED", message="stopped")
    record = RunRecord(
        header=header(),
        rungs=(rung(2048), rung(8192).model_copy(update={"failure": failure})),
    )
    assert unfinished(record)
    assert list(finished_rungs(record)) == [2048]


def test_the_climb_counts_every_rung_below_and_starts_again_after_a_cold_reading() -> None:
    first, second = rung(2048), rung(8192, start=1843)
    record = RunRecord(header=header(), rungs=(first, second))
    assert climb_ms(record, 2048) == first.prefills[0].wall_ms
    assert climb_ms(record, 8192) == first.prefills[0].wall_ms + second.prefills[0].wall_ms
    cold = second.prefills[0].model_copy(update={"kind": "cold_fallback"})
    again = RunRecord(
        header=header(), rungs=(first, second.model_copy(update={"prefills": (cold,)}))
    )
    assert climb_ms(again, 8192) == cold.wall_ms


def test_how_far_a_killed_prefill_had_come_is_said() -> None:
    points = Event(
        code=CURVE, message="", data={"depth": 8192, "points": [[512, 4.0], [1024, 9e3]]}
    )
    record = RunRecord(
        header=header(),
        rungs=(rung(2048),),
        controls=(control("before", STEADY),),
        events=(points,),
    )
    cell = judge(record, None, BANDS).cell(8192, "prefill")
    assert cell is not None
    assert cell.outcome == "ERROR"
    assert "1024 tokens of its prompt had been read after 9 s" in cell.message
