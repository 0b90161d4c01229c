"""Markdown for job summaries and issues, the terminal's curve, and JUnit's properties."""

from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from harness.records.files import Recorder
from harness.report.junit import properties
from harness.report.markdown import bug_report, fenced, summary, text
from harness.report.publish import publish
from harness.report.sparkline import ASCII, BLOCKS, prefill_line, sparkline
from harness.report.terminal import summary as terminal_summary
from harness.settings import Settings
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests.made import BANDS, judged, whole_run


def shown(markdown: str) -> str:
    """What a reader sees: the text of the rendered page, without any tag."""
    tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(markdown)
    return "\n".join(
        "".join(c.content for c in t.children) if t.children else t.content
        for t in tokens
        if t.type in ("inline", "fence")
    )


def test_the_job_summary_as_its_reader_sees_it() -> None:
    seen = shown(summary(judged(cliff=0.6), trends=["generation at 32K: −6.0 % since …"]))
    assert seen.startswith("🔴 worse: prefill −40 % from 32K on; 128K: 334 tok/s, was 557\n")
    assert "Qwen3.5-2B on AMD Ryzen AI Max+ 395 (evo-x2), server b11480" in seen
    assert "next: run it again to confirm" in seen
    assert "threads 16 → 8" in seen
    assert "generation at 32K: −6.0 % since …" in seen
    assert "prefill by batch, tok/s: 2," in seen


def test_the_table_has_every_cell() -> None:
    rows = [line for line in summary(judged()).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4 * 5
    assert len({row.count("|") for row in rows}) == 1


def test_an_issue_names_machine_build_flags_numbers_and_the_first_bad_build() -> None:
    run = judged(cliff=0.6, build="b11501-4d5e6f70")
    seen = shown(bug_report(run, first_bad="b11490"))
    for part in (
        "AMD Ryzen AI Max+ 395, 16 cores, 128 GiB; Radeon 8060S",
        "b11501-4d5e6f70 (first bad build: b11490)",
        "llama-server -c 131072 -ub 512",
        "Qwen3.5-2B, type unknown, 1.88 B parameters",
        "Failed to allocate pinned memory",
        "from 16.2K on",
    ):
        assert part in seen
    assert "good: b11480-0a1b2c3d" in shown(bug_report(run))
    same = shown(bug_report(judged(cliff=0.6)))
    assert "the baseline's build is the same" in same


def test_the_paragraph_for_an_issue_comes_only_with_something_bad() -> None:
    assert "bug report" in summary(judged(cliff=0.6))
    assert "bug report" not in summary(judged())


def test_a_leaking_server_is_something_bad_to_report() -> None:
    run = judged()
    cells = tuple(
        replace(c, outcome="LEAK", code="leak", message="it grows by 4 KiB a token")
        if (c.depth, c.metric.name) == (131072, "memory")
        else c
        for c in run.verdict.cells
    )
    leaking = replace(run, verdict=replace(run.verdict, cells=cells))
    assert "server memory at 128K tokens: it grows by 4 KiB a token" in shown(bug_report(leaking))
    assert "bug report" in summary(leaking)


@pytest.mark.parametrize(
    "hostile",
    [
        "<img src=x onerror=alert(1)>",
        "[click](https://evil.example)",
        "a | b | c",
        "`code` *bold* __bold__ ~~gone~~",
        "# heading\n\n- item",
        "&lt;b&gt;",
    ],
)
def test_outside_text_is_shown_as_it_is(hostile: str) -> None:
    html = (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(f"model {text(hostile)}")
    )
    assert not any(f"<{tag}" in html for tag in ("img", "a ", "code", "em", "strong", "h1", "s>"))
    seen = shown(f"model {text(hostile)}").replace("\u200b", "")
    assert seen == "model " + " ".join(hostile.split())


@pytest.mark.parametrize(
    "linked", ["@everybody", "#123", "https://evil.example", "www.evil.example"]
)
def test_nothing_becomes_a_mention_or_a_link(linked: str) -> None:
    assert linked not in text(linked)


def test_a_code_block_cannot_be_closed_from_inside() -> None:
    (token,) = MarkdownIt("commonmark").parse(fenced("a\n```\n# out\n````\nb"))
    assert token.type == "fence"
    assert token.content == "a\n```\n# out\n````\nb\n"


def test_a_job_summary_and_a_page_write_themselves(tmp_path: Path) -> None:
    run = whole_run(1)
    recorder = Recorder(tmp_path / "results", run.header)
    for line in (*run.controls, *run.rungs, *run.events):
        recorder.append(line)
    recorder.close()
    settings = Settings(results=tmp_path / "results", baselines=tmp_path / "baselines")
    job = tmp_path / "summary.md"
    job.write_text("before\n")
    said = list(
        publish(
            [Judged(run, judge(run, None, BANDS), None)],
            settings,
            tmp_path / "new" / "r.html",
            {"GITHUB_STEP_SUMMARY": str(job)},
        )
    )
    assert [s.split(":")[0] for s in said] == ["report", "job summary"]
    assert job.read_text(encoding="utf-8").startswith("before\n## ⚪ first run; 128K: ")
    assert "NO_BASELINE" in (tmp_path / "new" / "r.html").read_text(encoding="utf-8")


def test_nothing_is_written_unasked_and_a_failure_is_a_sentence(tmp_path: Path) -> None:
    settings = Settings(results=tmp_path, baselines=tmp_path)
    runs = [judged()]
    assert list(publish(runs, settings, None, {})) == []
    (tmp_path / "file").write_text("")
    (said,) = publish(runs, settings, tmp_path / "file" / "r.html", {})
    assert said.startswith("no report written: ")


def test_a_curve_in_one_line() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], "utf-8") == BLOCKS
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], "ascii") == ASCII
    assert sparkline([8, 1], "cp1252") == "#_"
    assert set(sparkline([99.5, 100.5, 99.8], "utf-8", span=0.2)) <= set(BLOCKS[3:5])
    assert sparkline([100.0, 60.0], "utf-8", span=0.2) == BLOCKS[7] + BLOCKS[0]
    assert sparkline([3.0, 3.0], "utf-8") == BLOCKS[4] * 2
    assert sparkline([], "utf-8") == ""
    assert len(sparkline(list(range(1000)), "utf-8", width=20)) == 20


