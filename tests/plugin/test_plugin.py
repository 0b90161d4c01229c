"""The plugin as pytest's users meet it: options, ids, order, outcomes, refusals."""

from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import StoreError
from harness.measuring.items import patience_s
from harness.measuring.ladder import Ladder
from harness.plugin import JUDGED, SETTINGS, conclude
from harness.records.metrics import METRICS
from harness.records.outcomes import Outcome
from harness.verdicts.cell import CellVerdict

SUITE = "from harness.suite import *"


@pytest.fixture
def repo(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Somebody else's repository with the suite in it."""
    for name in ("CI", "LLAMA_SERVER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_LOCK_FILE", str(pytester.path / "lock"))
    monkeypatch.setenv("PYTHONUTF8", "1")  # its output is read as UTF-8
    pytester.makepyfile(test_llm=SUITE)
    pytester.makeini("[pytest]\n")
    return pytester


def collected(repo: pytest.Pytester, *args: str) -> list[str]:
    result = repo.runpytest_subprocess("--collect-only", "-q", "-m", "long", *args)
    return [line.split("::")[1] for line in result.outlines if "::" in line]


def test_every_option_is_in_one_group_of_the_help(repo: pytest.Pytester) -> None:
    text = repo.runpytest_subprocess("--help").stdout.str()
    start = text.index("long-context regression harness")
    for option in ("--ctx", "--server-url", "--server-bin", "--band", "--strict-verdicts"):
        assert text.index(option) > start


def test_ids_read_and_answers_come_before_speed_and_shallow_before_deep(
    repo: pytest.Pytester,
) -> None:
    names = collected(repo, "--ctx=32K")
    depths = [int(n.split("[")[1].rstrip("]")) for n in names if n.startswith("test_retrieval")]
    assert depths == [2048, 8192, 32768]
    assert "test_generation[32768]" in names
    speed = [n for n in names if n.startswith(("test_prefill", "test_generation", "test_ttft"))]
    assert max(names.index(n) for n in names if n.startswith("test_retrieval")) < min(
        names.index(n) for n in speed
    )
    order = [int(n.split("[")[1].rstrip("]")) for n in speed]
    assert order == sorted(order)


def test_what_was_not_asked_for_is_left_out_unless_it_is_all(repo: pytest.Pytester) -> None:
    names = collected(repo, "--ctx=2048")
    assert not [n for n in names if n.startswith(("test_heatmap", "test_fuzz", "test_harder"))]
    assert "test_heatmap" in collected(repo, "--ctx=2048", "--heatmap=2x2")
    assert collected(repo, "--ctx=2048", "-k", "heatmap") == ["test_heatmap"]


def test_members_of_the_family_are_arms_and_are_asked_for_no_needles(
    repo: pytest.Pytester,
) -> None:
    names = collected(repo, "--reference=all", "--ctx=8192")
    assert names == [
        "test_retrieval[attention-2048]",
        "test_retrieval[attention-8192]",
        "test_family[gdn]",
        "test_family[window]",
    ]
    assert collected(repo, "--reference=window") == ["test_family[window]"]
    assert collected(repo, "--reference=attention", "--ctx=2048") == [
        "test_retrieval[attention-2048]"
    ]
    assert not any("family" in name for name in collected(repo, "--ctx=2048"))


def test_depths_choose_the_rungs(repo: pytest.Pytester) -> None:
    names = collected(repo, "--depths=4K,2K", "-k", "retrieval")
    assert names == ["test_retrieval[2048]", "test_retrieval[4096]"]


def test_a_path_in_an_option_does_not_lose_the_configuration(repo: pytest.Pytester) -> None:
    (repo.path / "harness.toml").write_text("ctx = 2048\n", encoding="utf-8")
    elsewhere = repo.mkdir("models")
    names = collected(repo, "--results", str(elsewhere), "-k", "retrieval")
    assert names == ["test_retrieval[2048]"]


def test_a_wrong_setting_is_one_line(repo: pytest.Pytester) -> None:
    result = repo.runpytest_subprocess("-m", "long", "--ctx=none")
    assert result.ret == 4
    assert [line for line in result.errlines if line.strip()] == [
        "ERROR: --ctx none: expected a number of tokens such as 131072 or 128K"
    ]


def test_collecting_starts_no_server(repo: pytest.Pytester) -> None:
    assert collected(repo, "--ctx=4096", "--server-bin=/no/such/binary")


@pytest.mark.parametrize("selected", ["long", "smoke", "long or smoke"])
def test_workers_of_xdist_are_refused(repo: pytest.Pytester, selected: str) -> None:
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    result = repo.runpytest_subprocess("-m", selected, "--ctx=2048", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    assert "would measure one server from several processes" in line


def test_workers_of_xdist_run_what_is_not_measured(repo: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    repo.makepyfile(test_other="def test_one(): pass")
    result = repo.runpytest_subprocess("-m", "not long and not smoke", "-n", "1")
    assert result.ret == 0
    result.assert_outcomes(passed=1)


def test_deeper_rungs_may_take_longer() -> None:
    assert patience_s(2048) >= 600
    assert patience_s(131072) > 3600
    assert patience_s(2048) < patience_s(32768) < patience_s(131072)


@dataclass
class StubCampaign:
    """A campaign whose cell is given."""

    outcome: Outcome
    climbed: list[int] = field(default_factory=list)

    def cell(self, depth: int, metric: str) -> CellVerdict:
        self.climbed.append(depth)
        return CellVerdict(depth, METRICS[metric], self.outcome, "noise", "what was seen")


@pytest.mark.parametrize(
    ("outcome", "strict", "raised"),
    [
        ("PASS", False, None),
        ("IMPROVED", True, None),
        ("REGRESSED", False, "Failed"),
        ("INVALID", False, "Failed"),
        ("ERROR", False, "Failed"),
        ("INCONCLUSIVE", False, "Skipped"),
        ("NO_BASELINE", False, "Skipped"),
        ("INCONCLUSIVE", True, "Failed"),
        ("NO_BASELINE", True, "Failed"),
    ],
)
def test_outcomes_of_cells_become_outcomes_of_tests(
    outcome: Outcome, strict: bool, raised: str | None
) -> None:
    stub = StubCampaign(outcome)
    config = cast(Any, SimpleNamespace(stash=pytest.Stash()))
    config.stash[SETTINGS] = cast(Any, SimpleNamespace(strict=strict))
    ladder = Ladder(cast(Any, stub), partial(conclude, config))
    if raised is None:
        assert ladder.check("prefill", 2048).outcome == outcome
    else:
        kind = pytest.fail.Exception if raised == "Failed" else pytest.skip.Exception
        with pytest.raises(kind) as caught:
            ladder.check("prefill", 2048)
        assert outcome in str(caught.value)
        assert "what was seen" in str(caught.value)
        assert "next:" in str(caught.value)
    assert stub.climbed == [2048]
    assert [c.outcome for c in config.stash[JUDGED]] == [outcome]


def test_a_disk_that_fills_while_a_cell_is_measured_is_a_sentence() -> None:
    def full(*_: object) -> None:
        raise StoreError("cannot write into the results folder")

    campaign = SimpleNamespace(cell=full, close_climb=full)
    config = cast(Any, SimpleNamespace(stash=pytest.Stash()))
    ladder = Ladder(cast(Any, campaign), partial(conclude, config))
    for ask in (lambda: ladder.check("prefill", 2048), ladder.close):
        with pytest.raises(pytest.fail.Exception, match="cannot write") as caught:
            ask()
        assert caught.value.pytrace is False


def test_the_plugin_alone_imports_nothing_that_measures(repo: pytest.Pytester) -> None:
    """It is loaded into every pytest run of an environment; a second of imports is too much."""
    repo.makepyfile(
        test_llm="",
        test_lean="import sys\ndef test_lean():\n"
        "    late = {'openai', 'scipy.stats', 'harness.measuring.campaign'}\n"
        "    assert not late & set(sys.modules)\n",
    )
    assert repo.runpytest_subprocess("-q").ret == 0


def test_a_folder_without_tests_is_offered_the_suite(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="def test_one(): pass")
    for asked in (("-m", "long"), ("--ctx", "2048")):
        result = pytester.runpytest_subprocess("--collect-only", "-q", "--ctx=2048", *asked)
        assert "harness.suite::test_retrieval[2048]" in result.outlines
    assert "test_other.py::test_one" in result.outlines  # --ctx alone leaves the others in


@pytest.mark.parametrize("asked", [(), ("-m", "not long"), ("--results=r",), ("test_other.py",)])
def test_it_is_not_where_nobody_asks(pytester: pytest.Pytester, asked: tuple[str, ...]) -> None:
    pytester.makepyfile(test_other="def test_one(): pass")
    assert "suite" not in pytester.runpytest_subprocess("--co", "-q", *asked).stdout.str()


def test_one_s_own_measured_tests_run_when_asked_for_or_named(repo: pytest.Pytester) -> None:
    repo.makepyfile(test_other="def test_one(): pass")
    assert "test_llm" not in repo.runpytest_subprocess("--co", "-q").stdout.str()
    for asked in (("-m", "long", "--ctx=2048"), ("test_llm.py", "--depths=2048")):
        text = repo.runpytest_subprocess("--co", "-q", *asked).stdout.str()
        assert "test_llm.py::test_retrieval[2048]" in text
        assert "harness.suite::" not in text


def test_workers_of_xdist_skip_what_is_measured(repo: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    repo.makepyfile(test_other="def test_one(): pass")
    result = repo.runpytest_subprocess("--ctx=2048", "-n", "1")
    counts = result.parseoutcomes()
    assert (counts["passed"], counts.get("failed"), counts.get("errors")) == (1, None, None)
    assert counts["skipped"] > 5


def test_a_junit_file_that_cannot_be_written_hides_no_refusal(repo: pytest.Pytester) -> None:
    (repo.path / "file").write_text("no folder", encoding="utf-8")
    asked = ("-m", "long", "--server-url", "http://127.0.0.1:9", "--junitxml=file/below.xml")
    result = repo.runpytest_subprocess(*asked)
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    assert "http://127.0.0.1:9" in text
    assert "not written: " in text
    assert result.ret == pytest.ExitCode.USAGE_ERROR
