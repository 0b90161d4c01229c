"""`harness report`, `export`, `import` and `history` as commands: what they write and refuse."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.records.baseline import key_of
from harness.records.baseline_files import find_baseline
from harness.records.files import Recorder, list_runs, read_run
from harness.records.lines import Footer, Header, Rung
from harness.records.metrics import GENERATION, METRICS, PREFILL
from harness.records.samples import samples_of, values_of
from harness.verdicts.verdict import judge
from tests.made import header, rung

BANDS = {name: metric.band for name, metric in METRICS.items()}
FIRST, SECOND = "20260101-000001-aaaaaa", "20260102-000001-bbbbbb"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two runs, as the current folder."""
    (tmp_path / "harness.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    measured(tmp_path, FIRST)
    measured(tmp_path, SECOND)
    return tmp_path


def measured(repo: Path, run_id: str, *rungs: Rung, **changes: object) -> Header:
    """Put a complete run into the results folder; `changes` are of its header."""
    rungs = rungs or (rung(2048), rung(8192, start=1843))
    started = f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T00:00:00+00:00"
    head = header(tuple(r.depth for r in rungs), run_id)
    head = head.model_copy(update={"started_at": started, **changes})
    recorder = Recorder(repo / "results", head)
    for one in rungs:
        recorder.append(one)
    recorder.append(Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0))
    recorder.close()
    return head


def harness(*args: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, args)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def refused(*args: str) -> str:
    """The one sentence with which the command refuses."""
    done = harness(*args, code=3)
    (line,) = done.stderr.splitlines()
    assert line.startswith("harness: ")
    return line


# -- report ---------------------------------------------------------------------------------


def test_report_writes_the_newest_run_as_a_page_named_after_it(repo: Path) -> None:
    assert f"{SECOND}.html" in harness("report").output
    text = (repo / "results" / f"{SECOND}.html").read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert SECOND in text


def test_report_sets_runs_of_several_machines_side_by_side(repo: Path) -> None:
    other = header().machine.model_copy(update={"machine_class": "other-box"})
    measured(repo, "20260103-000001-cccccc", machine=other)
    harness("report", "aaaaaa", "cccccc", "-o", "out/both.html")
    text = (repo / "out" / "both.html").read_text(encoding="utf-8")
    assert FIRST in text
    assert "other-box" in text


def test_report_as_markdown_for_a_job_and_for_an_issue(repo: Path) -> None:
    job, issue = harness("report", "--markdown").output, harness("report", "--issue").output
    assert SECOND in job
    assert "| prefill |" in job
    assert "Build" in issue or "build" in issue
    assert "b1" in issue


def test_report_of_a_run_without_its_history(repo: Path) -> None:
    harness("report", "--no-history", "-o", "page.html")
    assert not list((repo / "results").glob(".history*"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("report", "nosuch"), "no run 'nosuch'"),
        (("report", "2026"), "fits 2 runs"),
        (("report", "harness.toml"), "not a run record"),
        (("report", "--results", "empty"), "no runs in"),
        (("report", "-o", "harness.toml/page.html"), "cannot write"),
    ],
)
def test_report_refuses_in_one_sentence(repo: Path, args: tuple[str, ...], says: str) -> None:
    assert says in refused(*args)


# -- export ---------------------------------------------------------------------------------


def as_json(text: str) -> list[object]:
    return list(json.loads(text))


