"""Arguments as people type them, on Windows and elsewhere."""

import pytest

from harness.errors import SetupError
from harness.llamacpp.command_line import split_arguments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"-m C:\m\x.gguf -t 8", ["-m", r"C:\m\x.gguf", "-t", "8"]),
        (r'-m "C:\My Models\x.gguf"', ["-m", r"C:\My Models\x.gguf"]),
        (r'--model="C:\My Models\x.gguf"', [r"--model=C:\My Models\x.gguf"]),
        (r"-m 'C:\My Models\x.gguf'", ["-m", r"C:\My Models\x.gguf"]),
        (r"-m C:\O'Brien\x.gguf", ["-m", r"C:\O'Brien\x.gguf"]),
        (r'"\\srv\my share\x"', [r"\\srv\my share\x"]),
        (r'"C:\dir with blank\\" -t 1', ["C:\\dir with blank\\", "-t", "1"]),
        (r'--chat-template-kwargs "{\"a\":false}"', ["--chat-template-kwargs", '{"a":false}']),
        ('--chat-template-kwargs {"a":false}', ["--chat-template-kwargs", '{"a":false}']),
        ('a "" b', ["a", "", "b"]),
        ("", []),
    ],
)
def test_windows_own_rules_and_powershell_s_quotes(text: str, words: list[str]) -> None:
    assert split_arguments(text, "--server-args", "win32") == words


def test_elsewhere_the_shell_s() -> None:
    given = r"-m '/a b/x' -t\ 1"
    assert split_arguments(given, "--server-args", "linux") == ["-m", "/a b/x", "-t 1"]


@pytest.mark.parametrize("platform", ["win32", "linux"])
@pytest.mark.parametrize("text", ['-m "C:/a b', "-m 'x"])
def test_a_quote_that_is_not_closed_is_named_with_its_option(text: str, platform: str) -> None:
    with pytest.raises(SetupError, match=r"--pytest-args .*check its quotes"):
        split_arguments(text, "--pytest-args", platform)
