"""Numbers at every rung: asked for on either endpoint, and a server that has none is no fault."""

from typing import Any

import pytest

from harness.measuring.fidelity import LEAST, LEAST_TOKENS, TRAJECTORY_TOKENS
from tests.faults.conftest import Measure
from tests.faults.fake_server import FakeServer
from tests.faults.turn import Turn


def others(turn: Turn) -> None:
    """Other likeliest tokens at the second rung's document and deeper."""
    if turn.place == "numbers" and len(turn.body["prompt"]) > 6000:
        for step in turn.reply["completion_probabilities"]:
            step["top_logprobs"] = [{**one, "id": one["id"] + 5} for one in step["top_logprobs"]]


def refused(turn: Turn) -> None:
    if turn.place == "numbers":
        turn.status, turn.reply = 400, {"error": {"message": "n_probs is not for you"}}


def silent(turn: Turn) -> None:
    if turn.place == "numbers":
        turn.reply = {"content": "x", "timings": {}}


def test_every_rung_has_a_trajectory_and_continuations(run: Measure) -> None:
    with FakeServer() as server:
        result = run(server, remeasure_s=0.0)
    for rung in result.record.rungs:
        look = rung.numbers[0]
        assert LEAST_TOKENS <= len(look.steps[0]) <= TRAJECTORY_TOKENS
        assert len(look.steps) >= 1 + LEAST
        assert look.missing is None
        assert look.new_tokens == 9 * len(look.steps)
    cells = [result.verdict.cell(rung.depth, "fidelity") for rung in result.record.rungs]
    assert [c.outcome for c in cells] == ["PASS"] * len(cells)


def test_the_rung_from_which_on_numbers_are_wrong_is_named(run: Measure) -> None:
    with FakeServer(others) as server:
        result = run(server, remeasure_s=0.0)
    first, second = (result.verdict.cell(rung.depth, "fidelity") for rung in result.record.rungs)
    assert (first.outcome, second.outcome) == ("PASS", "REGRESSED")
    assert f"worse: fidelity at {second.depth // 1024}K" in result.terminal


@pytest.mark.parametrize(
    ("change", "said"), [(refused, "n_probs is not for you"), (silent, "no log-probabilities")]
)
def test_a_server_without_them_is_measured_all_the_same(
    run: Measure, change: Any, said: str
) -> None:
    with FakeServer(change) as server:
        result = run(server, remeasure_s=0.0)
    assert result.record.footer.failure is None
    for rung in result.record.rungs:
        assert said in rung.numbers[0].missing
        assert any(said in note for note in rung.notes)
        assert result.verdict.cell(rung.depth, "fidelity") is None


def test_reduced_mode_has_them_where_the_server_gives_logprobs(run: Measure) -> None:
    def reduced(turn: Turn) -> None:
        if turn.place in ("props", "slots", "tokenize", "template", "rung"):
            turn.stream, turn.status = False, 404
            turn.reply = {"error": {"message": "not found"}}
        if turn.place == "numbers":
            assert turn.body["top_logprobs"] == 8

    with FakeServer(reduced) as server:
        result = run(server, remeasure_s=0.0)
    assert result.record is not None, result.refused
    for rung in result.record.rungs:
        assert rung.numbers[0].steps[0][0][0][0] == "t0"
