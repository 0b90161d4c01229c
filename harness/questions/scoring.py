"""Scoring answers: by question id and by complete code, never by wording.

The forms of an id: `Q3`, `Question 3`, `設問3`, `第3問`, `A3:`, `Answer 3:`. Where an answer has
none of these at all, numbers that begin its lines (`3) CODE`, `3. CODE`, `3: CODE`, `| 3 | CODE |`)
are ids too if they are those of all questions, in the order asked: then a list's own numbers would
be the same. Beside written ids, and otherwise, they are decoration.

The code that goes with an id stands after it on its line, before it when the line holds nothing
else, or on the next lines when the line is the id's alone. Two different codes for one id are a
conflict, and a conflict is not right.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from harness.questions.answer_text import Token, fold, scan, visible
from harness.questions.needles import COUNT_PREFIX, Ask

_SEPARATOR = re.compile(r"[^\w!≠~]*")
_COUNT_ALONE = re.compile(r"(?im)^(\W*Q\W*\d+\W*[=:]\W*?)(\d+)(?=[^\w\n]*(?:[^\W\d_]+[^\w\n]*)?$)")
_NOT_FIRST = re.compile(r"[^\W\d_]")
_DENIED = re.compile(
    r"\b(?:NOT|NEVER|NEITHER|NOR|CANNOT|UNLIKE|INCORRECT|WRONG)\b|N['’]T\b|!=|≠|\\NEQ?\b|~~|"
    r"<(?:S|DEL|STRIKE)>"
)
_DENIED_AFTER = re.compile(
    r"[\s\"'」』).]*(?:(?:では?|じゃ)(?:な|ありませ|無)|(?:IS|WAS)\s*(?:NOT|N['’]T|WRONG|INCORRECT))"
)
_LISTED = re.compile(r"(?m)^[ \t|>•-]*\(?([0-9]{1,4})[ \t]*[).:=|、。-]+[ \t|]*(?=[^\W_])")
_Mention = tuple[Token, Token]


@dataclass(frozen=True, slots=True)
class Score:
    """How one answer did.

    `given` maps question number to the code given for it (the first one where they conflict);
    `right_numbers` are the questions whose complete code is right, the control's apart in
    `control_right`; `codes_present` counts right codes of the asked needles that occur anywhere in
    the text. `conflicts` maps question number to all the different codes given for it, two or
    more; `codes` are all codes in the text, in order, repeats kept; `quotes` maps question number
    to the bit of the answer, as written, that was read as its answer.
    """

    given: Mapping[int, str]
    right_numbers: tuple[int, ...]
    asked: int
    codes_present: int
    control_right: bool
    conflicts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    quotes: Mapping[int, str] = field(default_factory=dict)

    @property
    def needles_right(self) -> int:
        """How many needle questions are right (the control's not counted)."""
        return len(self.right_numbers)

    @property
    def all_right(self) -> bool:
        """Whether every needle's question and the control's are right."""
        return self.control_right and self.needles_right == self.asked


def normalise(text: str) -> str:
    """`text` without decoration: ASCII forms, dashes as `-`, no emphasis, upper case.

    Marks are replaced by blanks, except between two letters or digits, where they stay.
    """
    return fold(text).text


def score(ask: Ask, answer: str) -> Score:
    """Score `answer` (its visible content; reasoning is never passed here).

    Reasoning that a server left inside the content, as `<think>` blocks, is not scored either.
    """
    shown = visible(answer)
    if any(q.needle.code.startswith(f"{COUNT_PREFIX}-") for q in ask.questions):
        shown = _COUNT_ALONE.sub(rf"\1{COUNT_PREFIX}-\2", shown)
    folded = fold(shown)
    expected = {q.number: normalise(q.needle.code) for q in ask.questions}
    labels = [q.needle.label for q in ask.questions]
    tokens = scan(folded.text, frozenset(expected.values()), labels)
    if not any(token.kind == "id" for token in tokens):
        tokens = _with_listed(folded.text, tokens, list(expected))
    given: dict[int, list[str]] = {}
    quotes: dict[int, str] = {}
    for ident, code in _mentions(folded.text, tokens):
        assert ident.number is not None
        codes = given.setdefault(ident.number, [])
        if code.text not in codes:
            codes.append(code.text)
            quote = folded.quote(min(ident.start, code.start), max(ident.end, code.end))
            earlier = quotes.get(ident.number)
            quotes[ident.number] = quote if earlier is None else f"{earlier} / {quote}"
    right = [q for q in ask.questions if given.get(q.number) == [expected[q.number]]]
    needles = [q for q in ask.questions if not q.is_control]
    seen = tuple(t.text for t in tokens if t.kind == "code")
    return Score(
        given={number: codes[0] for number, codes in given.items()},
        right_numbers=tuple(q.number for q in right if not q.is_control),
        asked=len(needles),
        codes_present=sum(expected[q.number] in seen for q in needles),
        control_right=all(q in right for q in ask.questions if q.is_control),
        conflicts={n: tuple(codes) for n, codes in given.items() if len(codes) > 1},
        codes=seen,
        quotes=quotes,
    )


def _with_listed(text: str, tokens: list[Token], asked: Sequence[int]) -> list[Token]:
    """`tokens` with the numbers that begin a line, as ids, where they can be nothing else."""
    codes = {token.start for token in tokens if token.kind == "code"}
    lines = list(_LISTED.finditer(text))
    if [int(line[1]) for line in lines] != list(asked):
        return tokens
    listed = [
        Token("id", line[1], line.start(1), line.end(1), int(line[1]))
        for line in lines
        if line.end() in codes
    ]
    return sorted([*tokens, *listed], key=lambda token: token.start)


def _mentions(text: str, tokens: Sequence[Token]) -> Iterator[_Mention]:
    """Each id with each code that is given for it."""
    rows = list(_rows(text, tokens))
    for at, (start, row) in enumerate(rows):
        idents = [i for i, token in enumerate(row) if token.kind == "id"]
        for i, following in pairwise([*idents, len(row)]):
            yield from _after(text, row[i], row[i + 1 : following])
        if len(idents) != 1:
            continue
        (i,) = idents
        if any(t.kind == "code" for t in row[i + 1 :]):
            continue
        if any(t.kind == "code" for t in row[:i]):
            yield from _before(text, row[i], row[:i])
        elif not _NOT_FIRST.search(text[start : row[i].start]):
            yield from _after(text, row[i], _until_next_id(rows, at + 1), on_its_line=False)


def _rows(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, list[Token]]]:
    """Tokens line by line, each line with the place where it starts; lines without any left out."""
    row: list[Token] = []
    row_start = 0
    for token in tokens:
        start = text.rfind("\n", 0, token.start) + 1
        if row and start != row_start:
            yield row_start, row
            row = []
        row_start = start
        row.append(token)
    if row:
        yield row_start, row


def _until_next_id(rows: Sequence[tuple[int, list[Token]]], first: int) -> list[Token]:
    found: list[Token] = []
    for _, row in (rows[at] for at in range(first, len(rows))):
        if any(token.kind == "id" for token in row):
            break
        found.extend(row)
    return found


def _after(
    text: str, ident: Token, tokens: Sequence[Token], *, on_its_line: bool = True
) -> Iterator[_Mention]:
    codes = [t for t in tokens if t.kind == "code"]
    if not codes and on_its_line:
        # A number without any prefix is an answer only where an answer must be.
        codes = [t for t in tokens[:1] if _SEPARATOR.fullmatch(text, ident.end, t.start)]
    cursor = ident.end
    for code in codes:
        if not _DENIED.search(text, cursor, code.start) and not _DENIED_AFTER.match(text, code.end):
            yield ident, code
        cursor = code.end


def _before(text: str, ident: Token, tokens: Sequence[Token]) -> Iterator[_Mention]:
    for code in (t for t in tokens if t.kind == "code"):
        if not _DENIED.search(text, code.end, ident.start):
            yield ident, code
