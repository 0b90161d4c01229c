"""Registers: what was last written to each of eight, which a model's recurrent state must hold.

The document writes registers again and again (`Let S= DELTA KILO`), and once forgets them all. The
question lists them. No value is written twice, so an older one tells how old the state is that
answered. One register is written right before the question: where that is wrong, too, the fault is
no matter of distance.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.questions.background import NATO_NAMES
from harness.questions.family import Diagnosis, FamilyAsk, Finding
from harness.questions.haystack import Placed, Segment
from harness.questions.needles import Needle

REGISTERS: tuple[str, ...] = tuple("STUVWXYZ")
EMPTY = "?"
QUESTION = "Print all registers."
ASKS = 2
CHUNK_TOKENS = 64
"""Kernels read a prompt of Gated DeltaNet in chunks of so many tokens."""

_WRITE_TOKENS = 7
"""Of a write, in the tokenizer of our models; its names are the fifth and the sixth."""
_INSIDE = (3, 4, 5)
"""How many of a write's tokens may stand before a boundary that cuts register from names."""
_BEGINNING = 0.15
"""Of the first rung, in which all registers are written and forgotten."""
_LAST: tuple[tuple[float, int | None], ...] = (
    (0.05, None),
    (0.35, None),
    (0.5, 0),
    (0.65, None),
    (0.8, CHUNK_TOKENS),
    (0.97, None),
)
"""Where in a rung's own stretch a register is written last, and across a multiple of what (0: of
the micro-batch).
"""
_OLDER = 3
_LINE = re.compile(r"^([S-Z])=\s*(\?|[A-Z]+(?: +[A-Z]+)?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Write(Needle):
    """A line that writes `code` to `register`; without a register it forgets all of them."""

    register: str = ""

    @property
    def text(self) -> str:
        """The line, newline-terminated."""
        return f"Let {self.register}= {self.code}\n" if self.register else "Forget all registers!\n"


FORGET = Write("forget", EMPTY)


class Values:
    """Two names at a time, no pair of them twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._taken: set[str] = set()

    def write(self, register: str) -> Write:
        """A new value for a register."""
        while (value := " ".join(self._rng.sample(NATO_NAMES, 2))) in self._taken:
            pass
        self._taken.add(value)
        return Write(f"register {register}", value, register)


class Registers:
    """Writes of every rung, and the question about them.

    One register stays empty after all are forgotten, one is never written again; the others are
    written anew in each rung, two of them across a boundary of chunks and of micro-batches.
    """

    def __init__(
        self,
        budgets: Sequence[tuple[int, int]],
        rng: random.Random,
        *,
        ubatch_tokens: int,
        head_tokens: int,
    ) -> None:
        self._steps = (ubatch_tokens, CHUNK_TOKENS)
        self._head_tokens = head_tokens
        self._rng = rng
        self._values = Values(rng)
        self.planned: dict[int, list[Placed]] = {}
        self.decoys: tuple[Placed, ...] = ()
        _empty, held, *busy = rng.sample(REGISTERS, len(REGISTERS))
        start = 0
        for depth, budget in budgets:
            writes = [] if start else _beginning(self._values, held, budget)
            rng.shuffle(busy)
            for register, (share, step) in zip(busy, _LAST, strict=True):
                begin = start or int(_BEGINNING * budget)
                writes += self._written(register, begin, budget, share, step)
            self.planned[depth] = writes
            start = budget

    def _written(
        self, register: str, begin: int, budget: int, share: float, step: int | None
    ) -> list[Placed]:
        """A register's writes between `begin` and `budget`, the last where it is to be."""
        at, exact = begin + int(share * (budget - begin)), False
        if step is not None:
            place = _across(at + self._head_tokens, step or self._steps[0], self._rng)
            place -= self._head_tokens
            if exact := begin < place < budget - _WRITE_TOKENS:
                at = place
        older = [
            self._rng.randint(begin, max(begin, at - 3 * _WRITE_TOKENS)) for _ in range(_OLDER)
        ]
        writes = [Placed(self._values.write(register), o, o / budget) for o in sorted(older)]
        return [*writes, Placed(self._values.write(register), at, at / budget, exact)]

    def asks(
        self, segments: Sequence[Segment], tokens_after: Callable[[str], int]
    ) -> list[FamilyAsk]:
        """All registers twice, each time with another one written right before the question."""
        del tokens_after
        writes = [p for segment in segments for p in segment.needles]
        writes.sort(key=lambda placed: placed.at_tokens)
        held = last_written(writes)
        end_tokens = segments[-1].total_tokens
        found = []
        # Never the newest of the document: that one tells a lost write from a stale state.
        for register in self._rng.sample(sorted(held, key=lambda r: held[r].at_tokens)[:-1], ASKS):
            near = self._values.write(register)
            read = partial(self._diagnose, near, writes, end_tokens)
            found.append(FamilyAsk(near.text + QUESTION, answer_of(held, near), read))
        return found

    def _diagnose(
        self, near: Write, writes: Sequence[Placed], end_tokens: int, answer: str
    ) -> Diagnosis:
        """What an answer says of the state, register by register.

        Where all wrong registers were written across a boundary and none other is wrong, it is
        `chunk_boundary`. Else a register's older value is `stale_state`, anything else
        `lost_state`.
        """
        said = dict(_LINE.findall(answer))
        held = last_written(writes)
        if not said:
            note = f"no register in the answer {answer[:80]!r}"
            none = [
                Finding(r, "unreadable", _value(held.get(r)), None, note)
                for r in REGISTERS
                if r != near.register
            ]
            return Diagnosis.of(none[:1], near_right=False)
        findings = [
            _finding(r, said.get(r), writes, held.get(r), end_tokens)
            for r in REGISTERS
            if r != near.register
        ]
        wrong = [f for f in findings if f.kind != "right"]
        across = {r: step for r, p in held.items() if (step := self._boundary(p))}
        if wrong and all(f.asked in across for f in wrong):
            first = min(held[f.asked].at_tokens for f in wrong)
            right = (held.get(f.asked) for f in findings if f.kind == "right")
            if any(p is not None and p.at_tokens > first for p in right):  # so it went on
                findings = [
                    f if f.kind == "right" else _at_boundary(f, across[f.asked]) for f in findings
                ]
        return Diagnosis.of(findings, near_right=said.get(near.register) == near.code)

    def _boundary(self, placed: Placed) -> int | None:
        """Of what a multiple falls between a write's register and its second name."""
        at = placed.at_tokens + self._head_tokens
        return next((s for s in self._steps for n in _INSIDE if (at + n) % s == 0), None)


def _at_boundary(finding: Finding, step: int) -> Finding:
    note = f"{finding.note}; written across a multiple of {step} tokens"
    return replace(finding, kind="chunk_boundary", note=note)


def _beginning(values: Values, held: str, budget: int) -> list[Placed]:
    """All registers written, all forgotten, and the one written that then stays as it is."""
    writes = [*map(values.write, REGISTERS), FORGET, values.write(held)]
    step = _BEGINNING * budget / len(writes)
    return [Placed(w, int(n * step), n * step / budget) for n, w in enumerate(writes)]


def _across(at: int, step: int, rng: random.Random) -> int:
    """The place nearest to `at` from which a write stands across a multiple of `step`."""
    return max(1, round(at / step)) * step - rng.choice(
        _INSIDE[:2]
    )  # a token early is still across


def last_written(writes: Sequence[Placed]) -> dict[str, Placed]:
    """What each register holds after `writes`, which are in order; empty ones are left out."""
    held: dict[str, Placed] = {}
    for placed in writes:
        write = placed.needle
        assert isinstance(write, Write)
        if write.register:
            held[write.register] = placed
        else:
            held = {}
    return held


def answer_of(held: Mapping[str, Placed], near: Write) -> str:
    """The perfect answer."""
    values = {r: _value(held.get(r)) for r in REGISTERS} | {near.register: near.code}
    return "\n".join(f"{r}={v if v == EMPTY else f' {v}'}" for r, v in values.items())


def _value(placed: Placed | None) -> str:
    return EMPTY if placed is None else placed.needle.code


def _finding(
    register: str,
    given: str | None,
    writes: Sequence[Placed],
    last: Placed | None,
    end_tokens: int,
) -> Finding:
    expected = _value(last)
    if given == expected:
        return Finding(register, "right", expected, given, "")
    own = [p for p in writes if isinstance(p.needle, Write) and p.needle.register == register]
    ago = {p.needle.code: (n, p) for n, p in enumerate(reversed(own))}
    if given in ago:
        number, placed = ago[given]
        back = end_tokens - placed.at_tokens
        which = f"{number} writes ago" if number else "before all were forgotten"
        note = f"register {register} answers what was written {which}, ~{back:,} tokens back"
        return Finding(register, "stale_state", expected, given, note)
    other = next(
        (p.needle for p in writes if given not in (None, EMPTY) and p.needle.code == given), None
    )
    far = "" if last is None else f" written {end_tokens - last.at_tokens:,} tokens back"
    what = "nothing" if given is None or given == EMPTY else repr(given)
    note = f"register {register} answers {what} for {expected!r}{far}"
    if other is not None:
        note += f": the value of {other.label}"
    return Finding(register, "lost_state", expected, given, note)