def test_the_prefill_curve_falls_in_the_terminal() -> None:
    line = prefill_line(whole_run(1), "utf-8")
    assert line is not None
    marks = [BLOCKS.index(c) for c in line if c in BLOCKS]
    assert marks[0] == 7
    assert marks[-1] == 0
    assert sorted(marks, reverse=True) == pytest.approx(marks, abs=1)
    assert len(prefill_line(whole_run(1), "utf-8", columns=70) or "") <= 70
    assert prefill_line(whole_run(1), "utf-8", columns=50) is None


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_the_summary_shows_the_curve_on_any_console(encoding: str) -> None:
    run = judged(cliff=0.6)
    seen = terminal_summary(run, width=100, color=False, encoding=encoding)
    (line,) = [x for x in seen.splitlines() if x.startswith("prefill by batch")]
    assert "?" not in line


def test_a_cell_as_properties() -> None:
    run = judged(generation=0.7)
    cell = run.verdict.cell(131072, "generation")
    assert cell is not None
    found = dict(properties(cell))
    assert found["longctx.outcome"] == "REGRESSED"
    assert found["longctx.unit"] == "tok/s"
    assert float(found["longctx.change"]) == pytest.approx(-0.3, abs=0.02)
    run_ = whole_run(1)
    unjudged = Judged(run_, judge(run_, None, BANDS), None).verdict.cell(2048, "prefill")
    assert unjudged is not None
    assert "longctx.baseline" not in dict(properties(unjudged))
