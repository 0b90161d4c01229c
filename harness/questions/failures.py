"""Classes of failure: what is wrong with an answer, in one word, with the bits that show it.

An answer has one class. Whole-answer classes are tried first, in this order:

1. `foreign_code`: a code of an earlier request stands in it, even beside right answers: state
   leaked between requests (CONTAMINATED).
2. `right`: every question's complete code, the control's included.
3. `degenerate`: repeated characters or phrases, undecodable text; cut, without a code, and listing
   more questions that were not asked than were.
4. `repetition`: one code for more than half of the questions, or said more often than there are
   questions. Both before `budget`, because a larger budget would only give more of the same.
5. `budget`: the token budget ended the answer before every question had one.
6. `refusal_or_empty`: no code in it at all.

Otherwise it is what most of its wrong questions are; at a tie the earlier of `foreign_code` (a
needle that was not asked), `swapped`, `lost_mapping`, `digit_changed`, `wrong_prefix`, `conflict`,
`incomplete`. A whole code of which less than half agrees with any that was asked for is
`foreign_code`, too: another client's, or made up. Only when the control alone is wrong, by having
no answer, is it `control_failed`.

Apart from its class, an answer is invalid (says nothing of distant retrieval) when a budget cut it,
a foreign request's code is in it, or its control is wrong, however it is wrong: an answer can be
`wrong_prefix` *and* invalid by its control.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from operator import eq
from typing import Literal, get_args

from harness.questions.answer_text import visible
from harness.questions.degenerate import degeneration
from harness.questions.needles import Ask, Question
from harness.questions.scoring import Score, normalise

QuestionClass = Literal[
    "right",
    "foreign_code",
    "swapped",
    "lost_mapping",
    "digit_changed",
    "wrong_prefix",
    "conflict",
    "incomplete",
]
"""What one question's answer is; those after `right` in the order in which ties are broken."""

FailureClass = Literal[
    QuestionClass, "degenerate", "budget", "repetition", "refusal_or_empty", "control_failed"
]
InvalidReason = Literal["contaminated", "budget", "control_failed"]
ForeignOrigin = Literal["earlier_request", "unasked_needle"]

_TIE_ORDER: tuple[QuestionClass, ...] = get_args(QuestionClass)
_QUOTE_CHARS = 80
_ID = re.compile(r"\bQ ?(\d{1,4})\b")
_ALIKE = 0.8
_WHOLE_DIGITS = 4


