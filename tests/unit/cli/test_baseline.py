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


def measured(
    repo: Path, run_id: str, rungs: Sequence[Rung] | None = None, label: str | None = None
) -> None:
    """Put a complete run into the results folder."""
    rungs = [rung(2048)] if rungs is None else rungs
    begun = header(tuple(r.depth for r in rungs), run_id).model_copy(update={"label": label})
    at = f"2026-01-01T00:00:{sum(map(ord, run_id)) % 60:02d}+00:00"  # no two are copies
    recorder = Recorder(repo / "results", begun.model_copy(update={"started_at": at}))
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


def test_a_cell_in_which_runs_disagree_stays_out_with_the_numbers(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b", [rung(2048, prefill_tok_s=600.0)])
    done = harness("baseline", "update")
    assert done.exit_code == 0
    assert "stays out: prefill at 2048 differs by 67 %" in done.output
    steady = find_baseline(repo / "baselines", key_of(header((2048,))))
    assert steady is not None
    assert [bool(run.cells[2048].prefill_tok_s) for run in steady.runs] == [False, False]
    assert [bool(run.cells[2048].generation_tok_s) for run in steady.runs] == [True, True]
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


def test_a_cell_disturbed_throughout_stays_out(repo: Path) -> None:
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
    assert done.exit_code == 0
    assert "generation at 2048 of run 20260101-000001-a: measured only while" in done.output
    assert "generation at 2048 was measured by one run only" in done.output
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
        (rung(2048), 0, "same as the baseline"),
        (rung(2048, generation_tok_s=(50.0, 50.5, 49.5)), 1, "worse"),
        (rung(2048, generation_tok_s=(140.0, 60.0, 100.0)), 2, "can't tell"),
        (rung(2048, asks=[ask(control=False)] * 3), 3, "broken"),
    ],
)
def test_judge_exits_with_what_it_says(repo: Path, now: Rung, code: int, says: str) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    harness("baseline", "update")
    measured(repo, "20260101-000003-c", [now])
    done = harness("judge")
    assert done.exit_code == code, done.output
    assert done.output.splitlines()[-1].startswith(says)


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
    assert "0.0 %" in harness("baseline", "diff", str(path), str(path)).output
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


def test_the_memory_of_a_server_that_leaks_stays_out(repo: Path) -> None:
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
    assert done.exit_code == 0
    assert "stays out: server memory at 2048 of run 20260101-000001-a: the server's" in done.output


# -- what an update must not do unseen --------------------------------------------------------


def slower(by: float) -> list[Rung]:
    return [
        rung(
            2048,
            prefill_tok_s=1000.0 * by,
            generation_tok_s=[rate * by for rate in (100.0, 101.0, 99.0)],
            ttft_ms=[ms / by for ms in (50.0, 51.0, 49.0)],
        )
    ]


