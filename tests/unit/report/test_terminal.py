"""The summary: every cell, every reason, in any encoding and width, with nothing live in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import Footer, ProbeAsk, RunRecord
from harness.records.metrics import METRICS
from harness.report.terminal import summary
from harness.report.text import encodable
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests.answers import SESSIONS, busy, end_of, ended
from tests.made import ask, record, rung

BANDS = {name: metric.band for name, metric in METRICS.items()}


def shown(now: RunRecord, then: RunRecord | None = None, **options: object) -> str:
    baseline = None
    if then is not None:
        run = accepted(then, "now", None)
        baseline = Baseline(key=key_of(then.header), runs=(run, run))
    settings: dict[str, object] = {"width": 100, "color": False, "encoding": "utf-8"}
    run = Judged(now, judge(now, baseline, BANDS), baseline)
    return summary(run, **{**settings, **options})  # type: ignore[arg-type]


def test_the_table_has_every_cell() -> None:
    runs = [record(rung(), rung(8192, start=1843))] * 2
    text = shown(*runs, every=True)
    assert "|" not in shown(*runs)  # unless asked for, only what is not the same
    for label in ("prefill", "generation", "warm TTFT", "server memory", "retrieval"):
        assert sum(label in line and "|" in line for line in text.splitlines()) == 2
    assert "1,000 tok/s" in text
    assert "15 of 15" in text


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_reasons_and_next_steps_come_before_the_table(width: int) -> None:
    text = shown(record(rung(prefill_tok_s=600.0)), record(rung()), width=width)
    assert text.index("worse: prefill −40 % at 2K; 2K: 600 tok/s, was 1,000") == 0
    assert "next: run it again to confirm" in " ".join(text.split())
    assert "−40 %" in text


def test_what_makes_the_document_harder_is_said() -> None:
    plain = record(rung())
    plan = plain.header.plan.model_copy(update={"distractors": 5, "background": "hard"})
    harder = plain.model_copy(update={"header": plain.header.model_copy(update={"plan": plan})})
    assert "context 2K, 5 distractors a rung, background hard" in shown(harder)
    assert "distractors" not in shown(plain)


def test_wrong_answers_are_explained() -> None:
    text = shown(record(rung(asks=[ask(3), ask(3), ask(3)])), record(rung()), every=True)
    assert "9 of 15" in text
    assert "digit changed" in text


@pytest.mark.parametrize("encoding", ["cp932", "cp1252", "ascii", "utf-8", None, "no-such-codec"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_any_console_can_show_it(encoding: str | None, width: int) -> None:
    text = shown(record(rung(prefill_tok_s=600.0)), record(rung()), width=width, encoding=encoding)
    known = encoding if encoding not in (None, "no-such-codec") else "ascii"
    if encoding is not None:
        text.encode(known or "ascii")
    assert text.startswith("worse: prefill")


def test_model_text_cannot_drive_the_terminal() -> None:
    hostile = ask(0, answer="\x1b[2J\x1b]0;title\x07", failure_reason="\x1b[31mred[/red][bold]")
    text = shown(record(rung(asks=[hostile] * 3)), record(rung()), color=False, every=True)
    assert "\x1b" not in text


def test_known_signs_become_ascii_and_the_rest_question_marks() -> None:
    assert encodable("±10 % → −5 …", "ascii") == "+/-10 % -> -5 ..."
    assert encodable("深さ 8K", "ascii") == "?? 8K"
    assert encodable("深さ 8K", "cp932") == "深さ 8K"


def test_a_first_run_s_numbers_are_a_row_a_rung_and_disturbed_ones_are_marked() -> None:
    lines = shown(busy(record(rung(), rung(8192, start=1843)))).splitlines()
    assert lines[2].split()[:3] == ["depth", "prefill", "tok/s"]
    assert lines[3].split()[:4] == ["2K", "1,000*", "100*", "50.0"]
    assert lines[5].endswith("* disturbed")


def test_notes_of_a_run_of_which_nothing_is_wrong_are_told_only_when_asked_for() -> None:
    run = record(rung().model_copy(update={"notes": ("a note",)}))
    assert "a note" not in shown(run)
    assert "note at 2K: a note" in shown(run, every=True)


@pytest.mark.parametrize(("name", "session"), SESSIONS.items())
def test_the_ends_of_sessions_in_the_design_notes_are_what_is_printed(
    name: str, session: Callable[[], Judged]
) -> None:
    text = end_of(session())
    page = (Path(__file__).parents[3] / "docs/design/answers.md").read_text(encoding="utf-8")
    now = page.partition(f"## {name}\n")[2].partition("\n## ")[0].rpartition("```text\n")[2]
    assert now.partition("```")[0] == text
    lines = text.splitlines()
    assert lines[-1].startswith(lines[0])
    assert len(lines) <= LONGEST.get(name, 15)


LONGEST = {"Passed": 4, "Busy machine": 8, "Ctrl-C": 8}


def test_the_time_of_what_came_after_the_ladder_is_told_apart_from_it() -> None:
    late = ask(5).model_copy(update={"end_s": 156.0})
    probe = ProbeAsk(probe="heatmap", document_tokens=900, cold=True, ask=late)
    run = ended(record(rung())).model_copy(update={"probe_asks": (probe,)})
    text = " ".join(shown(run, every=True).split())
    assert "in 1 min 01 s; heatmap after it: 1 min 35 s" in text


def test_at_60_columns_a_cell_is_one_line_and_no_name_is_cut() -> None:
    texts = [
        summary(SESSIONS[name](), width=60, color=False, encoding="utf-8")
        for name in ("Regressed", "First run")
    ]
    assert all(len(line) <= 60 for text in texts for line in text.splitlines())
    rows = [line.split("|") for line in texts[0].splitlines() if "|" in line]
    assert [row[0].strip() for row in rows] == ["depth", "32K", "", "128K", ""]
    assert ["prefill", "generation", "warm", "TTFT", "memory"] in [
        line.split() for line in texts[1].splitlines()
    ]


def test_a_torn_record_and_one_without_an_end_are_said() -> None:
    killed = record(rung())
    assert "this record has no end" in shown(killed, record(rung()))
    torn = shown(killed.model_copy(update={"torn": True}), record(rung()))
    assert "this record is broken off" in torn
    footer = Footer(ended_at="now", complete=True, prefilled_tokens=9, elapsed_s=1.0)
    assert "no end" not in shown(killed.model_copy(update={"footer": footer}), record(rung()))


def test_depth_and_outcome_are_never_cut() -> None:
    deep = rung(131072).model_copy(update={"generations": ()})
    for width in (80, 60, 54):
        rows = [
            line.split("|")
            for line in shown(record(deep), record(deep), width=width, every=True).splitlines()
            if line.count("|") > 2
        ]
        assert rows[0][0].split() == ["depth"]
        assert "128K" in rows[1][0] or "128K" in rows[2][0]
        assert {row[-1].strip() for row in rows} - {""} == {"same", "can't tell"}
        assert all(len("|".join(row)) <= width for row in rows)