@dataclass(frozen=True, slots=True)
class QuestionFinding:
    """What became of one question.

    `given` is `None` when no code went with its id; `quote` the bit of the answer, as written;
    `resembles` the number of the other question whose code was given, or cut or changed.
    """

    number: int
    is_control: bool
    kind: QuestionClass
    expected: str
    given: str | None
    quote: str | None
    note: str
    resembles: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The class of one answer, with evidence.

    `kind` is the one class; `invalid` lists why the answer says nothing of distant retrieval,
    empty when it counts; `findings` has one entry a question, in the order asked; `evidence` are
    bits of the answer, as written; `reason` is a sentence for reports.
    """

    kind: FailureClass
    invalid: tuple[InvalidReason, ...]
    findings: tuple[QuestionFinding, ...]
    evidence: tuple[str, ...]
    reason: str

    @property
    def contaminated(self) -> bool:
        """Whether a code of an earlier request was in the answer."""
        return "contaminated" in self.invalid

    @property
    def valid(self) -> bool:
        """Whether the answer may be counted, right or wrong."""
        return not self.invalid


def classify(
    ask: Ask,
    score: Score,
    answer: str,
    reasoning: str,
    finish_reason: str | None,
    foreign_codes: Mapping[str, ForeignOrigin],
) -> Diagnosis:
    """Classify `answer`, already scored as `score`.

    `foreign_codes` maps codes that this request did not ask for to where they belong: to an earlier
    request (its control, say) or to a needle of the document that was not asked. `reasoning` is
    never searched for answers; only its length is told when the answer is empty.
    """
    origins = {normalise(code): origin for code, origin in foreign_codes.items()}
    expected = {q.number: normalise(q.needle.code) for q in ask.questions}
    asked = set(expected.values())
    findings = tuple(_finding(q, expected, score, origins) for q in ask.questions)
    wrong = [f for f in findings if f.kind != "right"]
    leaked = [c for c in dict.fromkeys([*score.codes, *score.given.values()]) if c not in asked]
    leaked = [c for c in leaked if origins.get(c) == "earlier_request"]
    unanswered = [f for f in wrong if f.given is None or _unfinished(f, answer)]
    junk = degeneration(visible(answer)) if wrong else None
    if wrong and finish_reason == "length" and not score.codes:
        junk = junk or _ids_without_end(ask, answer)
    repeated, times = _most_repeated(expected, score) if wrong else (None, 0)
    endless = junk is not None or repeated is not None
    cut = finish_reason == "length" and bool(unanswered) and not endless

    invalid: list[InvalidReason] = []
    if leaked:
        invalid.append("contaminated")
    if cut:
        invalid.append("budget")
    controls = [f for f in wrong if f.is_control]
    if controls and not (cut and controls[0] in unanswered):
        invalid.append("control_failed")

    def diagnosis(kind: FailureClass, reason: str, *evidence: str | None) -> Diagnosis:
        bits = tuple(dict.fromkeys(bit for bit in evidence if bit))
        return Diagnosis(kind, tuple(invalid), findings, bits, reason)

    if leaked:
        text = f"{_listed(leaked)} of an earlier request in this answer: state leaked between them"
        return diagnosis("foreign_code", text, *_quotes(findings, leaked), *leaked)
    if not wrong:
        return diagnosis("right", "every question has its complete code")
    if junk is not None:
        return diagnosis("degenerate", f"the answer is no text: {junk}", junk, _head(answer))
    if repeated is not None:
        text = f"one code, {repeated}, {times} times: {_what_is(repeated, expected)}"
        return diagnosis("repetition", text, *_quotes(findings, [repeated]), repeated)
    if cut:
        return diagnosis("budget", _cut_reason(unanswered, reasoning), _end(answer))
    if not score.codes and not score.given:
        return diagnosis("refusal_or_empty", _empty_reason(answer, reasoning), _head(answer))
    if len(wrong) == 1 and wrong[0].is_control and wrong[0].kind == "incomplete":
        text = f"the control Q{wrong[0].number} has no answer; the needles' are right"
        return diagnosis("control_failed", text, _head(answer))
    counts = Counter(f.kind for f in wrong)
    kind = min(counts, key=lambda k: (-counts[k], _TIE_ORDER.index(k)))
    of_kind = [f for f in wrong if f.kind == kind]
    quotes = [f.quote for f in of_kind if f.quote]
    return diagnosis(kind, "; ".join(f.note for f in of_kind), *(quotes or [_head(answer)]))


def _finding(
    question: Question,
    expected: Mapping[int, str],
    score: Score,
    origins: Mapping[str, ForeignOrigin],
) -> QuestionFinding:
    number, right = question.number, expected[question.number]
    given = score.given.get(number)
    kind, note, resembles = _judge(number, given, expected, score, origins)
    quote = score.quotes.get(number)
    return QuestionFinding(
        number, question.is_control, kind, right, given, quote, f"Q{number}: {note}", resembles
    )


def _unfinished(finding: QuestionFinding, answer: str) -> bool:
    """Whether the answer ends within this question's code, so far right."""
    begun = finding.given or ""
    return finding.expected.startswith(begun) and normalise(answer).rstrip().endswith(begun)


