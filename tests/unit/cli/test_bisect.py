"""`harness bisect`: through releases, then through the commits between the two that were found."""

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.measuring import bisect as measuring
from harness.serving.builds import pinned
from tests.unit.measuring.test_bisect import Killed, Machine

COMMAND = (
    *("bisect", "b11000", "b11020", "--among", "b11008"),
    *("--metric", "generation", "--depths", "1K,2K"),
)
RELEASES = [("b11000", "b11020"), ("b11000", "b11008")]


def harness(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A checkout of nine commits, b11000 to b11008, that `harness.toml` names; their names."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    pinned.cache_clear()
    source = tmp_path / "source"
    source.mkdir()

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        command = ["git", "-C", str(source), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    for number in range(9):
        git("commit", "-q", "--allow-empty", "-m", str(number))
        git("tag", f"b{11000 + number}")
    monkeypatch.chdir(tmp_path)
    toml = 'server_args = "-t 1"\n[builds]\ncheckout = "source"\ncache = "kept"\n'
    (tmp_path / "harness.toml").write_text(toml, encoding="utf-8")
    return [f"commit:{line[:12]}" for line in git("rev-list", "--reverse", "HEAD").split()]


@pytest.fixture
def machine(commits: list[str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The fifth commit is the first that is slow, and so are the releases from b11008 on."""
    made = Machine({"b11000": 100.0, "b11008": 80.0, "b11020": 80.0})
    made.speeds |= {name: 100.0 if n < 5 else 80.0 for n, name in enumerate(commits)}
    monkeypatch.setattr(measuring, "Comparison", made.comparison)
    return made


def test_behind_the_releases_the_commits_between_them_are_bisected(
    machine: Machine, commits: list[str]
) -> None:
    done = harness(*COMMAND, "--issue")
    assert done.exit_code == 0, done.output
    said = f"first bad build: {commits[5]}, last good: {commits[4]}: generation at 2K −20 %"
    assert "first bad build: b11008, last good: b11000: generation at 2K −20 %" in done.output
    assert "on through 8 commits from b11000 to b11008\n" in done.output
    assert machine.compared[:2] == RELEASES
    assert machine.compared[2] == (commits[0], commits[8])
    assert machine.compared[-1] == (commits[4], commits[5])
    assert (machine.depths[0], set(machine.depths[1:])) == ((1024, 2048), {(2048,)})
    issue = next(Path("results").glob("bisect/*/issue.md")).read_text(encoding="utf-8")
    assert done.output.endswith(f"{issue}\n")
    assert done.output.count("### What happened") == 1
    assert issue.startswith(f"Generation at 2K: −20 % since {commits[5]}\n")
    assert said in issue
    assert issue.endswith("; server arguments: -t 1\n")
    options = "--metric generation --depths 2048"
    assert f"harness compare b11000 b11008 {options}\n" in issue
    assert f"harness compare {commits[4]} {commits[5]} {options}\n" in issue


@pytest.mark.parametrize("killed_at", [2, 3, 5])
def test_a_bisection_that_was_killed_among_the_commits_goes_on_there(
    machine: Machine, commits: list[str], killed_at: int
) -> None:
    assert harness(*COMMAND).exit_code == 0
    expected, machine.compared = machine.compared, []
    assert len(expected) > killed_at
    shutil.rmtree("results")
    machine.killed_at = killed_at
    with pytest.raises(Killed):
        harness(*COMMAND)
    machine.killed_at = None
    done = harness(*COMMAND, "--resume")
    assert (done.exit_code, machine.compared) == (0, expected)
    assert f"first bad build: {commits[5]}" in done.output


@pytest.mark.parametrize("trouble", ["no tag", "no build", "no loss"])
def test_where_the_commits_do_not_tell_the_releases_stay_the_answer(
    machine: Machine, commits: list[str], trouble: str
) -> None:
    if trouble == "no tag":
        subprocess.run(["git", "-C", "source", "tag", "-d", "b11008"], check=True)
        why = "not bisected: source has no commit b11008 (git rev-parse in "
    elif trouble == "no build":
        machine.dead = (commits[0],)
        why = f"the commits between them are not bisected: release {commits[0]} has no archive"
    else:
        machine.speeds |= dict.fromkeys(commits, 100.0)
        why = f"{commits[8]} is no worse than {commits[0]} here"
    done = harness(*COMMAND)
    assert done.exit_code == 0
    assert why in done.output
    if trouble == "no loss":
        last = "so it stays at this: first bad build: b11008, last good: b11000"
        assert done.output.splitlines()[-1].startswith(last)
    issue = next(Path("results").glob("bisect/*/issue.md")).read_text(encoding="utf-8")
    assert issue.startswith("Generation at 2K: −20 % since b11008\n")


def test_a_good_build_that_cannot_be_had_is_not_put_down_to_the_last(machine: Machine) -> None:
    machine.dead = ("b11000",)
    done = harness(*COMMAND)
    assert done.exit_code == 125
    assert "harness: release b11000 has no archive\n" in done.output
    assert "undecided" not in done.output


def test_two_metrics_are_a_mistake_that_is_told(machine: Machine) -> None:
    done = harness(*COMMAND, "--retrieval")
    assert done.exit_code == 125
    assert "one metric is looked for, not generation and retrieval" in done.output
    assert not machine.compared
