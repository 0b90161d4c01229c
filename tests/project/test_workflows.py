"""The workflows: rights, pinned actions, limits that nest, linters, and the script they call."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
FIVE_DAYS_MIN = 5 * 24 * 60
PUBLISHING = {"id-token": "write", "attestations": "write"}
"""Rights of the one job that publishes: its identity, no token; nothing of the repository."""


def loaded(name: str) -> dict[Any, Any]:
    yaml = pytest.importorskip("ruamel.yaml", reason="comes with check-jsonschema")
    return dict(yaml.YAML(typ="safe").load(FOLDER / name))


def triggers(workflow: dict[Any, Any]) -> dict[str, Any]:
    return workflow.get("on") or workflow[True]  # YAML 1.1 reads `on` as true


def jobs() -> Iterator[tuple[str, dict[Any, Any], dict[str, Any]]]:
    for path in WORKFLOWS:
        workflow = loaded(path.name)
        for job in workflow["jobs"].values():
            yield path.name, workflow, job


def tool(name: str) -> str:
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def check(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_are_there() -> None:
    assert [p.name for p in WORKFLOWS] == ["ci.yml", "nightly.yml", "release.yml"]


def test_they_fit_the_schema_of_workflows() -> None:
    schema = ("--builtin-schema", "vendor.github-workflows")
    check(tool("check-jsonschema"), *schema, *map(str, WORKFLOWS))


def test_zizmor_finds_nothing() -> None:
    check(tool("zizmor"), "--offline", "--no-progress", "--persona=auditor", str(FOLDER))


def test_actionlint_finds_nothing() -> None:
    check(tool("actionlint"), *map(str, WORKFLOWS))


def test_actions_are_pinned_by_commit_and_say_which_version_that_is() -> None:
    for path in WORKFLOWS:
        used = re.findall(r"uses: (\S+)(.*)", path.read_text(encoding="utf-8"))
        assert used
        for action, comment in used:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), comment


def test_a_pull_request_never_reaches_a_machine_of_ours() -> None:
    for name, workflow, job in jobs():
        if "self-hosted" in job["runs-on"]:
            assert set(triggers(workflow)) == {"schedule", "workflow_dispatch"}, name


def test_nothing_may_be_written_and_no_secret_is_used() -> None:
    for name, workflow, job in jobs():
        assert workflow["permissions"] == {}, name
        publishes = job.get("environment", {}).get("name") == "pypi"
        assert job["permissions"] == (PUBLISHING if publishes else {"contents": "read"}), name
    assert not [p for p in WORKFLOWS if "secrets." in p.read_text(encoding="utf-8")]


def test_the_nights_own_limit_lies_within_the_steps_the_jobs_and_the_runners() -> None:
    workflow = loaded("nightly.yml")
    hours = float(triggers(workflow)["workflow_dispatch"]["inputs"]["hours"]["default"])
    for job in workflow["jobs"].values():
        (step,) = [s for s in job["steps"] if "night.py" in s.get("run", "")]
        assert f"|| '{hours:g}'" in step["env"]["HOURS"]
        limits = (hours * 60, step["timeout-minutes"], job["timeout-minutes"], FIVE_DAYS_MIN)
        assert list(limits) == sorted(set(limits))


def test_nights_wait_for_each_other_and_are_kept_whatever_became_of_them() -> None:
    workflow = loaded("nightly.yml")
    assert workflow["concurrency"]["cancel-in-progress"] is False
    for job in workflow["jobs"].values():
        assert job["strategy"]["fail-fast"] is False
        assert job["strategy"]["max-parallel"] == 1
        (upload,) = [s for s in job["steps"] if "upload-artifact" in s.get("uses", "")]
        (step,) = [s for s in job["steps"] if "night.py" in s.get("run", "")]
        assert upload["if"] == "always()"
        assert f"--artifacts {upload['with']['path'].rstrip('/')} " in step["run"]


def test_scripts_take_nothing_from_outside_but_variables() -> None:
    for name, _, job in jobs():
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), name
            if script := re.search(r"\.ci[/\\]([\w.]+)", step.get("run", "")):
                assert (ROOT / ".ci" / script[1]).is_file()


def test_only_a_tag_publishes_and_only_what_was_checked() -> None:
    workflow = loaded("release.yml")
    assert triggers(workflow) == {"push": {"tags": ["v*"]}}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert ".ci/wheel" in [step.get("run") for step in build["steps"]]
    assert publish["needs"] == "build"
    assert not [step for step in publish["steps"] if "run" in step or "checkout" in step["uses"]]


def test_every_system_runs_the_readmes_commands() -> None:
    job = loaded("ci.yml")["jobs"]["readme"]
    systems = {name.partition("-")[0] for name in job["strategy"]["matrix"]["system"]}
    assert systems == {"ubuntu", "windows", "macos"}
    runs = [step["run"] for step in job["steps"] if "readme.py" in step.get("run", "")]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in (run.rpartition(" ")[2] for run in runs):
        assert f"<!-- {name} -->\n" in text
        assert f"<!-- {name} on Windows -->\n" in text


# -- .ci/night.py ---------------------------------------------------------------------------


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_night", ROOT / ".ci" / "night.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Machine:
    """Notes commands; `codes` are their exit codes, the night writes a folder."""

    def __init__(self, home: Path, *codes: int) -> None:
        self.commands: list[list[str]] = []
        self._codes = list(codes)
        self._home = home
        python = home / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        python.parent.mkdir(parents=True)
        python.touch()

    def __call__(self, command: Sequence[str]) -> int:
        self.commands.append(list(command))
        if "night" in command:
            name = command[command.index("--name") + 1]
            folder = self._home / "results" / "nights" / name
            folder.mkdir(parents=True)
            (folder / "summary.md").touch()
            (folder / "night.lock").touch()
        return self._codes.pop(0)


def test_the_script_installs_measures_and_hands_over_whatever_came_of_it(
    script: ModuleType, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "home", 0, 1)
    artifacts = tmp_path / "night"
    artifacts.mkdir()
    (artifacts / "of yesterday").touch()
    code = script.main(
        ["--home", str(tmp_path / "home"), "--artifacts", str(artifacts), "--hours", "3", "夜 間"],
        run=machine,
    )
    assert code == 1
    install, night = machine.commands
    assert install[1:4] == ["-m", "pip", "install"]
    assert night[1:4] == ["-m", "harness", "night"]
    assert night[night.index("--hours") + 1] == "3.0"
    assert night[night.index("--results") + 1] == str(tmp_path / "home" / "results")
    assert night[-1] == "夜 間"
    assert night[night.index("--name") + 1].endswith("-夜_間")
    assert [p.name for p in artifacts.iterdir()] == ["summary.md"]


def test_without_the_harness_nothing_is_measured(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path / "home", 1)
    assert script.main(["--home", str(tmp_path / "home"), "vulkan"], run=machine) == 3
    assert len(machine.commands) == 1
    assert "could not be installed" in capsys.readouterr().out
