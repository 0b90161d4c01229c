"""Spot runs, judged and accepted: said, never part of a baseline, no point of a trend."""

import pytest

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import NOT_SPOT, SPOT, Event, RunRecord
from harness.verdicts.acceptance import update
from harness.verdicts.trend import points_of
from harness.verdicts.verdict import judge
from tests.made import BANDS, DEPTHS, control, header, rung, whole_run

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


def spotted(full: RunRecord) -> RunRecord:
    """The same run, of whose deeper rungs only the last 3072 tokens were read."""
    rungs = []
    for one in full.rungs:
        start = one.prefills[-1].chunks[-1].end_tokens - 3072
        if one.depth > 2048:
            (climb,) = (p for p in one.prefills if p.kind == "climb")
            chunks = tuple(c for c in climb.chunks if c.start_tokens >= start)
            took_ms = sum(c.ms for c in chunks)
            read = chunks[-1].end_tokens - chunks[0].start_tokens
            told = {"chunks": chunks, "new_tokens": read, "server_ms": took_ms}
            told |= {"planned_cached_tokens": chunks[0].start_tokens, "wall_ms": took_ms + 2}
            told |= {"cached_tokens": chunks[0].start_tokens, "end_s": climb.end_s}
            one = one.model_copy(update={"prefills": (climb.model_copy(update=told),)})
        rungs.append(one)
    events = (*full.events, Event(code=SPOT, message="spot run"))
    return full.model_copy(update={"rungs": tuple(rungs), "events": events})


@pytest.mark.parametrize(("generation", "outcome"), [(1.0, "PASS"), (0.8, "REGRESSED")])
def test_a_spot_run_is_judged_against_full_ones(generation: float, outcome: str) -> None:
    runs = tuple(accepted(whole_run(seed), "then", None) for seed in (1, 2, 3))
    now = spotted(whole_run(4, generation=generation))
    verdict = judge(now, Baseline(key=key_of(now.header), runs=runs), BANDS)
    for depth in DEPTHS:
        found = {c.metric.name: c.outcome for c in verdict.cells if c.depth == depth}
        assert depth != DEPTHS[-1] or found["generation"] == outcome
        assert {found["prefill"], found["ttft"], found["retrieval"]} == {"PASS"}, depth