def as_lines(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def benchmarks(text: str) -> list[object]:
    return list(json.loads(text)["benchmarks"])


@pytest.mark.parametrize(
    ("form", "entries", "count"),
    [
        ("llama-bench", as_json, 4),
        ("llama-bench-jsonl", as_lines, 4),
        ("pytest-benchmark", benchmarks, 6),
    ],
)
def test_export_of_one_run_and_of_two(
    repo: Path, form: str, entries: Callable[[str], list[object]], count: int
) -> None:
    assert len(entries(harness("export", "--to", form).stdout)) == count
    harness("export", "aaaaaa", "bbbbbb", "--to", form, "-o", "out/rows")
    assert len(entries((repo / "out" / "rows").read_text(encoding="utf-8"))) == 2 * count


def test_export_for_github_action_writes_two_files(repo: Path) -> None:
    harness("export", "--to", "github-action", "-o", "out")
    names = {p.name for p in (repo / "out").iterdir()}
    assert names == {"bigger-is-better.json", "smaller-is-better.json"}
    assert all(json.loads(p.read_text(encoding="utf-8")) for p in (repo / "out").iterdir())


def otava_rows(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row["run_id"] for row in csv.DictReader(file)]


def test_export_for_otava_of_one_configuration(repo: Path) -> None:
    harness("export", "--to", "otava", "-o", "out")
    assert otava_rows(repo / "out" / "long-context.csv") == [FIRST, SECOND]
    assert "file: long-context.csv" in (repo / "out" / "otava.yaml").read_text(encoding="utf-8")


def test_export_for_otava_keeps_configurations_apart(repo: Path) -> None:
    measured(repo, "20260103-000001-cccccc", label="other")
    harness("export", "--to", "otava", "-o", "out")
    tables = sorted((repo / "out").glob("*.csv"))
    assert sorted(otava_rows(path) for path in tables) == [
        [FIRST, SECOND],
        ["20260103-000001-cccccc"],
    ]
    config = (repo / "out" / "otava.yaml").read_text(encoding="utf-8")
    assert config.count("tests:") == 1
    assert all(f"    file: {path.name}\n" in config for path in tables)
    harness("export", "--to", "otava", "-o", "one", "cccccc")
    assert otava_rows(repo / "one" / "long-context.csv") == ["20260103-000001-cccccc"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--to", "llama-bench", "nosuch"), "no run 'nosuch'"),
        (("--to", "llama-bench", "--results", "s3://bucket/runs"), "needs a local folder"),
        (("--to", "otava", "nosuch"), "no measured runs of those ids"),
        (("--to", "otava", "--results", "empty"), "no measured runs in"),
        (("--to", "otava", "-o", "harness.toml"), "writes into a folder"),
        (("--to", "github-action", "-o", "harness.toml"), "writes into a folder"),
        (("--to", "llama-bench", "-o", "results"), "cannot write"),
    ],
)
def test_export_refuses_in_one_sentence(repo: Path, args: tuple[str, ...], says: str) -> None:
    assert says in refused("export", *args)


def test_a_run_without_measurements_has_no_rows(repo: Path) -> None:
    bare = rung(2048).model_copy(update={"prefills": (), "generations": ()})
    measured(repo, "20260103-000001-cccccc", bare)
    assert "no rows to write" in refused("export", "--to", "llama-bench")


def test_what_a_run_does_not_tell_llama_bench_s_readers_is_said(repo: Path) -> None:
    said = harness("export", "--to", "llama-bench").stderr
    assert said.startswith("not known of these runs")
    assert "n_gpu_layers, flash_attn" in said
    assert "not known" not in harness("export", "--to", "pytest-benchmark").output


# -- import ---------------------------------------------------------------------------------


def exported(repo: Path, run: str, **changes: object) -> str:
    """The name of a file of a run's rows, as llama-bench writes them."""
    rows = json.loads(harness("export", run, "--to", "llama-bench").stdout)
    path = repo / f"{run}.json"
    path.write_text(json.dumps([row | changes for row in rows]), encoding="utf-8")
    return path.name


def test_import_of_two_files_is_a_baseline_that_judges(repo: Path) -> None:
    files = [exported(repo, "aaaaaa"), exported(repo, "bbbbbb", avg_ts=50.0, samples_ts=[50.0])]
    assert "one run has no spread" in harness("import", files[0]).output
    done = harness("import", files[1])
    assert "one run has no spread" not in done.output
    row = next(line for line in done.output.splitlines() if " generation " in line).split("|")
    assert [cell.strip() for cell in row[2:]] == ["100 tok/s", "75.0 tok/s", "−25 %"]
    harness("import", exported(repo, "bbbbbb"))
    accepted = find_baseline(repo / "baselines", key_of(header((2048, 8192))))
    assert accepted is not None
    assert [r.run_id for r in accepted.runs] == [f"llama-bench:{name}" for name in files]
    verdict = judge(read_run(list_runs(repo / "results")[-1]), accepted, BANDS)
    assert [c.outcome for c in verdict.cells if c.metric is GENERATION] == ["PASS"] * 2
    assert "measured_by" in harness("judge", code=2).output
    harness("import", files[0], "--replace")
    accepted = find_baseline(repo / "baselines", key_of(header((2048, 8192))))
    assert accepted is not None
    assert len(accepted.runs) == 1


