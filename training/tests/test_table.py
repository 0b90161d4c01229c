"""The table's jobs, how they share a machine's cores, and how their results are counted."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("tokenizers", reason="training needs the training dependency group")

from training import card, climb, evaluate, table
from training.table import Job, jobs

SERVERS = ["xllamacpp", "b10434"]


def test_every_job_is_a_command_that_its_program_understands() -> None:
    todo = jobs(SERVERS)
    assert len({job.name for job in todo}) == len(todo)
    for job in todo:
        argv = job.argv("embedded", 21_000, Path("out"), ["-ngl", "99"])
        module = {"evaluate": evaluate, "climb": climb}[job.module]
        args = module.parser().parse_args(argv[3:])
        assert (args.name, args.kv, args.background) == (job.server, job.kv, job.background)
        assert args.results == Path("out") / f"{job.name}.jsonl"
        assert (args.threads, args.port, args.flags) == (job.threads, 21_000, ["-ngl", "99"])


def test_the_plain_background_is_measured_as_often_on_each_server_and_kv_type() -> None:
    def asked(server: str, kv: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for job in jobs(SERVERS):
            if (job.server, job.kv, job.background) != (server, kv, "plain"):
                continue
            if job.module == "climb":
                rungs = job.options[1:]
                counts |= {int(r): counts.get(int(r), 0) + 4 for r in rungs}
            elif job.options[1] == "suite":
                counts[8192] = counts.get(8192, 0) + sum(
                    int(item.split(":")[1]) for item in job.options[3:]
                )
        return counts

    for server in SERVERS:
        for kv in ("f16", "q8_0"):
            found = asked(server, kv)
            assert found[8192] >= 1000
            assert found[32_768] >= 50
            assert found[131_072] >= 10


class Fake:
    """A process that ends when it has been looked at `looks` times."""

    alive: ClassVar[list["Fake"]] = []
    most = 0

    def __init__(self, argv: list[str], **_: object) -> None:
        self.threads = int(argv[argv.index("--threads") + 1])
        self.returncode: int | None = None
        self.bad = "bad" in argv[argv.index("--name") + 1]
        self.looks = 2
        Fake.alive.append(self)
        Fake.most = max(Fake.most, sum(one.threads for one in Fake.alive))

    def poll(self) -> int | None:
        self.looks -= 1
        if self.looks == 0:
            self.returncode = int(self.bad)
            Fake.alive.remove(self)
        return self.returncode


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr(table.subprocess, "Popen", Fake)
    monkeypatch.setattr(table.time, "sleep", lambda _: None)
    monkeypatch.setattr(Fake, "alive", [])
    monkeypatch.setattr(Fake, "most", 0)
    return Fake


def _job(server: str, seed: int, threads: int) -> Job:
    return Job(server, "climb", "f16", "plain", "climb-1", seed, (), threads)


def test_jobs_fill_the_cores_and_never_take_more(processes, tmp_path) -> None:
    todo = [_job("a", i, threads) for i, threads in enumerate((5, 2, 5, 2, 2, 5))]
    assert table.run(todo, {"a": "embedded"}, 9, tmp_path) == []
    assert processes.most == 9
    assert processes.alive == []


def test_a_failed_job_is_named_and_the_others_go_on(processes, tmp_path) -> None:
    todo = [_job(server, 1, 2) for server in ("bad", "good")]
    programs = {"bad": "x", "good": "x"}
    assert table.run(todo, programs, 2, tmp_path) == ["bad-f16-plain-climb-1-1"]


def test_a_job_larger_than_the_machine_is_refused(processes, tmp_path) -> None:
    with pytest.raises(SystemExit, match="needs 5 cores, not 4"):
        table.run([_job("a", 1, 5)], {"a": "x"}, 4, tmp_path)


def _row(seed: int, exact: bool, **more: object) -> dict[str, object]:
    labels = {"server": "s", "kv": "f16", "flags": "", "background": "plain"}
    labels |= {"style": "climb", "length": 2048, "seed": seed, "order": "forward"}
    return {**labels, "exact": exact, "lines": 6, "lines_right": 6 * exact, **more}


def test_a_prompt_asked_twice_counts_once_over_all_files_of_a_folder(tmp_path) -> None:
    for name, rows in {
        "a": [_row(1, True, language="en"), _row(1, True, language="ja")],
        "b": [_row(1, False, language="en"), _row(2, False, language="en")],
    }.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    assert "| 2/3 | 12/18 | 2/3 – – |" in evaluate.summary(evaluate.read(tmp_path))


def test_a_document_in_the_results_is_not_read_again(tmp_path, monkeypatch) -> None:
    results = tmp_path / "r.jsonl"
    results.write_text(json.dumps(_row(7, True)) + "\n")
    argv = ["--name", "s", "--rungs", "1024", "2048", "--results", str(results), "--seed"]
    served = []

    def no_server(*_: object) -> None:
        served.append(1)
        raise LookupError

    monkeypatch.setattr(climb, "serving", no_server)
    climb.run(climb.parser().parse_args([*argv, "7"]))
    assert served == []
    with pytest.raises(LookupError):
        climb.run(climb.parser().parse_args([*argv, "6", "--documents", "2"]))


def test_the_card_sorts_answers_by_length_and_names_what_was_missed() -> None:
    wrong = {"wanted": ["Q1=MEM-1", "Q2=MEM-2"], "got": ["Q1=MEM-1", "Q2=MEM-3"]}
    rows = [
        _row(1, True, order="reversed"),
        _row(2, False, length=8193, order="shuffled", **wrong),
        _row(3, True, length=131_072, background="hard"),
        _row(4, False, kv="q4_0", style="many", **wrong),
    ]
    assert card.table(rows).splitlines()[2:] == [
        "| plain | f16 | s | 1/1 | 0/1 | – | – 1/1 0/1 |",
        "| hard | f16 | s | – | – | 1/1 | 1/1 – – |",
    ]
    assert card.breadth(rows).splitlines()[2:] == ["| plain | q4_0 | s | 0/1 | 0/6 |"]
    assert card.misses(rows) == [
        "- climb, 8193 tokens, plain, KV f16, s, seed 2: `Q2=MEM-3` for `Q2=MEM-2`"
    ]
