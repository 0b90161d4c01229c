"""One run a machine: a second one is told who holds it, or waits; the dead hold nothing."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.errors import LockedError
from harness.machine.lock import LOCK_VARIABLE, machine_lock, servers_folder


@pytest.fixture(autouse=True)
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine.lock"
    monkeypatch.setenv(LOCK_VARIABLE, str(path))
    return path


def test_a_second_run_refuses_and_names_the_first() -> None:
    refused = pytest.raises(LockedError, match="--ctx 131072")
    with machine_lock("--ctx 131072"), refused, machine_lock("another"):
        pass


def test_a_second_run_waits_as_long_as_it_may() -> None:
    order: list[str] = []

    def second() -> None:
        with machine_lock("second", wait_s=60.0):
            order.append("second")

    waiting = threading.Thread(target=second)
    with machine_lock("first"):
        waiting.start()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        order.append("first")
    waiting.join(timeout=60.0)
    assert order == ["first", "second"]


def test_the_lock_holds_though_a_full_disk_takes_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    refused = pytest.raises(LockedError, match="did not leave a note")
    with machine_lock("first"), refused, machine_lock("second"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_a_killed_run_holds_nothing_though_its_note_is_left(lock_file: Path) -> None:
    holder = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "from harness.machine.lock import machine_lock\n"
            "with machine_lock('gone'):\n print('held', flush=True)\n input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == b"held"
    with pytest.raises(LockedError, match=f"pid {holder.pid}"), machine_lock("me"):
        pass
    holder.kill()
    holder.communicate()
    assert lock_file.with_name("machine.lock.holder.json").is_file()
    with machine_lock("me"):
        pass


def test_servers_are_noted_beside_the_lock(lock_file: Path) -> None:
    assert servers_folder().parent == lock_file.parent
