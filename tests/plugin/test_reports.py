"""What a measured session leaves for people and CI: the page, the job summary, JUnit's numbers."""

import os
import subprocess
import sys
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.report.publish import STEP_SUMMARY, publish
from harness.settings import Settings
from tests.faults.fake_server import FakeServer
from tests.made import judged

DEPTH = 2048


@dataclass(frozen=True)
class Session:
    """One `pytest -m long` of somebody else's repository, and what it printed."""

    folder: Path
    output: str

    @property
    def run_id(self) -> str:
        (path,) = (self.folder / "results").glob("*.jsonl")
        return path.stem


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("repo")
    (folder / "test_llm.py").write_text("from harness.suite import *\n", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "summary.md").write_text("# Another step's\n", encoding="utf-8")
    environ = {k: v for k, v in os.environ.items() if k not in ("CI", "PYTEST_ADDOPTS")}
    environ |= {
        STEP_SUMMARY: str(folder / "summary.md"),
        "HARNESS_LOCK_FILE": str(folder / "lock"),
        "PYTHONUTF8": "1",
        "COLUMNS": "250",  # the answer unfolded, whatever disturbed it
    }
    with FakeServer(n_ctx=DEPTH) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-m", "long", "-p", "no:cacheprovider"),
                *("--server-url", server.url, f"--ctx={DEPTH}", "--repeats=3"),
                *("--generate-tokens=16", "--remeasure=0", "--report=out/page.html"),
                *("--junitxml=junit.xml", "-rs"),
            ],
            cwd=folder,
            env=environ,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return Session(folder, done.stdout)


def test_report_writes_the_page_of_the_run(session: Session) -> None:
    text = (session.folder / "out" / "page.html").read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert session.run_id in text
    assert "first run" in text or "too disturbed" in text
    assert "report: " in session.output


def test_a_job_summary_is_added_to_what_stands_there(session: Session) -> None:
    text = (session.folder / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("# Another step's\n")
    assert session.run_id in text
    assert "| generation |" in text
    assert "job summary: " in session.output


def test_junit_has_the_numbers_of_every_cell(session: Session) -> None:
    cases = ElementTree.parse(session.folder / "junit.xml").getroot().iter("testcase")
    properties = {
        case.attrib["name"]: {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for case in cases
    }
    metrics = ("retrieval", "prefill", "generation", "ttft")
    for metric in metrics:
        found = properties[f"test_{metric}[{DEPTH}]"]
        assert found["longctx.metric"] == metric
        assert found["longctx.depth"] == str(DEPTH)
        assert found["longctx.outcome"] in (
            "NO_BASELINE",
            "INCONCLUSIVE",
        )  # the latter on a busy machine
        assert float(found["longctx.measured"]) > 0


def test_what_cannot_be_judged_is_not_called_skipped_and_has_the_place_of_its_test(
    session: Session,
) -> None:
    lines = session.output.splitlines()
    (counted,) = (line for line in lines if "===" in line and " deselected" in line)
    assert " new" in counted or " can't tell" in counted
    assert "skipped" not in counted
    skipped = ElementTree.parse(session.folder / "junit.xml").iter("skipped")
    places = [element.text or "" for element in skipped]
    assert places
    assert all("suite.py:" in place and "plugin.py" not in place for place in places)


def test_the_answer_is_one_sentence_wherever_it_stands(session: Session) -> None:
    lines = session.output.splitlines()
    heading = next(n for n, line in enumerate(lines) if "long-context summary" in line)
    said = lines[-1]  # the last line of the session
    assert f"{DEPTH // 1024}K: prefill " in said or said.startswith("measured, too disturbed")
    assert lines[heading + 1] == said  # the first line of the summary
    assert "" not in lines[heading:]
    page = unescape((session.folder / "out" / "page.html").read_text(encoding="utf-8"))
    assert f'<p class="answer"><strong>{said}</strong></p>' in page
    headings = [
        line
        for line in (session.folder / "summary.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]
    assert headings == [f"## ⚪ {said}"] or headings == [f"## 🟡 {said}"]
    suites = ElementTree.parse(session.folder / "junit.xml").getroot()
    values = [p.attrib for p in suites.iter("property")]
    assert {"name": "longctx.answer", "value": said} in values
    judge = subprocess.run(
        [sys.executable, "-m", "harness", "judge"],
        cwd=session.folder,
        env={**os.environ, "PYTHONUTF8": "1", "COLUMNS": "200"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert [judge.stdout.splitlines()[at] for at in (0, -1)] == [said] * 2, judge.stderr


def test_a_report_that_cannot_be_written_is_a_sentence_not_a_failure(tmp_path: Path) -> None:
    settings = Settings.model_validate({"results": tmp_path, "baselines": tmp_path / "baselines"})
    (line,) = publish([judged()], settings, tmp_path, environ={})
    assert line.startswith("no report written: ")
    assert str(tmp_path) in line
