"""Commands around the first run: help at once, the files of a project, the list of runs."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.init import UNANSWERED
from harness.cli.main import COMMANDS, main
from harness.records.files import list_runs, write_run
from harness.records.lines import MemorySample
from harness.settings import load
from tests.made import whole_run


def call(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def test_every_command_that_is_listed_can_be_called() -> None:
    for name in (name for commands in COMMANDS.values() for name in commands):
        assert call(name, "--help").exit_code == 0, name


QUICK = ("--help", "init --yes", "schema -o schema.json", "baseline list", "builds")
UPDATE = "baseline update 20261101-020000-000001 20261102-020000-000002"
OFTEN = ("plan --no-probe", UPDATE, "baseline show", "runs", "judge -v", "history")
WRITING = ("report --markdown", "export --to llama-bench -o out.json")
ALL = tuple(f"{name} --help" for commands in COMMANDS.values() for name in commands)
"""Quick ones compute nothing; none of the others imports what takes a second."""


def test_no_command_that_does_not_measure_imports_what_takes_long(tmp_path: Path) -> None:
    """Not a time: a subprocess says what it imported, after each command."""
    (tmp_path / "harness.toml").touch()
    grown = tuple(
        MemorySample(rss_bytes=2**30, rss_anon_bytes=n, generated_tokens=n) for n in range(1, 13)
    )
    for seed in range(1, 9):
        run = whole_run(seed, generation=1.0 if seed < 5 else 0.9)
        rungs = tuple(rung.model_copy(update={"memory": grown}) for rung in run.rungs)
        write_run(tmp_path / "results", run.model_copy(update={"rungs": rungs}))
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom harness.cli.main import main\n"
        "late = {'openai', 'httpx2', 'scipy', 'ruptures', 'xllamacpp', 'jinja2'}\n"
        "for line in sys.stdin:\n"
        "    name, numbers = line.strip().split(';')\n"
        "    done = CliRunner().invoke(main, name.split())\n"
        "    assert done.exit_code in (0, 1, 2), (line, done.output, done.exception)\n"
        "    found = (late if numbers else {'numpy', *late}) & set(sys.modules)\n"
        "    assert not found, (line, found)\n"
    )
    lines = [f"{line};" for line in QUICK] + [f"{line};numpy" for line in OFTEN + WRITING + ALL]
    environ = {k: v for k, v in os.environ.items() if k != "CI"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        input="\n".join(lines),
        env=environ,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_init_shows_asks_writes_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call("init")
    assert 'ctx = "8K"' in shown.output
    assert shown.exit_code == UNANSWERED
    assert not list(tmp_path.iterdir())
    done = call("init", "--tests", "--workflow", "--yes")
    assert done.output.splitlines()[-1].startswith("wrote harness.toml, tests/test_long_context.py")
    assert load({}, tmp_path, {}).ctx_tokens == 8192
    (tmp_path / "harness.toml").write_text("ctx = 2048\n", encoding="utf-8")
    again = call("init", "--yes")
    assert "harness.toml is there already; it stays as it is" in again.output
    assert load({}, tmp_path, {}).ctx_tokens == 2048


def test_a_terminal_that_ends_at_the_question_writes_nothing_and_says_how_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `harness init < NUL` on Windows, where the null device is a terminal to Python."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["init"], input=_Terminal())
    assert done.output.splitlines()[-1].startswith("nothing written; `harness init --yes` writes")
    assert done.exit_code == UNANSWERED
    assert not list(tmp_path.iterdir())
    assert CliRunner().invoke(main, ["init"], input=_Terminal(b"n\n")).exit_code == 0
    assert not list(tmp_path.iterdir())
    assert CliRunner().invoke(main, ["init"], input=_Terminal(b"\n")).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["harness.toml"]


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_runs_are_listed_with_their_outcome_and_a_name_that_fits_several_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "harness.toml").touch()
    for seed in (1, 2):
        write_run(tmp_path / "results", whole_run(seed))
    ids = sorted(path.stem for path in list_runs(tmp_path / "results"))
    lines = call("runs").output.splitlines()
    listed = [[word.strip() for word in line.split("|")] for line in lines[2:-1]]
    assert [(row[0], row[2]) for row in listed] == [(i, "NO_BASELINE") for i in reversed(ids)]
    assert lines[-1].startswith("2 runs. ")
    several = call("judge", ids[0][:4])
    assert several.exit_code == 3
    assert f"fits 2 runs ({', '.join(ids)})" in several.output
