"""How a server ended, as its exit code tells it on each system."""

import pytest

from harness.serving.exit_code import ending


@pytest.mark.parametrize(
    ("code", "platform", "how", "step"),
    [
        (0xC0000005, "win32", "0xC0000005, access violation", "another build or driver"),
        (-1073741819, "win32", "0xC0000005, access violation", "another build or driver"),
        (0xC000001D, "win32", "0xC000001D, illegal instruction", "CPU instructions"),
        (0xC0000135, "win32", "0xC0000135, DLL not found", "Visual C++ Redistributable"),
        (0xC0000409, "win32", "0xC0000409, fail-fast", "report it with its log"),
        (-4, "linux", "signal 4, SIGILL", "CPU instructions"),
    ],
)
def test_what_a_code_tells_has_its_next_step(code: int, platform: str, how: str, step: str) -> None:
    ended = ending(code, platform)
    assert ended.how.startswith(how)
    assert step in (ended.next_step or "")


@pytest.mark.parametrize(
    ("code", "platform", "how"),
    [
        (1, "win32", "exit code 1"),
        (1, "linux", "exit code 1"),
        (-9, "linux", "signal 9"),
        (0xC0000374, "win32", "0xC0000374, a status of Windows"),
    ],
)
def test_other_codes_are_told_as_they_are(code: int, platform: str, how: str) -> None:
    assert (ending(code, platform).how, ending(code, platform).next_step) == (how, None)
