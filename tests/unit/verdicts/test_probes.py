"""Scores of heatmap and fuzz: judged as shares, kept in records and baselines; asking again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import SetupError
from harness.measuring.asking import larger_budget
from harness.records.baseline import AcceptedRun, Baseline, Key, accepted, key_of
from harness.records.lines import LINE, AskRecord, Event, ProbeAsk, RunRecord
from harness.records.metrics import METRICS
from harness.records.probes import CellResult, Matrix, ProbeScore, matrix_of, scores_of
from harness.report.heatmap_text import heatmap_lines
from harness.settings import Settings, load
from harness.verdicts.acceptance import update
from harness.verdicts.order_effect import scores_by_order
from harness.verdicts.probes import judge_heatmap, judge_probe, score_heatmap
from harness.verdicts.verdict import judge
from tests import made

NAME = "fuzz questions 2048"


def score(right: int, asked: int, name: str = NAME) -> ProbeScore:
    return ProbeScore(name=name, right=right, asked=asked)


@pytest.mark.parametrize(
    ("mine", "accepted_scores", "exact", "outcome"),
    [
        (score(60, 60), [], True, "PASS"),
        (score(59, 60), [score(60, 60)], True, "REGRESSED"),
        (score(60, 60), [], False, "NO_BASELINE"),
        (score(0, 60), [score(0, 60)], False, "PASS"),
        (score(2, 60), [score(3, 60)], False, "PASS"),
        (score(5, 60), [score(40, 60)], False, "REGRESSED"),
        (score(40, 60), [score(5, 60)], False, "IMPROVED"),
        (score(40, 60), [score(40, 60, "heatmap 8x16")], False, "NO_BASELINE"),
        (score(1, 1), [score(1, 1)], False, "INCONCLUSIVE"),
        (score(0, 0), [score(1, 2)], False, "INVALID"),
    ],
)
def test_a_probe_is_judged_by_its_share(
    mine: ProbeScore, accepted_scores: list[ProbeScore], exact: bool, outcome: str
) -> None:
    found = judge_probe(mine, "said", accepted_scores, exact=exact)
    assert found.outcome == outcome
    assert found.message.startswith("said")
    assert found.next_step or outcome == "PASS"


@given(st.integers(3, 400), st.floats(0, 1))
def test_equal_shares_never_regress(asked: int, share: float) -> None:
    mine = score(round(share * asked), asked)
    assert judge_probe(mine, "", [mine, mine], exact=False).outcome == "PASS"


def with_events(*events: Event) -> RunRecord:
    return made.record(made.rung()).model_copy(update={"events": events})


def test_scores_travel_from_the_record_into_the_baseline() -> None:
    events = [
        Event(code="probe_score", message="", data=s.model_dump())
        for s in (score(1, 9), score(7, 9), score(5, 5, "heatmap 2x4"))
    ]
    record = with_events(*events)
    assert scores_of(record) == (score(7, 9), score(5, 5, "heatmap 2x4"))
    run = accepted(record, "2026-01-01T00:00:00", None)
    again = AcceptedRun.model_validate_json(run.model_dump_json())
    key = Key(machine_class="m", model="x", config={})
    assert Baseline(key=key, runs=(again, again)).probes() == [*scores_of(record)] * 2


def test_a_baseline_without_probes_is_still_read() -> None:
    old = accepted(with_events(), "2026-01-01T00:00:00", None).model_dump(mode="json")
    del old["probes"]
    assert AcceptedRun.model_validate(old).probes == ()


# -- asking again ---------------------------------------------------------------------------


def asked(**fields: object) -> AskRecord:
    return AskRecord.model_validate(
        {
            "order": "forward",
            "expected": {1: "MEM-1"},
            "given": {},
            "control_number": None,
            "answer": "",
            "reasoning": "",
            "finish_reason": "length",
            "needles_right": 0,
            "needles_asked": 1,
            "codes_present": 0,
            "control_right": False,
            "prompt_tokens": 1000,
            "new_tokens": 50,
            "cached_tokens": 950,
            "planned_new_tokens": 50,
            "predicted_tokens": 256,
            "predicted_ms": 1.0,
            "ttft_ms": 1.0,
            "wall_ms": 2.0,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("invalid", "n_ctx", "expected"),
    [
        (("budget",), None, 1024),
        (("budget",), 4096, 1024),
        (("budget",), 1500, 500),
        (("budget",), 1256, None),
        (("budget", "contaminated"), 4096, None),
        (("control_failed",), 4096, None),
        ((), 4096, None),
    ],
)
def test_only_a_cut_answer_is_asked_again_and_only_where_there_is_room(
    invalid: tuple[str, ...], n_ctx: int | None, expected: int | None
) -> None:
    assert larger_budget(asked(invalid=invalid), 256, n_ctx) == expected


def test_a_superseded_ask_counts_nowhere() -> None:
    cut = asked(superseded=True, invalid=("budget",))
    right = asked(needles_right=1, control_right=True, finish_reason="stop")
    (forward, *_) = scores_by_order([cut, right])
    assert (forward.right, forward.asked, forward.left_out) == (1, 1, 0)
    rung = made.record(made.rung()).rungs[0].model_copy(update={"asks": (cut, right)})
    assert rung.counted_asks == (right,)


def test_a_probes_ask_is_a_line_of_the_record() -> None:
    line = ProbeAsk(probe="fuzz", document_tokens=900, cold=True, ask=asked())
    assert LINE.validate_json(line.model_dump_json()) == line


# -- the heatmap as text --------------------------------------------------------------------


def matrix() -> Matrix:
    def cell(length: int, band: int, warm: str, cold: str | None = None) -> CellResult:
        return CellResult(
            length=length, band=band, share=band / 2 + 0.2, warm_class=warm, cold_class=cold
        )

    return Matrix(
        lengths=(1024, 2048),
        document_tokens=(800, 1700),
        bands=2,
        cells=(
            cell(1024, 0, "right"),
            cell(1024, 1, "swapped", "swapped"),
            cell(2048, 0, "digit_changed", "right"),
            cell(2048, 1, "incomplete"),
        ),
        prefilled_tokens=2000,
        question_tokens=160,
        confirm_tokens=2500,
        elapsed_s=3.2,
    )


def test_the_heatmap_as_text_tells_every_state_apart() -> None:
    lines = list(heatmap_lines(matrix()))
    text = "\n".join(lines)
    assert text.isascii()
    assert "1 of 4 cells right; 1 wrong, also when read cold; 1 wrong with the document" in lines[0]
    assert [line.split() for line in lines[1:4]] == [
        ["depth", "1K", "2K"],
        ["0%-50%", ".", "w"],
        ["50%-100%", "X", "?"],
    ]
    assert "  2K, 20%: digit changed, cold: right" in lines
    assert "1840 tokens of document, 0.90 x ctx, 160 of questions, 2500 read cold" in text


def of_states(states: str) -> Matrix:
    """A heatmap of one length whose cells are right, Wrong, warm only, ?unconfirmed, !invalid."""
    cells = [
        CellResult(
            length=1024,
            band=band,
            share=0.0,
            warm_class="right" if state == "." else "swapped",
            warm_valid=state != "!",
            cold_class={"X": "swapped", "w": "right"}.get(state),
        )
        for band, state in enumerate(states)
    ]
    return Matrix(lengths=(1024,), document_tokens=(900,), bands=len(states), cells=tuple(cells))


@pytest.mark.parametrize(
    ("states", "base", "exact", "counted", "outcome"),
    [
        ("..........", None, True, (10, 10), "PASS"),
        (".........w", None, True, (9, 10), "REGRESSED"),
        (".........X", None, True, (9, 10), "REGRESSED"),
        (".........?", None, True, (9, 9), "INCONCLUSIVE"),
        (".........!", None, True, (9, 9), "INVALID"),
        ("........X!", None, True, (8, 9), "INVALID"),
        ("!!!!!!!!!!", None, True, (0, 0), "INVALID"),
        ("!!!!!!!!!!", None, False, (0, 10), "NO_BASELINE"),
        ("!!!!!!!!!!", 0, False, (0, 10), "PASS"),
        (".XX!!!???w", 1, False, (1, 10), "PASS"),
        ("....?????X", 10, False, (4, 10), "REGRESSED"),
        ("....wwwwwX", 10, False, (4, 10), "REGRESSED"),
        ("!!!!!!!!!!", 10, False, (0, 10), "INVALID"),
        ("..........", 0, False, (10, 10), "IMPROVED"),
    ],
)
def test_a_heatmap_is_judged_by_its_cells(
    states: str, base: int | None, exact: bool, counted: tuple[int, int], outcome: str
) -> None:
    found = of_states(states)
    mine = score_heatmap(found, exact=exact)
    assert (mine.name, (mine.right, mine.asked)) == ("heatmap 1x10", counted)
    old = [] if base is None else [score(base, 10, "heatmap 1x10")] * 2
    verdict = judge_heatmap(found, "said", old, exact=exact)
    assert verdict.outcome == outcome, verdict.message
    assert verdict.next_step or outcome == "PASS"


def test_the_heatmap_is_read_back_from_the_record() -> None:
    found = matrix()
    record = with_events(Event(code="heatmap", message="", data=found.model_dump()))
    assert matrix_of(record) == found
    assert matrix_of(with_events()) is None


# -- settings -------------------------------------------------------------------------------


def settings(tmp_path_factory: pytest.TempPathFactory, **options: object) -> Settings:
    return load(options, tmp_path_factory.mktemp("settings"), {})


def test_shapes_and_fuzz_sizes_are_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = settings(
        tmp_path_factory, ctx_tokens="32K", heatmap="8x16", fuzz_examples="20", fuzz_ctx="4K"
    )
    assert found.heatmap == (8, 16)
    assert (found.fuzz_examples, found.fuzz_depth) == (20, 4096)
    assert settings(tmp_path_factory).fuzz_depth == 2048
    assert settings(tmp_path_factory).heatmap is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heatmap": "8"}, "expected lengths x depths"),
        ({"heatmap": "0x4"}, "expected lengths x depths"),
        ({"heatmap": "8x16", "ctx_tokens": 8192}, "too fine for this context"),
        ({"fuzz_examples": 0}, "expected 1 or more"),
        ({"fuzz_examples": 5, "fuzz_ctx": 1024}, "expected 1536 tokens or more"),
        ({"fuzz_examples": 5, "fuzz_ctx": 16384}, "no more than --ctx (8192)"),
    ],
)
def test_nonsense_is_refused(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, object], said: str
) -> None:
    with pytest.raises(SetupError) as refusal:
        settings(tmp_path_factory, **options)
    assert said in str(refusal.value)


# -- weak models ----------------------------------------------------------------------------


def of_a_weak_model(*, right: int, control_right: bool) -> RunRecord:
    asks = [
        asked(
            needles_asked=5,
            needles_right=right,
            control_right=control_right,
            invalid=() if control_right else ("control_failed",),
            failure_class="incomplete",
            finish_reason="stop",
        )
        for _ in range(3)
    ]
    return made.record(made.rung(asks=asks))


@pytest.mark.parametrize(
    ("then", "now", "outcome"),
    [
        ((0, False), (0, False), "PASS"),
        ((1, False), (1, False), "PASS"),
        ((5, True), (0, False), "INVALID"),
        ((0, False), (5, True), "IMPROVED"),
    ],
)
def test_a_control_that_failed_when_accepted_may_fail_again(
    then: tuple[int, bool], now: tuple[int, bool], outcome: str
) -> None:
    old = of_a_weak_model(right=then[0], control_right=then[1])
    new = of_a_weak_model(right=now[0], control_right=now[1])
    runs = tuple(accepted(old, "2026-01-01T00:00:00", "a weak model") for _ in range(2))
    baseline = Baseline(key=key_of(old.header), runs=runs)
    verdict = judge(new, baseline, dict.fromkeys(METRICS, 0.1))
    cell = verdict.cell(2048, "retrieval")
    assert cell is not None
    assert cell.outcome == outcome, cell.message


def test_a_run_without_a_ladder_is_no_baseline() -> None:
    bare = made.record(made.rung()).model_copy(update={"rungs": ()})
    found = update([bare, bare], None, dict.fromkeys(METRICS, 0.1), accepted_at="now")
    assert any("measured no rung" in said for said in found.impossible)