def test_import_of_another_configuration_needs_force(repo: Path) -> None:
    measured(
        repo,
        "20260103-000001-cccccc",
        server=header().server.model_copy(update={"key": {"cache_type_k": "f16"}}),
    )
    name = exported(repo, "cccccc", type_k="q8_0")
    assert "cache_type_k is q8_0 in the file and f16 in the run" in refused("import", name)
    harness("import", name, "--force")


@pytest.mark.parametrize("content", ["", "[]", "speed: 12", '{"n_prompt": 1}', "\ufeff["])
def test_import_of_something_else_is_refused_in_one_sentence(repo: Path, content: str) -> None:
    (repo / "bench.json").write_text(content, encoding="utf-8")
    assert "bench.json" in refused("import", "bench.json")
    assert not (repo / "baselines").exists()


def test_import_of_bytes_that_are_no_text(repo: Path) -> None:
    (repo / "bench.json").write_bytes(b"\xff\xfe\x00\x80")
    assert "cannot read bench.json" in refused("import", "bench.json")


def test_import_of_what_no_rung_measured(repo: Path) -> None:
    row = {"n_prompt": 512, "n_gen": 0, "avg_ts": 900.0}
    (repo / "bench.json").write_text(json.dumps([row]), encoding="utf-8")
    assert "nothing in bench.json fits: pp512" in refused("import", "bench.json")


def test_import_as_a_run_is_read_by_judge_report_history_and_export(repo: Path) -> None:
    name = exported(repo, "aaaaaa", build_commit="0a1b2c3d", build_number=11480)
    done = harness("import", name, "--as", "run")
    (path,) = (p for p in list_runs(repo / "results") if p.stem not in (FIRST, SECOND))
    assert f"imported {name} as run {path.stem}" in done.output
    run = read_run(path)
    assert run.imported
    assert not read_run(repo / "results" / f"{FIRST}.jsonl").imported
    assert (run.header.server.origin, run.header.server.build) == ("binary", "b11480-0a1b2c3d")
    assert run.header.started_at == "2026-01-01T00:00:00+00:00"
    assert [e.code for e in run.events] == ["imported"]
    assert run.footer is not None
    assert run.footer.complete
    for depth in (2048, 8192):
        mine, theirs = run.rung(depth), read_run(repo / "results" / f"{FIRST}.jsonl").rung(depth)
        assert mine is not None
        assert theirs is not None
        for metric in (PREFILL, GENERATION):
            assert values_of(metric, samples_of(mine)) == pytest.approx(
                values_of(metric, samples_of(theirs))
            )
    assert "first run" in harness("judge", path.stem, code=2).output.splitlines()[-1]
    assert "b11480-0a1b2c3d" in harness("report", path.stem, "--issue").output
    harness("report", path.stem, "-o", "page.html")
    assert harness("history").output.count(", 1 runs: ") == 2  # begin and end
    again = json.loads(harness("export", path.stem, "--to", "llama-bench").stdout)
    assert [r["avg_ts"] for r in again] == pytest.approx(
        [r["avg_ts"] for r in json.loads((repo / name).read_text(encoding="utf-8"))]
    )


