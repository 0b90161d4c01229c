"""What a run leaves behind is stopped by the next one; what only has the same number is not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.serving.launch import LaunchSpec, RunningServer
from harness.serving.orphans import Noted, read_note, reap, still_runs, write_note
from harness.serving.windows_job import Calls, tie_to_me


@pytest.fixture
def stranger() -> Iterator[psutil.Popen]:
    """A process that does nothing, with a child that does nothing."""
    script = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()"
    )
    process = psutil.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline().strip() == b"up"
    tree = [process, *process.children(recursive=True)]
    yield process
    for one in tree:
        if one.is_running():
            one.kill()
    process.communicate()


def test_a_noted_server_that_still_runs_is_stopped_with_what_it_started(
    tmp_path: Path, stranger: psutil.Popen
) -> None:
    children = stranger.children(recursive=True)
    assert children
    note = tmp_path / "servers" / "1.json"
    write_note(note, stranger.pid, stranger.create_time(), ["llama-server", "--api-key", "sk-1"])
    assert "sk-1" not in note.read_text(encoding="utf-8")
    (said,) = reap(note.parent)
    assert f"llama-server (pid {stranger.pid}); stopped it" in said
    assert stranger.poll() is not None
    assert not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children)
    assert not note.exists()


def test_a_process_that_has_the_number_but_not_the_start_is_left_alone(
    tmp_path: Path, stranger: psutil.Popen
) -> None:
    note = tmp_path / "1.json"
    write_note(note, stranger.pid, stranger.create_time() - 60.0, ["llama-server"])
    assert reap(tmp_path) == []
    assert stranger.poll() is None
    assert not note.exists()


@pytest.mark.parametrize("text", ["", "{}", '{"pid": "x"}', "[1]", '{"pid": 1, "create_time": 1}'])
def test_a_note_that_cannot_be_read_stops_nothing(tmp_path: Path, text: str) -> None:
    note = tmp_path / "1.json"
    note.write_text(text, encoding="utf-8")
    assert read_note(note) is None
    assert reap(tmp_path) == []
    assert not note.exists()


def test_without_notes_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert reap(tmp_path / "none") == []


def test_this_process_is_itself() -> None:
    me = psutil.Process()
    assert still_runs(Noted(os.getpid(), me.create_time(), "me"))


def test_the_supervisor_notes_its_server_and_takes_the_note_back(tmp_path: Path) -> None:
    note = tmp_path / "servers" / "1.json"
    command = [
        *(sys.executable, "-m", "harness.serving.supervise", "--log", str(tmp_path / "log")),
        *("--note", str(note), "--", sys.executable, "-c", "import time; time.sleep(600)"),
    ]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert run.stdout is not None
    told = json.loads(run.stdout.readline())
    noted = read_note(note)
    assert noted is not None
    assert (noted.pid, noted.create_time) == (told["pid"], told["create_time"])
    assert still_runs(noted)
    run.communicate(timeout=30)
    assert not note.exists()
    assert not still_runs(noted)


@pytest.mark.parametrize(("unwritable", "told"), [("--log", "error"), ("--note", "pid")])
def test_a_supervisor_that_cannot_write_says_so_or_goes_on(
    tmp_path: Path, unwritable: str, told: str
) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    files = {"--log": tmp_path / "log", "--note": tmp_path / "note"}
    files[unwritable] = tmp_path / "file" / "below"
    given = [str(word) for option in files.items() for word in option]
    command = [sys.executable, "-m", "harness.serving.supervise", *given]
    command += ["--", sys.executable, "-c", "input()"]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert told in json.loads(run.stdout.splitlines()[0])
    assert b"Traceback" not in run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a job object does it there")
@pytest.mark.parametrize("killed", ["script", "supervisor"])
def test_a_server_that_a_script_started_does_not_outlive_the_script(
    tmp_path: Path, killed: str
) -> None:
    note, pid_file = tmp_path / "servers" / "1.json", tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait"
    command = [
        *(sys.executable, "-m", "harness.serving.supervise", "--log", str(tmp_path / "log")),
        *("--note", str(note), "--", "sh", "-c", script),
    ]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert run.stdout is not None
    told = json.loads(run.stdout.readline())
    script_process = psutil.Process(told["pid"])
    while not pid_file.exists():
        assert script_process.is_running()
    server = psutil.Process(int(pid_file.read_text()))
    (script_process if killed == "script" else psutil.Process(run.pid)).kill()
    run.wait(timeout=30)
    if killed == "supervisor":
        psutil.wait_procs([script_process], timeout=10)
        said = reap(note.parent)
        assert any(f"sh (pid {server.pid}); stopped it" in line for line in said)
    alive = server.is_running() and server.status() != psutil.STATUS_ZOMBIE
    if alive:
        server.kill()
    assert not alive
    assert not note.exists()
    run.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="a job object does it there")
def test_a_run_whose_supervisor_is_killed_stops_what_a_script_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait"
    spec = LaunchSpec(("sh", "-c", script), 1, tmp_path / "log")
    running = RunningServer(spec)
    while not pid_file.exists():
        assert running.alive
    server = psutil.Process(int(pid_file.read_text()))
    (supervisor,) = psutil.Process().children()
    supervisor.kill()
    gone, _ = psutil.wait_procs([server], timeout=10)
    running.stop()
    if not gone:
        server.kill()
    assert gone


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_note_that_is_a_link_or_another_user_s_stops_nothing(
    tmp_path: Path, stranger: psutil.Popen, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, link = tmp_path / "elsewhere", tmp_path / "servers" / "1.json"
    write_note(note, stranger.pid, stranger.create_time(), ["llama-server"])
    link.parent.mkdir()
    link.symlink_to(note)
    assert reap(link.parent) == []
    write_note(link, stranger.pid, stranger.create_time(), ["llama-server"])
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: 12345)
        assert reap(link.parent) == []
    assert stranger.poll() is None


class Windows:
    """pywin32's `win32job` and `win32api` in one, which keeps what it is asked."""

    JobObjectExtendedLimitInformation = 9
    JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE = 0x2000

    def __init__(self, fails: str | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._fails = fails

    def _keep(self, name: str, *args: Any) -> None:
        self.asked.append((name, *args))
        if name == self._fails:
            raise OSError(name)

    def CreateJobObject(self, security: object, name: str) -> str:  # noqa: N802
        self._keep("create", security, name)
        return "job"

    def QueryInformationJobObject(self, job: str, kind: int) -> dict[str, Any]:  # noqa: N802
        self._keep("query", job, kind)
        return {"BasicLimitInformation": {"LimitFlags": 1}, "IoInfo": {}}

    def SetInformationJobObject(self, job: str, kind: int, limits: Any) -> None:  # noqa: N802
        self._keep("set", job, kind, limits["BasicLimitInformation"]["LimitFlags"])

    def OpenProcess(self, rights: int, inherit: bool, pid: int) -> str:  # noqa: N802
        self._keep("open", rights, inherit, pid)
        return "process"

    def AssignProcessToJobObject(self, job: str, process: str) -> None:  # noqa: N802
        self._keep("assign", job, process)


def test_on_windows_a_job_object_ends_the_server_with_its_supervisor() -> None:
    windows = Windows()
    assert tie_to_me(42, Calls(windows, windows)) == "job"
    assert windows.asked == [
        ("create", None, ""),
        ("query", "job", 9),
        ("set", "job", 9, 0x2001),
        ("open", 0x101, False, 42),
        ("assign", "job", "process"),
    ]


@pytest.mark.parametrize("fails", ["create", "set", "open", "assign"])
def test_a_refused_job_object_does_not_stop_the_run(fails: str) -> None:
    windows = Windows(fails)
    assert tie_to_me(42, Calls(windows, windows)) is None
    assert tie_to_me(42, None) is None
