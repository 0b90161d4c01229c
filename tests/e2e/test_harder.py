"""Harder tests on the real server: a model that can do them, one that loses a task, one that can't.

The reference model cannot do them, so the proxy answers, from the document that was really sent.
"""

from collections.abc import Iterator

import pytest

from harness.measuring.harder import HarderClimb
from harness.records.probes import ProbeScore
from harness.verdicts.harder import cells, judge_harder
from tests.e2e.live import Live, live
from tests.e2e.proxy import Asked, Change, solve, unchanged

pytestmark = pytest.mark.slow

DEPTHS = (2048, 3072)
DEEP_CHARS = 4500  # between the characters of the two documents


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("harder"), n_ctx=max(DEPTHS)) as opened:
        yield opened


def climb(served: Live, change: Change, *tasks: str) -> list[ProbeScore]:
    """The scores of a climb; what the model itself says is cut short, the proxy answers."""
    wanted = {"harder": tasks, "depths": DEPTHS, "answer_tokens": 8}
    settings = served.settings.model_copy(update=wanted)
    interview = served.interview(settings)
    made = HarderClimb(interview)
    served.proxy.change = change
    scores = [asked.score for asked in made.run()]
    assert interview.spent.document_tokens <= 0.9 * max(DEPTHS)  # the document is read once
    assert interview.spent.cold_tokens == 0
    return scores


def loses_hops(asked: Asked, answer: str) -> str:
    """Right, but for chains in the longer document, whose codes have a digit too many."""
    right = solve(asked, answer)
    deep = len(asked.text) > DEEP_CHARS
    return right.replace("=HOP-", "=HOP-9") if deep else right


def test_a_lost_task_is_named_with_its_depth(served: Live) -> None:
    able = climb(served, solve, "kv", "hops", "count")
    assert [(s.name, s.right, s.asked) for s in able] == [
        (f"harder {task} {depth}", 8, 8) for depth in DEPTHS for task in ("kv", "hops", "count")
    ]
    controls = [ask.ask.control_right for ask in served.asks]
    assert controls == [True] * 12
    accepted = able * 2
    assert judge_harder(cells(able)).outcome == "NO_BASELINE"
    same = climb(served, solve, "kv", "hops", "count")
    assert judge_harder(cells(same, accepted)).outcome == "PASS"
    found = judge_harder(cells(climb(served, loses_hops, "kv", "hops", "count"), accepted))
    assert found.outcome == "REGRESSED"
    assert found.message.startswith(
        "worse than the baseline at hops from 3072 tokens on: 0/8 (baseline 16/16) at 3072; "
        "kv 16/16 (baseline 32/32); count 16/16 (baseline 32/32)"
    )
    wrong = [ask.ask for ask in served.asks if ask.ask.needles_right < ask.ask.needles_asked]
    assert {ask.failure_class for ask in wrong} == {"digit_changed"}
    assert {ask.document_tokens for ask in served.asks if ask.ask in wrong} == {
        max(ask.document_tokens for ask in served.asks)
    }


def test_a_model_that_never_could_is_no_error(served: Live) -> None:
    weak = climb(served, unchanged, "hops")
    assert sum(score.right for score in weak) < sum(score.asked for score in weak)
    assert judge_harder(cells(weak, weak * 2)).outcome == "PASS"