def _judge(
    number: int,
    given: str | None,
    expected: Mapping[int, str],
    score: Score,
    origins: Mapping[str, ForeignOrigin],
) -> tuple[QuestionClass, str, int | None]:
    right = expected[number]
    if number in score.conflicts:
        return "conflict", f"{_listed(score.conflicts[number])} both given", None
    if given is None:
        if right in score.codes:
            return "lost_mapping", f"{right} is in the answer, but not under this id", None
        return "incomplete", f"no code given, {right} expected", None
    if given == right:
        return "right", given, None
    instead = f"{given} instead of {right}"
    others = {code: n for n, code in expected.items() if n != number}
    if given in others:
        return "swapped", f"{instead}: Q{others[given]}'s code", others[given]
    if given in origins:
        return "foreign_code", f"{instead}: a code of {origins[given].replace('_', ' ')}", None
    if _digits(given) == _digits(right):
        return "wrong_prefix", f"{instead}: digits right, prefix wrong or missing", None
    alike = _resembled(given, {number: right, **{n: code for code, n in others.items()}})
    if alike is None and not any(_half_alike(given, code) for code in expected.values()):
        return "foreign_code", f"{instead}: no code that was asked for or read here", None
    if alike is None or alike == number:
        how = "cut" if _digits(given) in _digits(right) else "changed"
        return "digit_changed", f"{instead}: digits {how}", None
    return "digit_changed", f"{instead}: Q{alike}'s code, cut or changed", alike


def _ids_without_end(ask: Ask, answer: str) -> str | None:
    """Ids of more questions that were not asked than of such as were; `None` when there are not."""
    asked = {q.number for q in ask.questions}
    found = {int(number) for number in _ID.findall(normalise(visible(answer)))} - asked
    if len(found) <= len(asked):
        return None
    return f"{len(found)} ids that were not asked, up to Q{max(found)}"


def _digits(code: str) -> str:
    return code.rpartition("-")[2].lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")


def _half_alike(given: str, code: str) -> bool:
    """Whether half of its digits stand as in `code`, or it may be cut, or it is a mere count."""
    one, other = _digits(given), _digits(code)
    short = len(one) != len(other) or len(one) < _WHOLE_DIGITS
    return short or 2 * sum(map(eq, one, other)) >= len(one)


def _resembled(given: str, codes: Mapping[int, str]) -> int | None:
    """The question whose code `given` is most like; the first of `codes` at a tie."""
    likeness = {
        n: SequenceMatcher(None, _digits(given), _digits(code), autojunk=False).ratio()
        for n, code in codes.items()
    }
    best = max(likeness, key=lambda n: likeness[n])
    return best if likeness[best] >= _ALIKE else None


def _most_repeated(expected: Mapping[int, str], score: Score) -> tuple[str | None, int]:
    """The code that is given or said too often, and how often; (None, 0) when none is.

    Too often: for more than half of the questions; more often than there are questions and than
    all other codes together; or three times and more as the only code, without any id.
    """
    given = Counter(code for number, code in score.given.items() if number in expected)
    said = Counter(score.codes)
    for code, times in given.most_common(1):
        if times > 1 and 2 * times > len(expected):
            return code, times
    for code, times in said.most_common(1):
        often = times > len(expected) and 2 * times > len(score.codes)
        if often or (not given and times == len(score.codes) > 2):
            return code, times
    return None, 0


def _what_is(code: str, expected: Mapping[int, str]) -> str:
    same = next((n for n, right in expected.items() if right == code), None)
    if same is not None:
        return f"Q{same}'s"
    alike = _resembled(code, expected)
    return "no question's" if alike is None else f"Q{alike}'s {expected[alike]}, cut or changed"


def _cut_reason(unanswered: Sequence[QuestionFinding], reasoning: str) -> str:
    numbers = ", ".join(f"Q{f.number}" for f in unanswered)
    thought = f" after {len(reasoning)} characters of reasoning" if reasoning.strip() else ""
    return f"the token budget ended the answer{thought} before {numbers}; ask with a larger one"


def _empty_reason(answer: str, reasoning: str) -> str:
    if visible(answer).strip():
        return "no code in the answer"
    if reasoning.strip() or answer.strip():
        return "an empty answer after reasoning"
    return "an empty answer"


def _listed(codes: Sequence[str]) -> str:
    return " and ".join(codes)


def _quotes(findings: Sequence[QuestionFinding], codes: Sequence[str]) -> list[str | None]:
    return [f.quote for f in findings if f.given in codes]


def _head(answer: str) -> str:
    text = visible(answer).strip()
    return text if len(text) <= _QUOTE_CHARS else text[: _QUOTE_CHARS - 1] + "…"


def _end(answer: str) -> str:
    text = visible(answer).strip()
    return text if len(text) <= _QUOTE_CHARS else "…" + text[1 - _QUOTE_CHARS :]
