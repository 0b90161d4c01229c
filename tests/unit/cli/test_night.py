"""A night's books: what is left to do, what is gone on with, and what came of it."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import night_run
from harness.cli.main import main
from harness.cli.night_run import BOOKS, FOLDER, last_words, measured_since, written_at
from harness.errors import SetupError
from harness.records.files import Recorder
from harness.records.night import (
    Attempt,
    Night,
    Result,
    exit_code,
    file_name,
    headline,
    to_be_resumed,
)
from harness.records.outcomes import Outcome
from harness.report.night import night_issue, night_summary
from tests.made import header


def night(*attempts: tuple[str, int | None], name: str = "n1", run: str | None = "r") -> Night:
    books = Night(name=name, started_at=name, profiles=("one", "two"))
    for profile, code in attempts:
        books = books.begun(Attempt(profile=profile, started_at="now")).ended("now", code, run)
    return books


def result(
    outcome: Outcome | None, code: int | None = 0, *, finished: bool = True, said: str = ""
) -> Result:
    return Result("one", finished, code, outcome, said=said)


@pytest.mark.parametrize("code", [0, 1, 3, 4, 5])
def test_a_session_that_ended_by_itself_is_done(code: int) -> None:
    assert night(("one", code)).done("one")
    assert not to_be_resumed([night(("one", code))], "one")


@pytest.mark.parametrize("code", [None, 2, -9, -15, 137])
def test_a_session_that_was_cut_short_is_gone_on_with(code: int | None) -> None:
    assert not night(("one", code)).done("one")
    assert to_be_resumed([night(("one", code))], "one")


def test_tests_that_cannot_be_imported_have_measured_nothing_and_are_not_gone_on_with() -> None:
    books = night(("one", 2), run=None)
    assert books.done("one")
    assert not to_be_resumed([books], "one")
    assert exit_code([result(None, 2)]) == 3


def test_what_measured_nothing_is_tried_again_by_the_next_sitting_and_not_called_measured() -> None:
    books = night(("one", 4), run=None)
    assert books.to_do("one", tries=0)
    assert not books.to_do("one", tries=1)
    assert not night(("one", 1)).to_do("one", tries=0)
    assert night(("one", -9)).to_do("one", tries=2)
    assert night().to_do("one", tries=0)


def test_the_error_is_a_log_s_last_word_not_pytest_s_closing_line(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text(
        "E   AttributeError: x\n= short test summary =\nERROR tests/a.py - AttributeError: x\n"
        "!!! Interrupted: 1 error during collection !!!\n5 skipped, 1 error in 10.83s\n",
        encoding="utf-8",
    )
    assert last_words(log) == "ERROR tests/a.py - AttributeError: x"


def test_a_night_finds_its_record_though_the_clock_was_set_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header().model_copy(update={"profile": "a"}))
    recorder.close()
    before = written_at(tmp_path)
    assert measured_since(tmp_path, "a", before) is None
    os.utime(recorder.path, (0, 0))
    assert measured_since(tmp_path, "a", before) is not None
    assert measured_since(tmp_path, "b", before) is None


def test_only_the_last_attempt_of_all_nights_counts() -> None:
    cut, ended = night(("one", None)), night(("one", 1), name="n2")
    assert not to_be_resumed([cut, ended], "one")
    assert to_be_resumed([ended, cut], "one")
    assert to_be_resumed([cut, night(("two", 0), name="n2")], "one")
    assert not to_be_resumed([], "one")


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([result("PASS"), result("IMPROVED")], 0),
        ([result("PASS"), result("REGRESSED", 1)], 1),
        ([result("INCONCLUSIVE", 0)], 0),
        ([result("NO_BASELINE", 1)], 1),
        ([result(None, 4), result("PASS")], 3),
        ([result(None, 4), result("LEAK", 1)], 1),
        ([result("ERROR", None, finished=False), result("PASS")], 2),
        ([result("REGRESSED", None, finished=False)], 1),
        ([result(None, None, finished=False)], 2),
    ],
)
def test_the_exit_code_says_the_worst(results: list[Result], code: int) -> None:
    assert exit_code(results) == code


def test_the_headline_names_failures_first_then_what_is_open() -> None:
    results = [
        Result("a", True, 0, "PASS"),
        Result("b", False, None, "ERROR"),
        Result("c", True, 1, "REGRESSED"),
        Result("d", True, 0, "INCONCLUSIVE"),
    ]
    said = "Night n: REGRESSED in c; b not finished; INCONCLUSIVE in d"
    assert headline("n", results) == said


def test_what_measured_nothing_is_an_issue_with_its_last_words() -> None:
    refused = result(None, 4, said="ERROR: the model has gone <b>")
    issue = night_issue("n", [refused, result("PASS")], {})
    assert issue is not None
    assert issue.startswith("Night n: nothing measured in one\n")
    assert "the model has gone &lt;b&gt;" in issue
    assert night_issue("n", [result("PASS"), result("ERROR", None, finished=False)], {}) is None


def test_a_summary_shows_names_from_outside_as_text() -> None:
    odd = Result("<img src=x>|`", True, 4, None, said="@everyone")
    text = night_summary("n", [odd], {})
    assert "<img" not in text
    assert "@everyone" not in text


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("vulkan", "vulkan"),
        ("夜 間", "夜_間"),
        ("../../x", "_.._x"),
        ("..", "unnamed"),
        ("", "unnamed"),
    ],
)
def test_names_become_names_of_files(name: str, file: str) -> None:
    assert file_name(name) == file


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["three"], "there is no profile 'three'; harness.toml has one, two"),
        (["--hours", "-1"], "--hours -1: expected a number above 0"),
        (["--name", "bad"], "are no books of a night"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    (tmp_path / "harness.toml").write_text("[profiles.one]\n[profiles.two]\n", encoding="utf-8")
    books = tmp_path / "results" / FOLDER / "bad" / BOOKS
    books.parent.mkdir(parents=True)
    books.write_text("{", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["night", *args])
    assert done.exit_code == 3
    assert said in done.output


def test_without_profiles_there_is_no_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "harness.toml").touch()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["night"])
    assert done.exit_code == 3
    assert "there are no profiles in harness.toml" in done.output


# -- nights that follow upstream --------------------------------------------------------------


class Children:
    """In place of a night's children: what was started, and what each said and ended with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.commands: list[list[str]] = []
        self.compared: int | None = 1
        self.pytest: int | None = 0
        monkeypatch.setattr(night_run.Sitting, "ended", lambda _, *what: self.ended(*what))
        cache = root / "cache"
        (root / "harness.toml").write_text(
            f"[builds]\ncache = '{cache}'\n"
            '[profiles.one]\nserver_bin = "b11549"\nfollow = "latest"\n'
            '[profiles.two]\nserver_bin = "b11549"\n',
            encoding="utf-8",
        )
        monkeypatch.chdir(root)
        self.newest: tuple[str, ...] = ("b11549", "b11552", "b11560")
        monkeypatch.setattr("harness.serving.builds.series", self.series)

    def series(self, good: str, bad: str, *_: object, **__: object) -> tuple[str, ...]:
        assert bad == "latest"
        return self.newest[self.newest.index(good) :]

    def ended(self, command: list[str], log: Path) -> int | None:
        self.commands.append(command[3:])
        if "compare" in command:
            log.write_text("…\nb11560 is worse than b11549: generation\n", encoding="utf-8")
            return self.compared
        return self.pytest

    def night(self, root: Path, name: str = "n1", profiles: tuple[str, ...] = ("one",)) -> str:
        said: list[str] = []
        plan = night_run.Plan(name, root, root / "results", profiles)
        night_run.run_night(plan, said.append, {})
        return "\n".join(said)

    @property
    def builds(self) -> list[str]:
        """What was compared or measured, in order."""
        found = []
        for command in self.commands:
            binary = [word for word in command if word.startswith("--server-bin=")]
            found.append(" ".join(command[:3] if command[0] == "compare" else binary or ["own"]))
        return found


