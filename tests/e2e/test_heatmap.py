"""The heatmap on the real server: every cell for one reading, failures confirmed cold."""

from collections.abc import Iterator

import pytest

from harness.measuring.heatmap import HeatmapClimb
from harness.records.probes import Matrix, matrix_of
from harness.report.heatmap_text import heatmap_lines
from tests.e2e.conftest import Bench
from tests.e2e.live import Live, live
from tests.e2e.proxy import Change, only_when, swap_two

CTX = 2048


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("heatmap"), n_ctx=CTX) as opened:
        yield opened


def climb(served: Live, change: Change | None = None) -> Matrix:
    settings = served.settings.model_copy(update={"heatmap": (2, 5)})
    made = HeatmapClimb(served.interview(settings))
    if change is not None:
        served.proxy.change = change
    return made.run()


def test_every_cell_is_asked_and_only_questions_are_read_anew(served: Live) -> None:
    matrix = climb(served)
    assert matrix.count("right") == 10
    assert [(c.length, c.band) for c in matrix.cells] == [
        (n, b) for n in (1024, 2048) for b in range(5)
    ]
    assert all(c.band == int(5 * c.share) for c in matrix.cells)
    assert matrix.prefilled_tokens is not None
    assert matrix.question_tokens is not None
    assert matrix.planned_prefilled_tokens is not None
    assert matrix.prefilled_tokens - matrix.question_tokens <= 0.9 * CTX
    assert matrix.prefilled_tokens <= matrix.planned_prefilled_tokens + 16
    assert matrix.confirm_tokens == 0
    assert all(not ask.cold for ask in served.asks)


def test_what_fails_cold_as_well_is_wrong(served: Live) -> None:
    matrix = climb(served, swap_two)
    wrong = matrix.count("wrong")
    assert wrong >= 2
    assert matrix.count("right") == 10 - wrong
    assert {c.cold_class for c in matrix.cells if c.state == "wrong"} == {"swapped"}
    assert matrix.confirm_tokens
    text = "\n".join(heatmap_lines(matrix))
    assert text.isascii()
    assert "X wrong, also when read cold" in text
    assert "swapped, cold: swapped" in text


def test_what_fails_only_with_the_document_reused_is_told_apart(served: Live) -> None:
    matrix = climb(served, only_when(lambda asked: not asked.cold, swap_two))
    assert matrix.count("wrong") == 0
    apart = matrix.count("wrong_warm_only")
    assert apart >= 2
    assert matrix.count("right") == 10 - apart


@pytest.mark.slow
def test_the_suite_shows_and_records_the_heatmap(bench: Bench) -> None:
    asked = ("-m", "long", "--ctx", "4096", "-k", "heatmap or fuzz or harder", "-rs")
    done = bench.pytest(
        *asked, "--heatmap", "2x6", "--fuzz-examples", "4", "--fuzz-ctx", "1536", "--harder", "kv"
    )
    assert done.code == 0, done.text
    assert "3 passed, 1 skipped" in done.text
    assert "NO_BASELINE: kv " in done.text
    assert "reference model was not made for these tasks" in " ".join(done.text.split())
    assert "heatmap 2x6 up to 4096 tokens: 12 of 12 cells right" in done.text
    assert "tokens of document, 0." in done.text
    assert "right in 4 examples of questions at 1536 tokens" in done.text
    (record,) = bench.records()
    matrix = matrix_of(record)
    assert matrix is not None
    assert matrix.count("right") == 12
    assert {ask.probe for ask in record.probe_asks} == {"heatmap", "fuzz", "harder"}
    assert record.footer is not None
    assert record.footer.complete
    skipped = bench.pytest(*asked)
    assert "4 skipped" in skipped.text
    assert "not asked for; --harder kv,hops,count does" in skipped.text
    assert "not asked for; --heatmap 8x16 does" in skipped.text
    assert "not asked for; --fuzz-examples 20 does" in skipped.text
    assert len(bench.records()) == 1


def test_a_heatmap_too_fine_for_its_context_is_refused(bench: Bench) -> None:
    done = bench.pytest("-m", "long", "--ctx", "8192", "--heatmap", "8x16")
    assert done.code == 4
    assert "too fine for this context" in " ".join(done.text.split())
    assert bench.records() == []
    done = bench.pytest("-m", "long", "--heatmap", "8")
    assert done.code == 4
    assert "expected lengths x depths" in " ".join(done.text.split())
