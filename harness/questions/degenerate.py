"""Degenerate text: endless repeats of a character or phrase, or undecodable bytes, told by measure.

What an engine prints when its logits are broken ("//////", "the the the"), as opposed to a wrong
answer. Codes and ids that an answer lists are left out first: six like lines are no degeneration.
"""

import re
import zlib

_ANSWER_PARTS = re.compile(r"(?i)Q\s*\d{1,4}|[A-Z]{2,12}-\d+|[\s=:|,;.\"'{}()\[\]+*`-]")
_CODE = re.compile(r"(?i)[A-Z]{2,12}-\d{4,}")
_RUN = re.compile(r"(.)\1{11,}")
_LEAST_CHARS = 120
_LONGEST_PHRASE = 120
_COMPRESSED_SHARE = 0.2
"""Below this share of its size after zlib, text repeats itself; prose stays above 0.35."""
_BROKEN_SHARE = 0.2
_LEAST_BROKEN = 12


def degeneration(text: str) -> str | None:
    """What is degenerate about `text`, as a quotable bit with its count; `None` when nothing is.

    Three signs: runs of one character (12 or more) that make up half of the text; text of 120
    characters or more that zlib packs to less than a fifth; a fifth or more of U+FFFD and control
    characters.
    """
    rest = _ANSWER_PARTS.sub("", text) if _CODE.search(text) else " ".join(text.split())
    if not rest:
        return None
    runs = [match.group() for match in _RUN.finditer(rest)]
    if runs and 2 * sum(map(len, runs)) >= len(rest):
        longest = max(runs, key=len)
        return f"“{longest[0]}” × {len(longest)}"
    broken = sum(char == "\ufffd" or not (char.isprintable() or char.isspace()) for char in rest)
    if len(rest) >= _LEAST_BROKEN and broken >= _BROKEN_SHARE * len(rest):
        return f"{broken} of {len(rest)} characters are undecodable or control characters"
    data = rest.encode("utf-8", "surrogatepass")
    if len(rest) >= _LEAST_CHARS and len(zlib.compress(data, 9)) < _COMPRESSED_SHARE * len(data):
        return _phrase(rest)
    return None


def _phrase(text: str) -> str:
    """The shortest phrase the text ends in twice or more, with how often it does so in a row."""
    for size in range(1, min(_LONGEST_PHRASE, len(text) // 2) + 1):
        phrase = text[-size:]
        if text.endswith(phrase * 2):
            times = 2
            while text.endswith(phrase * (times + 1)):
                times += 1
            return f"“{phrase}” × {times}"
    return f"“{text[:40]}…”: {len(text)} characters that repeat themselves"
