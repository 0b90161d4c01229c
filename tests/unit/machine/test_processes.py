from pathlib import Path

import pytest

from harness.machine import rivals
from harness.machine.processes import CpuTotals, LinuxProc, ProcessTimes, Tree, below, title


def stat_line(pid: int, name: str, parent: int, *ticks: int) -> str:
    """`/proc/PID/stat` with utime, stime, cutime, cstime."""
    user, system, reaped_user, reaped_system = ticks
    return (
        f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194304 100 0 0 0 {user} {system} "
        f"{reaped_user} {reaped_system} 20 0 1 0 12345 1000000 500 18446744073709551615\n"
    )


def proc(root: Path, pid: int, name: str, parent: int, *ticks: int) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    (root / str(pid) / "stat").write_text(stat_line(pid, name, parent, *ticks))


@pytest.fixture
def table(tmp_path: Path) -> LinuxProc:
    found = LinuxProc(str(tmp_path))
    found._tick_s = 0.01
    return found


def test_totals_leave_interrupts_and_stolen_time_out(table: LinuxProc, tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 20 30 5000 7 11 13 40 60 0\ncpu0 1 1 1 1 1\n")
    assert table.totals() == CpuTotals(pytest.approx(1.5), pytest.approx(0.4))  # type: ignore[arg-type]


def test_a_name_may_hold_spaces_and_brackets(table: LinuxProc, tmp_path: Path) -> None:
    proc(tmp_path, 7, "LM Studio :) (x)", 1, 100, 50, 20, 30)
    assert table.read(7) == ProcessTimes(7, 1, "LM Studio :) (x)", 1.5, 0.5)
    assert table.read(8) is None
    assert table.pids() == {7}


def test_a_torn_stat_is_not_readable(table: LinuxProc, tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()
    (tmp_path / "9/stat").write_text("9 (half")
    assert table.read(9) is None


def test_command_line(table: LinuxProc, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes(b"python3\0-m\0vllm.entrypoints\0")
    assert table.command(7) == ("python3", "-m", "vllm.entrypoints")
    assert table.command(8) == ()


def test_all_below_a_process() -> None:
    parents = {1: None, 2: 1, 5: 2, 4: 5, 9: 1}
    assert below(parents, {2}) == {2, 5, 4}
    assert below(parents, {77}) == set()


class TestTree:
    """The tree's CPU time, on a `/proc` that the test writes."""

    def test_children_that_come_later_count(self, table: LinuxProc, tmp_path: Path) -> None:
        proc(tmp_path, 10, "pytest", 1, 100, 0, 0, 0)
        proc(tmp_path, 20, "firefox", 1, 500, 0, 0, 0)
        tree = Tree(table)
        tree.add({10})
        start = tree.cpu_s(table.pids())
        proc(tmp_path, 10, "pytest", 1, 150, 0, 0, 0)
        proc(tmp_path, 20, "firefox", 1, 900, 0, 0, 0)
        proc(tmp_path, 30, "llama-server", 10, 200, 0, 0, 0)
        proc(tmp_path, 31, "ggml", 30, 0, 50, 0, 0)
        assert tree.cpu_s(table.pids()) - start == pytest.approx(0.5 + 2.0 + 0.5)
        assert tree.members() == {10, 30, 31}

    def test_newcomers_outside_are_told(self, table: LinuxProc, tmp_path: Path) -> None:
        proc(tmp_path, 10, "pytest", 1, 0, 0, 0, 0)
        tree = Tree(table)
        tree.add({10})
        tree.cpu_s(table.pids())
        proc(tmp_path, 40, "llama-bench", 1, 0, 0, 0, 0)
        tree.cpu_s(table.pids())
        assert [times.name for times in tree.newcomers] == ["llama-bench"]
        tree.cpu_s(table.pids())
        assert tree.newcomers == ()

    def test_time_of_an_ended_child_is_kept(self, table: LinuxProc, tmp_path: Path) -> None:
        proc(tmp_path, 10, "pytest", 1, 0, 0, 0, 0)
        proc(tmp_path, 30, "llama-server", 10, 0, 0, 0, 0)
        tree = Tree(table)
        tree.add({10})
        start = tree.cpu_s(table.pids())
        proc(tmp_path, 30, "llama-server", 10, 700, 0, 0, 0)
        assert tree.cpu_s(table.pids()) - start == pytest.approx(7.0)
        (tmp_path / "30/stat").unlink()
        (tmp_path / "30").rmdir()
        proc(tmp_path, 10, "pytest", 1, 0, 0, 710, 0)  # waited for: the parent takes it over
        assert tree.cpu_s(table.pids()) - start == pytest.approx(7.1)

    def test_time_of_an_orphan_is_kept(self, table: LinuxProc, tmp_path: Path) -> None:
        proc(tmp_path, 10, "pytest", 1, 0, 0, 0, 0)
        proc(tmp_path, 30, "server", 1, 700, 0, 0, 0)
        tree = Tree(table)
        tree.add({10, 30})
        start = tree.cpu_s(table.pids())
        (tmp_path / "30/stat").unlink()
        (tmp_path / "30").rmdir()
        assert tree.cpu_s(table.pids()) - start == pytest.approx(0.0)

    def test_a_server_added_later_counts_from_then_on(
        self, table: LinuxProc, tmp_path: Path
    ) -> None:
        proc(tmp_path, 10, "pytest", 1, 0, 0, 0, 0)
        proc(tmp_path, 50, "llama-server", 1, 90_000, 0, 0, 0)
        proc(tmp_path, 51, "worker", 50, 10_000, 0, 0, 0)
        tree = Tree(table)
        tree.add({10})
        start = tree.cpu_s(table.pids())
        tree.add({50})
        assert tree.cpu_s(table.pids()) - start == pytest.approx(0.0)
        proc(tmp_path, 51, "worker", 50, 10_100, 0, 0, 0)
        assert tree.cpu_s(table.pids()) - start == pytest.approx(1.0)
        assert tree.members() == {10, 50, 51}

    def test_a_child_that_ends_while_the_tree_is_read(
        self, table: LinuxProc, tmp_path: Path
    ) -> None:
        """The parent was read just before it took the child's time over: it is read again."""
        proc(tmp_path, 10, "pytest", 1, 0, 0, 0, 0)
        proc(tmp_path, 30, "child", 10, 500, 0, 0, 0)

        class Racing(LinuxProc):
            raced = False

            def read(self, pid: int) -> ProcessTimes | None:
                found = super().read(pid)
                if pid == 10 and self.raced is False and (tmp_path / "armed").exists():
                    self.raced = True
                    (tmp_path / "30/stat").unlink()
                    proc(tmp_path, 10, "pytest", 1, 0, 0, 500, 0)
                return found

        racing = Racing(str(tmp_path))
        racing._tick_s = 0.01
        tree = Tree(racing)
        tree.add({10})
        start = tree.cpu_s(racing.pids())
        (tmp_path / "armed").touch()
        assert tree.cpu_s(racing.pids()) - start == pytest.approx(0.0)

    def test_where_parents_take_nothing_over(self, table: LinuxProc, tmp_path: Path) -> None:
        """Windows and macOS: an ended child's time is carried on by the tree itself."""
        table.sums_children = False
        proc(tmp_path, 10, "pytest", 1, 0, 0, 0, 0)
        proc(tmp_path, 30, "server", 10, 700, 0, 0, 0)
        tree = Tree(table)
        tree.add({10})
        start = tree.cpu_s(table.pids())
        (tmp_path / "30/stat").unlink()
        (tmp_path / "30").rmdir()
        assert tree.cpu_s(table.pids()) - start == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("name", "command", "expected"),
    [
        ("python3", ("python3", "train.py", "--lr"), "python3 train.py"),
        ("python3", ("python3", "-m", "pytest", "-q"), "python3 -m pytest"),
        ("python3", ("python3", "-u", "/opt/x/train.py"), "python3 train.py"),
        ("python.exe", ("python", r"C:\x\train.py"), "python.exe train.py"),
        ("python3", ("python3", "-c", "secret code"), "python3"),
        ("python3", (), "python3"),
    ],
)
def test_interpreters_are_told_apart(name: str, command: tuple[str, ...], expected: str) -> None:
    assert title(name, command) == expected


@pytest.mark.parametrize(
    "name",
    ["llama-server", "llama-server.exe", "LM Studio.exe", "ollama", "koboldcpp-linux", "vllm"],
)
def test_rivals_by_name(name: str) -> None:
    assert rivals.by_name(name) == name.lower().removesuffix(".exe")


@pytest.mark.parametrize("name", ["firefox", "bash", "llamas", "python3"])
def test_no_rivals(name: str) -> None:
    assert rivals.by_name(name) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python3", "-m", "vllm.entrypoints.openai.api_server"), "vllm"),
        (("python3", "/usr/bin/vllm", "serve"), "vllm"),
        (("python3", "koboldcpp.py"), "koboldcpp"),
        (("python", "-m", "harness.serving.embedded"), "harness.serving"),
        (("python3", "notes.py", "about", "vllm"), "vllm"),
        (("python3", "notes.py", "--title", "on", "vllm"), None),
        (("python3", "train.py"), None),
    ],
)
def test_rivals_by_command(command: tuple[str, ...], expected: str | None) -> None:
    assert rivals.by_command(command) == expected