def test_imported_runs_are_a_baseline_of_their_own(repo: Path) -> None:
    files = [exported(repo, run) for run in ("aaaaaa", "bbbbbb")]
    harness("import", *files, "--as", "run")
    first, second = (p.stem for p in list_runs(repo / "results") if p.stem not in (FIRST, SECOND))
    harness("baseline", "update", first, second)
    assert find_baseline(repo / "baselines", key_of(header((2048, 8192)))) is None
    slow = exported(repo, "bbbbbb", test_time="2026-01-03T00:00:00Z", samples_ts=[50.0, 51.0, 49.0])
    harness("import", slow, "--as", "run")
    newest = list_runs(repo / "results")[-1]
    assert newest.stem.startswith("20260103-000000-")
    said = harness("judge", code=1).output.splitlines()
    assert said[0] == said[-1]
    assert said[0].startswith("worse: ")
    harness("import", files[0])
    assert find_baseline(repo / "baselines", key_of(header((2048, 8192)))) is not None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--replace",), "--replace is for --as baseline"),
        (("--like", "nosuch"), "no run 'nosuch'"),
        (("--results", "s3://bucket/runs"), "needs a local folder"),
        (("--results", "empty"), "no runs in"),
    ],
)
def test_import_as_a_run_refuses_in_one_sentence(
    repo: Path, args: tuple[str, ...], says: str
) -> None:
    assert says in refused("import", exported(repo, "aaaaaa"), "--as", "run", *args)
    assert len(list_runs(repo / "results")) == 2


def test_the_same_file_is_not_imported_twice(repo: Path) -> None:
    name = exported(repo, "aaaaaa")
    harness("import", name, "--as", "run")
    assert "is there already" in refused("import", name, "--as", "run")
    assert len(list_runs(repo / "results")) == 3


def test_a_row_that_does_not_say_when_is_of_now(repo: Path) -> None:
    harness("import", exported(repo, "aaaaaa", test_time="yesterday"), "--as", "run")
    assert len(list_runs(repo / "results")) == 3
    harness("history")


# -- history --------------------------------------------------------------------------------


def test_history_shows_cells_and_changes(repo: Path) -> None:
    for day in range(3, 31):
        slow = (80.0, 81.0, 79.0) if day > 15 else (100.0, 101.0, 99.0)
        measured(repo, f"202601{day:02}-000001-dddddd", rung(2048, generation_tok_s=slow))
    text = harness("history", "--metric", "generation", "--depth", "2048").output
    assert "30 runs" in text
    lines = text.splitlines()
    assert "2026-01-16" in lines[0]
    assert lines[-1] == lines[0]  # the answer, first and last
    assert "|  −20 % |" in text
    assert "prefill" not in text
    harness("history", "-o", "out/history.html", "--reference", "20260101")
    page = (repo / "out" / "history.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")


def test_history_names_records_it_cannot_read(repo: Path) -> None:
    (repo / "results" / "20260103-000001-bad.jsonl").write_text("{}\n", encoding="utf-8")
    assert "left out: " in harness("history").output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--results", "empty"), "no measured runs in empty"),
        (("--depth", "4096"), "with that metric and depth"),
        (("--reference", "2026"), "fits 2 runs"),
        (("--results", "nosuch://bucket/runs"), "cannot open nosuch://"),
        (("-o", "results"), "cannot write"),
    ],
)
def test_history_refuses_in_one_sentence(repo: Path, args: tuple[str, ...], says: str) -> None:
    assert says in refused("history", *args)


# -- schema ---------------------------------------------------------------------------------


def test_the_published_schema_is_that_of_the_records(repo: Path) -> None:
    published = Path(__file__).parents[3] / "docs" / "record.schema.json"
    assert published.read_text(encoding="utf-8") == harness("schema").stdout, (
        "run `harness schema -o docs/record.schema.json`"
    )


def test_the_schema_takes_the_lines_of_a_record_and_nothing_else(repo: Path) -> None:
    lines = (repo / "results" / f"{FIRST}.jsonl").read_text(encoding="utf-8").splitlines()
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema (the dev extra)")
    validator = jsonschema.Draft202012Validator(json.loads(harness("schema").stdout))
    assert [list(validator.iter_errors(json.loads(line))) for line in lines] == [[]] * len(lines)
    head = json.loads(lines[0])
    assert list(validator.iter_errors(head | {"surprise": 1}))
    assert list(validator.iter_errors({k: v for k, v in head.items() if k != "run_id"}))
