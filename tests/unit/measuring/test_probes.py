"""What drives the probes, against a pretended server: tokens spent, confirmation, foreign codes."""

import random
from pathlib import Path

import pytest

from harness.measuring.fuzz import Fuzz
from harness.measuring.harder import HarderClimb
from harness.measuring.heatmap import CONFIRM_LIMIT, HeatmapClimb
from harness.questions.needles import CodeSource, Needle, make_ask
from harness.records.lines import AskRecord
from harness.records.probes import Matrix
from harness.settings import Settings
from tests.pretended import Pretended, codes_asked, right, tokens_of

CTX = 4096
SETTINGS = Settings(ctx_tokens=CTX, heatmap=(4, 6), fuzz_ctx=1536, harder=("kv", "hops", "count"))


def wrong(prompt: str, cold: bool) -> str:
    """Every needle's answer is the next one's; the control's is right."""
    codes = codes_asked(prompt)
    needles = [n for n, code in codes.items() if not code.startswith("CTL")]
    turned = dict(zip(needles, [codes[n] for n in [*needles[1:], needles[0]]], strict=True))
    return "\n".join(f"Q{n}={code}" for n, code in {**codes, **turned}.items())


def heatmap(server: Pretended) -> Matrix:
    climb = HeatmapClimb(server.interview(SETTINGS))
    return climb.run()


def test_a_heatmap_reads_its_document_once_and_asks_every_cell() -> None:
    server = Pretended()
    matrix = heatmap(server)
    assert matrix.count("right") == 24
    assert matrix.prefilled_tokens is not None
    assert matrix.question_tokens is not None
    assert matrix.prefilled_tokens - matrix.question_tokens == tokens_of(server.documents[-1])
    tails = sum(ask.ask.planned_new_tokens for ask in server.asks)
    assert matrix.question_tokens == tails
    assert len(server.asks) == 4  # six cells a length, in one request each
    assert matrix.confirm_tokens == 0


def test_what_is_wrong_is_read_cold_only_as_far_as_the_limit_goes() -> None:
    server = Pretended(rule=wrong)
    matrix = heatmap(
        Pretended(rule=lambda text, cold: right(text, cold) if cold else wrong(text, cold))
    )
    assert matrix.count("wrong_warm_only") == 24
    settings = SETTINGS.model_copy(update={"heatmap": (8, 3)})
    matrix = HeatmapClimb(server.interview(settings)).run()
    assert matrix.count("wrong") > 0
    assert matrix.count("unconfirmed") > 0
    assert matrix.count("wrong") + matrix.count("unconfirmed") == 24
    assert 2 * CTX < (matrix.confirm_tokens or 0) <= CONFIRM_LIMIT * CTX


# -- interview ------------------------------------------------------------------------------


def two_documents() -> tuple[CodeSource, Needle, Needle]:
    codes = CodeSource(random.Random(0))
    return (
        codes,
        Needle("MEMORY TARGET ALPHA", codes.take("MEM")),
        Needle("MEMORY TARGET ECHO", codes.take("MEM")),
    )


def answer_with(server: Pretended, code: str) -> None:
    """Its first answer is `code` from now on."""

    def rule(prompt: str, cold: bool) -> str:
        first, *rest = right(prompt, cold).splitlines()
        return "\n".join([f"{first.partition('=')[0]}={code}", *rest])

    server.rule = rule


def test_codes_of_earlier_documents_and_controls_are_foreign_and_those_of_this_are_not() -> None:
    server = Pretended()
    interview = server.interview(SETTINGS)
    codes, alpha, echo = two_documents()
    rng = random.Random(0)
    interview.begin_document([alpha])
    first = make_ask([alpha], codes, "forward", rng)
    assert interview.ask(alpha.text, tokens_of(alpha.text), first).right
    document = alpha.text + echo.text
    interview.begin_document([alpha, echo])
    answer_with(server, echo.code)
    answered = interview.ask(
        document, tokens_of(document), make_ask([alpha], codes, "forward", rng)
    )
    assert (answered.diagnosis.kind, answered.diagnosis.invalid) == ("foreign_code", ())
    interview.begin_document([echo])
    for code in (alpha.code, first.control.code):
        answer_with(server, code)
        answered = interview.ask(
            echo.text, tokens_of(echo.text), make_ask([echo], codes, "forward", rng)
        )
        assert answered.diagnosis.contaminated, code


def test_an_answer_that_its_budget_cut_is_asked_once_more_with_a_larger_one() -> None:
    server = Pretended(rule=lambda prompt, cold: "", finish_reason="length")
    codes, alpha, _ = two_documents()
    ask = make_ask([alpha], codes, "forward", random.Random(0))
    server.interview(SETTINGS).ask(alpha.text, tokens_of(alpha.text), ask)
    assert server.budgets == [256, 1024]
    records: list[AskRecord] = [line.ask for line in server.asks]
    assert [record.superseded for record in records] == [True, False]


# -- fuzz -----------------------------------------------------------------------------------


def test_no_two_placements_share_a_code(tmp_path: Path) -> None:
    server = Pretended()
    seen: list[set[str]] = []

    def rule(prompt: str, cold: bool) -> str:
        assert cold
        seen.append(set(codes_asked(prompt).values()))
        return right(prompt, cold)

    server.rule = rule
    fuzz = Fuzz(server.interview(SETTINGS), examples_dir=tmp_path, exact=True)
    found = fuzz.placements(8)
    assert found.failure is None
    assert len(seen) > 2
    assert sum(map(len, seen)) == len(set().union(*seen))


@pytest.mark.parametrize("exact", [True, False])
def test_each_example_counts_once_and_its_questions_cost_a_tail(
    tmp_path: Path, exact: bool
) -> None:
    server = Pretended()
    interview = server.interview(SETTINGS)
    fuzz = Fuzz(interview, examples_dir=tmp_path, exact=exact)
    found = fuzz.questions(60)
    assert found.examples == len(server.asks) == 60  # no two alike
    assert found.score.right == found.score.asked
    assert found.score.asked == sum(line.ask.needles_asked for line in server.asks)
    assert len(server.documents) == 1
    tails = sum(line.ask.planned_new_tokens for line in server.asks)
    same = tokens_of("<<< LOCAL CONTROL >>>\n") * len(server.asks)  # two tails may begin alike
    assert tails - same <= interview.spent.question_tokens <= tails


# -- harder tests ---------------------------------------------------------------------------


def test_harder_tests_read_one_document_and_say_what_was_wrong() -> None:
    server = Pretended(rule=lambda prompt, cold: "Q1=VAL-000000\nQ2=CTL-1")
    interview = server.interview(SETTINGS.model_copy(update={"depths": (2048, 4096)}))
    found = list(HarderClimb(interview).run())
    assert interview.spent.document_tokens == tokens_of(server.documents[-1]) <= 0.9 * CTX
    assert [asked.score.name for asked in found] == [
        f"harder {task} {depth}" for depth in (2048, 4096) for task in ("kv", "hops", "count")
    ]
    assert all(asked.score.right == 0 and asked.classes.total() == 8 for asked in found)
    assert all(asked.controls_failed == asked.requests == 2 for asked in found)
    assert "0/8 right (" in found[0].sentence
    assert "incomplete" in found[0].sentence
    assert found[0].sentence.endswith("local control wrong in 2 of 2 requests")
