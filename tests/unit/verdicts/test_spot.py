"""Spot runs, judged and accepted: said, never part of a baseline, no point of a trend."""

from harness.records.lines import NOT_SPOT, SPOT, Event, RunRecord
from harness.verdicts.acceptance import update
from harness.verdicts.trend import points_of
from harness.verdicts.verdict import judge
from tests.made import BANDS, control, header, rung

STEADY = [100.0, 101.0, 99.0]


def run(run_id: str, *events: Event) -> RunRecord:
    return RunRecord(
        header=header((2048,), run_id=run_id),
        rungs=(rung(2048, generation_tok_s=STEADY),),
        controls=(control("before", STEADY), control("after", STEADY)),
        events=events,
    )


def test_acceptance_refuses_a_spot_run_by_name() -> None:
    spot = run("b", Event(code=SPOT, message="spot run"))
    found = update([run("a"), spot], None, BANDS, accepted_at="now")
    assert [said for said in found.impossible if "run b is a spot run" in said]


def test_what_a_spot_run_does_not_cover_is_said() -> None:
    for code in (SPOT, NOT_SPOT):
        verdict = judge(run("b", Event(code=code, message="not covered")), None, BANDS)
        assert "not covered" in verdict.differences


def test_the_last_batches_are_no_point_of_the_prefill_trend() -> None:
    full, spot = run("a"), run("b", Event(code=SPOT, message="spot run"))
    metrics = [{p.metric for p in points_of(record)} for record in (full, spot)]
    assert metrics[0] - metrics[1] == {"prefill"}
