"""Text as a user types it, split into words as the system's own shell would."""

import re
import shlex
import sys
from collections.abc import Iterator

from harness.errors import SetupError

_WINDOWS_PIECE = re.compile(
    r"""(?P<space>\s+)
    | (?<![^\s=]) (?: "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>[^']*)' | (?P<unclosed>["']) )
    | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Quotes count at the beginning of a word and after `=`: `O'Brien` and bare JSON keep theirs."""


def split_arguments(text: str, option: str, platform: str = sys.platform) -> list[str]:
    """The words of `text`. On Windows backslashes are part of paths, as they are to its programs.

    Raises:
        SetupError: a quote is not closed.
    """
    try:
        return list(_windows_words(text)) if platform == "win32" else shlex.split(text)
    except ValueError as error:
        raise SetupError(f"{option} {text!r}: {error}; check its quotes") from error


def _windows_words(text: str) -> Iterator[str]:
    word: str | None = None
    for piece in _WINDOWS_PIECE.finditer(text):
        if piece["unclosed"]:
            raise ValueError("No closing quotation")
        if piece["space"] is None:
            word = (word or "") + _meant(piece)
        elif word is not None:
            yield word
            word = None
    if word is not None:
        yield word


def _meant(piece: re.Match[str]) -> str:
    if piece["double"] is None:
        return piece["single"] if piece["single"] is not None else piece["plain"]
    # Only before a quote do backslashes escape (CommandLineToArgvW): each pair of them is one.
    return re.sub(r'(\\+)("|$)', lambda m: "\\" * (len(m[1]) // 2) + m[2], piece["double"])