def test_a_newer_build_is_compared_then_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children(monkeypatch, tmp_path)
    said = children.night(tmp_path, profiles=("one", "two"))
    assert children.builds == ["compare b11549 b11560", "--server-bin=b11560", "own"]
    sentence = (
        "b11560 is worse than b11549: generation; `harness bisect b11549 b11560 --profile one`"
    )
    assert sentence in said
    summary = (tmp_path / "results/nights/n1/summary.md").read_text(encoding="utf-8")
    assert "b11560 is worse than b11549: generation" in summary
    children.commands.clear()
    children.night(tmp_path, "n2")
    assert len(children.builds) == 2


def test_a_night_that_goes_on_keeps_its_build_and_compares_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children(monkeypatch, tmp_path)
    children.pytest = None  # cut short, three times
    children.night(tmp_path)
    children.newest = (*children.newest, "b11570")
    children.pytest = 0
    children.night(tmp_path, "n2")
    assert children.builds == ["compare b11549 b11560", *["--server-bin=b11560"] * 4]


@pytest.mark.parametrize("trouble", ["nothing newer", "out of reach", "comparison stopped"])
def test_without_a_comparison_the_accepted_build_is_measured(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children(monkeypatch, tmp_path)
    if trouble == "nothing newer":
        children.newest = ("b11549",)
    elif trouble == "out of reach":

        def unreachable(*_: object, **__: object) -> None:
            raise SetupError("no network")

        monkeypatch.setattr("harness.serving.builds.series", unreachable)
    else:
        children.compared = None
    said = children.night(tmp_path)
    assert children.builds[-1] == "own"
    assert ("no network" in said) == (trouble == "out of reach")


def test_since_names_what_no_night_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children(monkeypatch, tmp_path)
    children.night(tmp_path)
    children.commands.clear()
    done = CliRunner().invoke(main, ["night", "--since", "b11549"])
    assert "one: 1 of 2 builds since b11549 not compared: b11552\n" in done.output
    assert "two: nothing newer than b11549, or it does not follow" in done.output
    assert children.commands == []


def test_a_profile_of_spot_runs_is_read_in_full_every_nth_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "harness.toml").write_text(
        "[profiles.deep]\nspot = true\nspot_full_every = 3\n[profiles.plain]\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    ended = Attempt(profile="deep", started_at="then", ended_at="now", exit_code=0, run_id="a")
    cut = ended.model_copy(update={"exit_code": None})
    nights = [Night(name=str(n), started_at="then", profiles=("deep",)) for n in range(9)]
    done = [n.begun(cut if n.name == "4" else ended) for n in nights]
    due = [night_run.full_is_due(done[:n], "deep") for n in range(9)]
    assert due == [True, False, False, True, False, False, False, True, False]
    assert not any(night_run.full_is_due(done[:n], "plain") for n in range(9))
