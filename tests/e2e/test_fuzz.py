"""Hypothesis against the real server: right answers, the smallest order that fails, weak models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import ServerError
from harness.measuring.asking import Interview
from harness.measuring.fuzz import Fuzz
from harness.verdicts.probes import judge_probe
from tests.e2e.live import Live, live
from tests.e2e.proxy import break_off, drop_last, only_when, swap_two, unchanged


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("fuzz"), n_ctx=2048) as opened:
        yield opened


def fuzz(served: Live, folder: Path, *, exact: bool = True) -> tuple[Fuzz, Interview]:
    interview = served.interview()
    made = Fuzz(interview, examples_dir=folder, exact=exact)
    return made, interview


def test_any_order_and_subset_is_answered_right(served: Live, tmp_path: Path) -> None:
    made, interview = fuzz(served, tmp_path)
    found = made.questions(12)
    assert found.failure is None
    assert found.examples == 12
    assert found.score.right == found.score.asked
    assert found.score.asked == sum(ask.ask.needles_asked for ask in served.asks)  # each once
    documents = {ask.document_tokens for ask in served.asks}
    assert len(documents) == 1
    assert interview.spent.document_tokens < 1536
    tails = sum(ask.ask.planned_new_tokens for ask in served.asks)
    assert interview.spent.question_tokens <= tails


def test_needles_are_found_wherever_they_stand(served: Live, tmp_path: Path) -> None:
    found = fuzz(served, tmp_path)[0].placements(3)
    assert found.failure is None
    assert found.examples == 3
    assert found.score.right == found.score.asked > 0
    assert all(ask.cold and ask.ask.cached_tokens == 0 for ask in served.asks)


def test_the_smallest_order_that_fails_is_found_kept_and_replayed(
    served: Live, tmp_path: Path
) -> None:
    made, _ = fuzz(served, tmp_path)
    served.proxy.change = only_when(lambda asked: asked.before("ECHO", "ALPHA"), swap_two)
    found = made.questions(200)
    assert found.failure is not None
    assert "asking ECHO, ALPHA, control of a document" in found.failure
    assert found.failure.startswith("swapped when")
    assert "asked again: swapped; read cold: swapped" in found.failure
    assert not found.replayed
    made, _ = fuzz(served, tmp_path)
    served.proxy.change = only_when(lambda asked: asked.before("ECHO", "ALPHA"), swap_two)
    again = made.questions(200)
    assert again.replayed
    assert "asking ECHO, ALPHA, control of a document" in (again.failure or "")
    assert len(served.asks) < 12
    assert again.examples == 0
    mended = fuzz(served, tmp_path)[0].questions(3)
    assert mended.failure is None
    assert mended.examples == 3


def test_what_only_a_reused_document_breaks_is_told(served: Live, tmp_path: Path) -> None:
    made, _ = fuzz(served, tmp_path)
    served.proxy.change = only_when(lambda asked: not asked.cold, swap_two)
    found = made.questions(5)
    assert "asking ALPHA, control of a document" in (found.failure or "")
    assert "asked again: swapped; read cold: right" in (found.failure or "")


def test_a_weak_model_is_scored_and_not_shrunk(served: Live, tmp_path: Path) -> None:
    made, _ = fuzz(served, tmp_path, exact=False)
    served.proxy.change = lambda asked, answer: ""
    found = made.questions(6)
    assert found.failure is None
    assert found.examples == 6
    assert found.score.right == 0
    assert len(served.asks) <= 6
    first = judge_probe(found.score, "none right", [], exact=False)
    assert first.outcome == "NO_BASELINE"
    again = judge_probe(found.score, "none right", [found.score], exact=False)
    assert again.outcome == "PASS"


def test_a_broken_connection_ends_the_fuzz_at_once(served: Live, tmp_path: Path) -> None:
    made, _ = fuzz(served, tmp_path)
    served.proxy.change = break_off
    with pytest.raises(ServerError):
        made.questions(50)
    assert served.proxy.asked == 1


def test_a_missing_control_answer_is_shrunk_too(served: Live, tmp_path: Path) -> None:
    made, _ = fuzz(served, tmp_path)
    served.proxy.change = only_when(lambda asked: len(asked.questions) > 2, drop_last)
    found = made.questions(30)
    assert "asking ALPHA, BRAVO, control of a document" in (found.failure or "")
    served.proxy.change = unchanged
