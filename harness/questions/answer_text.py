"""The text of an answer: what is visible of it, and the question ids and codes that stand in it.

Decoration is undone here, and only decoration: marks of emphasis, full-width forms, invisible
characters, escapes. Whatever would alter a code when undone (a mark between two digits) stays, so
that the code around it is read as another code.
"""

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

_HIDDEN = re.compile(
    r"(?is)<(think|thinking|reasoning|seed:think)>.*?(?:</\1>|\Z)|\[THINK\].*?(?:\[/THINK\]|\Z)"
    r"|◁think▷.*?(?:◁/think▷|\Z)"
    # gpt-oss: what is not in the channel `final` is not the answer; marks themselves are no text.
    r"|<\|channel\|>\s*(?:analysis|commentary)\b.*?(?=<\|channel\|>\s*final\b|\Z)"
    r"|(?:<\|(?:start|channel|message|end|return|constrain)\|>(?:assistant|final)?\s*)+"
)
_HIDDEN_HEAD = re.compile(
    r"(?is)\A.*(?:</(?:think|thinking|reasoning|seed:think)>|\[/THINK\]|◁/think▷)"
)
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
_DASHES = frozenset("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63")
_UNFOLDED = ("<super>", "<sub>", "<circle>", "<fraction>", "<square>")
_ESCAPABLE = frozenset("*_`-=.:#|()[]{}~<>")
_INLINE_TAG = re.compile(r"</?(?:B|STRONG|I|EM|CODE|TT|SPAN)(?: [^<>]{0,60})?>")
_BLOCK_TAG = re.compile(r"</?(?:BR|P|LI|UL|OL|TD|TR|TH)(?: [^<>]{0,60})?/?>")
_ESCAPED_NEWLINE = re.compile(r"\\n(?![a-z])")
_LONG_VOWEL_AS_DASH = re.compile(r"(?<=[A-Z])\u30fc(?=[0-9])")
# A word character, except those of scripts that are written without spaces around a code.
_W = r"[^\W\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
_MARKS = re.compile(r"[*_`]+")
_WORD = re.compile(_W)
_TAIL = rf"{_W}+(?:(?:-|[*`]+|[.,'](?=\d)){_W}+)*"
_ID = (
    # An answer may count as its question does (`A1:`, `Answer 1.`), Japanese puts 第 before it.
    r"(?<!\w)(?:ANSWER|ANS|A|回答|解答|答え?)[ \t]*(?P<answer>[0-9]{1,4})"
    r"(?=[ \t]*[*_`]*[:=.)|、。])"
    r"|第[ \t]*(?P<ordinal>[0-9]{1,4})[ \t]*(?:問題?|設問|の?質問)"
    r"|(?:QUESTION|Q|\u8cea\u554f|\u8a2d\u554f|\u554f\u984c|\u554f)[ \t]*(?:NO\.?|[.#])?[ \t]*"
    rf"(?P<number>[0-9]{{1,4}})(?!{_W}|[.,-][0-9]|[*`]+{_W})"
)
_SHAPE = re.compile(r"([A-Z]{1,12})-([A-Z0-9]*[0-9][A-Z0-9]*)", re.ASCII)
_AFTER_PREFIX = re.compile(rf"[0-9]|[- ]{_W}*[0-9]", re.ASCII)
_BARE = re.compile(r"[0-9]{4,}", re.ASCII)
_FREE_PREFIX_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Folded:
    """Text after folding, with the place each character came from."""

    text: str
    source: str
    offsets: tuple[int, ...]

    def quote(self, start: int, end: int, limit: int = 80) -> str:
        """The bit of the answer, as written, that folded characters `start..end` came from."""
        if start >= end:
            return ""
        raw = self.source[self.offsets[start] : self.offsets[end - 1] + 1]
        return raw if len(raw) <= limit else raw[: limit // 2 - 1] + " … " + raw[-limit // 2 + 2 :]


@dataclass(frozen=True, slots=True)
class Token:
    """An id or a code in the folded text, at characters `start..end`.

    `bare` is a number of four digits or more without a prefix; `number` is an id's, else `None`.
    """

    kind: Literal["id", "code", "bare"]
    text: str
    start: int
    end: int
    number: int | None = None


def visible(answer: str) -> str:
    """`answer` with reasoning that was left in it (`<think>` blocks, closed or not) blanked out.

    Characters keep their places: blanks replace what is hidden.
    """

    def blank(match: re.Match[str]) -> str:
        return " " * len(match.group())

    return _HIDDEN_HEAD.sub(blank, _HIDDEN.sub(blank, answer))


def fold(text: str) -> Folded:
    """Undo decoration: full-width forms, dashes, emphasis and inline tags; upper case.

    Superscripts, circled digits and the like stay as they are: they are not the code's digits.
    """
    kept: list[str] = []
    offsets: list[int] = []
    unescaped = _ESCAPED_NEWLINE.sub(" \n", text)
    for index, char in enumerate(unescaped):
        if char in _INVISIBLE or (char == "\\" and unescaped[index + 1 : index + 2] in _ESCAPABLE):
            continue
        kept.append(_plain(char))
        offsets.append(index)
    folded = _LONG_VOWEL_AS_DASH.sub("-", "".join(kept))
    folded = _BLOCK_TAG.sub(lambda tag: "\n".rjust(len(tag.group())), folded)
    marked = _INLINE_TAG.sub(lambda tag: "*" * len(tag.group()), folded)
    plain = _MARKS.sub(lambda marks: _unmark(marks, marked), marked)
    return Folded(plain, text, tuple(offsets))


@lru_cache(maxsize=8192)
def _plain(char: str) -> str:
    if char in _DASHES:
        return "-"
    if not unicodedata.decomposition(char).startswith(_UNFOLDED):
        compatible = unicodedata.normalize("NFKC", char)
        char = compatible if len(compatible) == 1 else char
    upper = char.upper()
    return upper if len(upper) == 1 else char


def _unmark(marks: re.Match[str], text: str) -> str:
    before, after = text[: marks.start()][-1:], text[marks.end() :][:1]
    inside = _WORD.match(before) and _WORD.match(after)
    return marks.group() if inside else " " * len(marks.group())


@lru_cache(maxsize=64)
def _scanner(prefixes: frozenset[str]) -> re.Pattern[str]:
    known = "|".join(re.escape(p) for p in sorted(prefixes, key=len, reverse=True))
    spaced = rf"(?:{known})(?:[ \t]*-[ \t]*|[ \t])(?=[0-9]){_TAIL}|" if known else ""
    return re.compile(rf"{_ID}|(?P<word>{spaced}{_TAIL})")


def scan(text: str, expected: Collection[str], labels: Collection[str]) -> list[Token]:
    """Ids and codes of the folded `text`, in order.

    A code is one of `expected`, or has a code's shape: a prefix that `expected` has and digits, or
    any prefix and four digits or more. Words of `labels` are names, never codes.
    """
    prefixes = frozenset(code.rpartition("-")[0] for code in expected) - {""}
    names = {word for label in labels for word in fold(label).text.split()}
    tokens: list[Token] = []
    for match in _scanner(prefixes).finditer(text):
        start, end = match.span()
        number = match["number"] or match["answer"] or match["ordinal"]
        if number is not None:
            tokens.append(Token("id", match.group(), start, end, int(number)))
            continue
        word = re.sub(r"[ \t]*-[ \t]*", "-", match.group("word"))
        if _is_code(word, prefixes, expected, names):
            tokens.append(Token("code", word, start, end))
        elif _BARE.fullmatch(word):
            tokens.append(Token("bare", word, start, end))
    return tokens


def _is_code(
    word: str, prefixes: frozenset[str], expected: Collection[str], names: Collection[str]
) -> bool:
    if word in expected:
        return True
    if word in names:
        return False
    rests = [word[len(p) :] for p in prefixes if word.startswith(p)]
    if any(_AFTER_PREFIX.match(rest) for rest in rests):
        return True
    shape = _SHAPE.fullmatch(word)
    return shape is not None and sum(c.isdigit() for c in shape.group(2)) >= _FREE_PREFIX_DIGITS