def test_a_run_counts_once(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    done = harness("baseline", "update", "000001-a", "000001-a", "--force", "--reason", "x")
    assert done.exit_code == 3
    assert "is given twice or accepted already; a run counts once" in done.output
    text = (repo / "results" / "20260101-000001-a.jsonl").read_text(encoding="utf-8")
    copy = repo / "results" / "20260101-000002-b.jsonl"
    copy.write_text(text.replace("20260101-000001-a", "20260101-000002-b"), encoding="utf-8")
    done = harness("baseline", "update")
    assert done.exit_code == 3
    assert "are copies of one run" in done.output
    assert not list(list_baselines(repo / "baselines"))


def test_a_regressed_run_is_not_added_without_a_word(repo: Path) -> None:
    """Cases 78 and B2: it would blind all later verdicts."""
    for name in ("1-a", "2-b"):
        measured(repo, f"20260101-00000{name}")
    harness("baseline", "update")
    measured(repo, "20260101-000003-c", slower(0.7))
    done = harness("baseline", "update", "--add", "000003-c")
    assert done.exit_code == 3
    assert "stays out: generation at 2048 differs by" in done.output
    assert "generation at 2K −30 % against the baseline" in done.output
    done = harness("baseline", "update", "--add", "000003-c", "--reason", "try it")
    assert done.exit_code == 0
    assert "stays out: generation at 2048 differs by" in done.output
    measured(repo, "20260101-000004-d", slower(0.7))
    assert harness("judge").exit_code == 1


def test_worse_cells_must_be_meant(repo: Path) -> None:
    for name in ("1-a", "2-b", "3-c"):
        measured(repo, f"20260101-00000{name}")
    harness("baseline", "update", "1-a", "2-b", "3-c")
    for name in ("4-d", "5-e"):
        measured(repo, f"20260101-00000{name}", slower(0.6))
    done = harness("baseline", "update")
    assert done.exit_code == 3
    assert "3 cells would get worse" not in done.output  # also against the anchor, named once
    assert "generation at 2K −40 % against the baseline" in done.output
    assert harness("judge").exit_code == 1
    done = harness("baseline", "update", "--reason", "the fan is broken")
    assert done.exit_code == 0, done.output
    first, *_, last = done.output.splitlines()
    assert first == last  # the answer, first and last
    assert "3 of 5 cells get worse" in last
    assert "3 runs replaced by 2" in last
    assert harness("judge").exit_code == 0


def test_force_accepts_no_impossibility(repo: Path) -> None:
    fast = rung(2048)
    fast = fast.model_copy(
        update={
            "generations": tuple(
                g.model_copy(update={"server_ms": 0.064}) for g in fast.generations
            )
        }
    )
    for name in ("1-a", "2-b"):
        measured(repo, f"20260101-00000{name}", [fast])
    done = harness("baseline", "update", "--force", "--reason", "it is so fast")
    assert done.exit_code == 0
    assert "stays out: generation at 2048" in done.output
    accepted = find_baseline(repo / "baselines", key_of(header((2048,))))
    assert accepted is not None
    assert not accepted.runs[0].cells[2048].generation_tok_s


def test_a_creep_is_named_against_the_anchor(repo: Path) -> None:
    """Cases 79 and B5: 2.5 % a night, every night accepted."""
    for night in range(1, 8):
        measured(repo, f"20260101-0000{night:02d}-a", slower(0.975 ** (night - 1)))
        judged = harness("judge")
        if judged.exit_code == 1:
            break
        if night > 1:
            assert harness("baseline", "update").exit_code == 0
    assert 0.975 ** (night - 1) == pytest.approx(0.88, abs=0.02)
    said = " ".join(judged.output.split())
    assert "since 2026-01-01 (build b1), accepted little by little" in said
    measured(repo, "20260101-000008-a", slower(0.86))
    refused = harness("baseline", "update")
    assert refused.exit_code == 3
    assert "against the first accepted run of 2026-01-01 (build b1)" in refused.output
    assert harness("baseline", "update", "--reason", "meant").exit_code == 0
    assert harness("judge").exit_code == 0


def test_a_broken_baseline_makes_the_list_fail(repo: Path) -> None:
    for name in ("1-a", "2-b"):
        measured(repo, f"20260101-00000{name}")
    harness("baseline", "update")
    (path,) = list_baselines(repo / "baselines")
    path.write_text("{", encoding="utf-8")
    done = harness("baseline", "list")
    assert done.exit_code == 3
    assert "1 of 1 baselines cannot be used" in done.output


def test_a_planned_rung_that_is_missing_is_said(repo: Path) -> None:
    for name in ("1-a", "2-b"):
        measured(repo, f"20260101-00000{name}")
    harness("baseline", "update")
    recorder = Recorder(repo / "results", header((2048, 8192), "20260101-000009-z"))
    recorder.append(rung(2048))
    recorder.append(Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0))
    recorder.close()
    assert "8K was planned, and is not in the record" in harness("judge", "000009-z").output


def test_a_run_of_another_key_is_shown_beside_the_nearest_baseline(repo: Path) -> None:
    measured(repo, "20260101-000001-a")
    measured(repo, "20260101-000002-b")
    harness("baseline", "update")
    measured(repo, "20260101-000003-c", [rung(2048, generation_tok_s=(50.0, 50.5, 49.5))], "new")
    done = harness("judge")
    assert done.exit_code == 2, done.output
    assert " ".join(done.output.split()).startswith(
        "nothing to compare with yet: label is new, in the nearest baseline not given "
        "against it, for information: worse: generation −50 % at 2K; 2K: 50.0 tok/s, was 100 "
    )


def test_what_one_disturbance_keeps_out_is_one_line_a_run(repo: Path) -> None:
    said = "contention: pip used 35 % of the CPU"
    for run_id in ("20260101-000001-a", "20260101-000002-b"):
        rungs = [
            r.model_copy(
                update={
                    "generations": tuple(
                        g.model_copy(update={"contention": said}) for g in r.generations
                    )
                }
            )
            for r in (rung(2048), rung(8192, start=1843))
        ]
        measured(repo, run_id, rungs)
    lines = [
        line
        for line in harness("baseline", "update").output.splitlines()
        if line.startswith("stays out: ") and "of run 20260101-000001-a" in line
    ]
    assert len(lines) == 1
    assert lines[0].startswith("stays out: generation at 2048, 8192 of run 20260101-000001-a: ")
