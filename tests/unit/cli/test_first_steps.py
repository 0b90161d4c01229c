"""Commands around the first run: help at once, the files of a project, the list of runs."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import COMMANDS, main
from harness.records.files import list_runs, write_run
from harness.settings import load
from tests.made import whole_run


def call(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def test_every_command_that_is_listed_can_be_called() -> None:
    for name in (name for commands in COMMANDS.values() for name in commands):
        assert call(name, "--help").exit_code == 0, name


def test_help_and_runs_of_an_empty_folder_import_nothing_that_measures(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom harness.cli.main import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "late = {'openai', 'scipy', 'numpy', 'jinja2', 'xllamacpp'} & set(sys.modules)\n"
        "assert not late, late\n"
    )
    for args in (["--help"], ["runs"], ["schema", "-o", "schema.json"], ["init"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *args], cwd=tmp_path, input=b"", check=False
        )
        assert done.returncode == 0, args


def test_init_shows_asks_writes_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call("init")
    assert 'ctx = "8K"' in shown.output
    assert not list(tmp_path.iterdir())
    done = call("init", "--tests", "--workflow", "--yes")
    assert done.output.splitlines()[-1].startswith("wrote harness.toml, tests/test_long_context.py")
    assert load({}, tmp_path, {}).ctx_tokens == 8192
    (tmp_path / "harness.toml").write_text("ctx = 2048\n", encoding="utf-8")
    again = call("init", "--yes")
    assert "harness.toml is there already; it stays as it is" in again.output
    assert load({}, tmp_path, {}).ctx_tokens == 2048


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
