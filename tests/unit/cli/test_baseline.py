"""The `harness` command on made-up records: what it accepts, refuses, shows, and exits with."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.records.baseline import key_of
from harness.records.baseline_files import find_baseline, list_baselines
from harness.records.files import Recorder
from harness.records.lines import Footer, MemorySample, Rung
from tests.made import GIB, ask, header, rung


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository as the current folder."""
    (tmp_path / "harness.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def measured(repo: Path, run_id: str, rungs: Sequence[Rung] | None = None) -> None:
    """Put a complete run into the results folder."""
    rungs = [rung(2048)] if rungs is None else rungs
    recorder = Recorder(repo / "results", header(tuple(r.depth for r in rungs), run_id))
    for one in rungs:
        recorder.append(one)
    recorder.append(Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0))
    recorder.close()


def harness(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def test_two_runs_that_agree_are_accepted(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    done = harness("baseline", "update")
    assert done.exit_code == 0, done.output
    accepted = find_baseline(repo / "baselines", key_of(header((2048,))))
    assert accepted is not None
    assert [r.run_id for r in accepted.runs] == ["20260101-000001-a", "20260101-000002-b"]


def test_runs_that_disagree_are_refused_with_the_numbers(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b", [rung(2048, prefill_tok_s=600.0)])
    done = harness("baseline", "update")
    assert done.exit_code == 3
    assert "prefill at 2048 differs by 66.7%" in done.output
    assert not list(list_baselines(repo / "baselines"))
    forced = harness("baseline", "update", "--force")
    assert forced.exit_code == 3
    assert "--force needs --reason" in forced.output
    forced = harness("baseline", "update", "--force", "--reason", "new cooler")
    assert forced.exit_code == 0
    accepted = find_baseline(repo / "baselines", key_of(header((2048,))))
    assert accepted is not None
    assert {r.reason for r in accepted.runs} == {"new cooler"}


def test_runs_of_two_configurations_are_no_baseline(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    recorder = Recorder(
        repo / "results",
        header((2048,), "20260101-000002-b").model_copy(update={"label": "other"}),
    )
    recorder.append(rung(2048))
    recorder.append(Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0))
    recorder.close()
    done = harness("baseline", "update", "000001-a", "000002-b")
    assert done.exit_code == 3
    assert "differ in machine class, model or configuration" in done.output


def test_invalid_answers_are_never_accepted(repo: Path) -> None:
    wrong = rung(2048, asks=[ask(control=False)] * 3)
    measured(repo, "20260101-000001-a", [wrong])
    measured(repo, "20260101-000002-b", [wrong])
    done = harness("baseline", "update")
    assert done.exit_code == 3
    assert "retrieval at 2048 is INVALID" in done.output


def test_a_run_disturbed_throughout_is_not_accepted(repo: Path) -> None:
    calm = rung(2048)
    busy = calm.model_copy(
        update={
            "generations": tuple(
                g.model_copy(update={"contention": "contention: a compiler"})
                for g in calm.generations
            )
        }
    )
    measured(repo, "20260101-000001-a", [busy])
    measured(repo, "20260101-000002-b", [calm])
    done = harness("baseline", "update")
    assert done.exit_code == 3
    assert "generation at 2048 was measured only while others used the machine" in done.output
    harness("baseline", "update", "--force", "--reason", "x", "20260101-000001-a")
    assert "the accepted runs have no undisturbed sample of it" in harness("judge").output


def test_an_unfinished_run_is_not_accepted(repo: Path) -> None:
    for name in ("a", "b"):
        recorder = Recorder(repo / "results", header((2048,), f"20260101-00000{name}"))
        recorder.append(rung(2048))
        recorder.close()
    done = harness("baseline", "update", "00000a", "00000b")
    assert done.exit_code == 3
    assert "did not finish" in done.output


def test_ci_may_look_but_not_accept(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    monkeypatch.setenv("CI", "true")
    assert harness("baseline", "update").exit_code == 3
    assert harness("baseline", "update", "--dry-run").exit_code == 0
    assert not list(list_baselines(repo / "baselines"))


def test_runs_can_be_added_to_a_baseline(repo: Path) -> None:
    for name in ("1-a", "2-b"):
        measured(repo, f"20260101-00000{name}")
    harness("baseline", "update")
    measured(repo, "20260101-000003-c")
    done = harness("baseline", "update", "--add", "000003-c")
    assert done.exit_code == 0, done.output
    accepted = find_baseline(repo / "baselines", key_of(header((2048,))))
    assert accepted is not None
    assert len(accepted.runs) == 3


@pytest.mark.parametrize(
    ("now", "code", "says"),
    [
        (rung(2048), 0, "PASS"),
        (rung(2048, generation_tok_s=(50.0, 50.5, 49.5)), 1, "REGRESSED"),
        (rung(2048, generation_tok_s=(140.0, 60.0, 100.0)), 2, "INCONCLUSIVE"),
        (rung(2048, asks=[ask(control=False)] * 3), 3, "INVALID"),
    ],
)
def test_judge_exits_with_what_it_says(repo: Path, now: Rung, code: int, says: str) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    harness("baseline", "update")
    measured(repo, "20260101-000003-c", [now])
    done = harness("judge")
    assert done.exit_code == code, done.output
    assert done.output.splitlines()[-1].endswith(says)


def test_judge_without_a_baseline_says_what_to_do(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    done = harness("judge")
    assert done.exit_code == 2
    assert "harness baseline update" in done.output


def test_judge_with_another_band(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    harness("baseline", "update")
    measured(repo, "20260101-000003-c", [rung(2048, generation_tok_s=(75.0, 75.5, 74.5))])
    assert harness("judge").exit_code == 1
    assert harness("judge", "--band", "0.5").exit_code == 0


def test_list_show_diff_and_prune(repo: Path) -> None:
    assert "no baselines" in harness("baseline", "list").output
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    harness("baseline", "update")
    (path,) = list_baselines(repo / "baselines")
    assert "yes" in harness("baseline", "list").output
    shown = harness("baseline", "show", path.stem).output
    assert "20260101-000001-a" in shown
    assert "1,000 tok/s" in shown
    assert "+0.0%" in harness("baseline", "diff", str(path), str(path)).output
    assert "every baseline is used" in harness("baseline", "prune").output
    for record in (repo / "results").glob("*.jsonl"):
        record.unlink()
    other = header((2048,), "20260101-000004-d").model_copy(update={"label": "other"})
    Recorder(repo / "results", other).close()
    named = harness("baseline", "prune")
    assert "unused" in named.output
    assert path.exists()
    harness("baseline", "prune", "--yes")
    assert not path.exists()


def test_nothing_measured_yet(repo: Path) -> None:
    for command in (("judge",), ("baseline", "update"), ("baseline", "prune")):
        done = harness(*command)
        assert done.exit_code == 3
        assert "Traceback" not in done.output
        assert done.output.startswith("harness: ")


def test_an_id_that_fits_several_runs(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    assert "fits 2 runs" in harness("judge", "20260101").output


def test_a_run_whose_server_leaks_is_not_accepted(repo: Path) -> None:
    samples = tuple(
        MemorySample(
            rss_bytes=4 * GIB, rss_anon_bytes=GIB + i * 128 * 3_300_000, generated_tokens=i * 128
        )
        for i in range(10)
    )
    leaking = rung(2048).model_copy(update={"memory": samples})
    measured(repo, "20260101-000001-a", [leaking])
    measured(repo, "20260101-000002-b", [leaking])
    done = harness("baseline", "update")
    assert done.exit_code == 3
    assert "server memory at 2048 is LEAK" in done.output
    assert not list(list_baselines(repo / "baselines"))
