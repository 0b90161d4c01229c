"""What an answer about registers says of the state that gave it."""

import random
from collections.abc import Sequence

import pytest

from harness.questions.family import Diagnosis
from harness.questions.haystack import Placed, Segment, grow
from harness.questions.registers import (
    CHUNK_TOKENS,
    EMPTY,
    FORGET,
    QUESTION,
    REGISTERS,
    Registers,
    Write,
    answer_of,
    last_written,
)

BUDGETS = [(2048, 1700), (8192, 7200)]
HEAD_TOKENS = 4
UBATCH_TOKENS = 512


def count(texts: Sequence[str]) -> list[int]:
    """As our tokenizer counts a write; a word of other text is one token."""
    return [7 if t.startswith("Let") else len(t.split()) + 1 for t in texts]


def no_count(text: str) -> int:
    raise AssertionError(text)


@pytest.fixture(scope="module", params=range(3))
def made(request: pytest.FixtureRequest) -> tuple[Registers, list[Segment]]:
    rng = random.Random(request.param)
    plan = Registers(BUDGETS, rng, ubatch_tokens=UBATCH_TOKENS, head_tokens=HEAD_TOKENS)
    return plan, grow(BUDGETS, plan.planned, count, seed=request.param, background="plain")


Made = tuple[Registers, list[Segment]]


def writes_of(segments: Sequence[Segment]) -> list[Placed]:
    return sorted((p for s in segments for p in s.needles), key=lambda p: p.at_tokens)


def near_of(tail: str) -> Write:
    line, rest = tail.split("\n")
    assert rest == QUESTION
    register, _, value = line.removeprefix("Let ").partition("= ")
    return Write(f"register {register}", value, register)


def asked(made: Made, answered_from: Sequence[Placed]) -> Diagnosis:
    """The diagnosis of the first ask by a model whose document held only these writes."""
    plan, segments = made
    ask = plan.asks(segments, no_count)[0]
    return ask.diagnose(answer_of(last_written(answered_from), near_of(ask.tail)))


def test_the_right_answer_is_right_at_every_rung(made: Made) -> None:
    plan, segments = made
    for rungs in (segments[:1], segments):
        for ask in plan.asks(rungs, no_count):
            found = ask.diagnose(ask.expected)
            assert (found.kind, found.near_right, len(found.findings)) == ("right", True, 7)
            assert ask.expected == answer_of(last_written(writes_of(rungs)), near_of(ask.tail))


def test_one_register_stays_empty_and_one_is_held_from_the_beginning(made: Made) -> None:
    writes = writes_of(made[1])
    held = last_written(writes)
    assert len(held) == len(REGISTERS) - 1
    first = min(held.values(), key=lambda p: p.at_tokens)
    assert first.at_tokens < 0.2 * BUDGETS[0][1]
    forgets = [p for p in writes if p.needle == FORGET]
    assert len(forgets) == 1
    assert {p.needle.label for p in writes[:8]} == {f"register {r}" for r in REGISTERS}
    assert forgets[0].at_tokens < first.at_tokens


def test_no_value_is_written_twice(made: Made) -> None:
    codes = [p.needle.code for p in writes_of(made[1]) if p.needle != FORGET]
    assert len(set(codes)) == len(codes)


def test_some_registers_are_written_across_boundaries(made: Made) -> None:
    for rungs in (made[1][:1], made[1]):
        places = [p.at_tokens + HEAD_TOKENS for p in last_written(writes_of(rungs)).values()]
        for step in (UBATCH_TOKENS, CHUNK_TOKENS):
            assert any((at + inside) % step == 0 for at in places for inside in (3, 4, 5)), step


def test_a_state_that_missed_the_last_writes_is_stale_and_says_how_old(made: Made) -> None:
    writes = writes_of(made[1])
    missed = [p for p in writes if p.at_tokens < 6000]
    found = asked(made, missed)
    assert found.kind == "stale_state"
    wrong = [f for f in found.findings if f.kind == "stale_state"]
    for finding in wrong:
        assert "writes ago" in finding.note
        old = next(p for p in reversed(missed) if p.needle.code == finding.given)
        assert f"~{made[1][1].total_tokens - old.at_tokens:,} tokens back" in finding.note


def test_a_state_that_forgot_nothing_is_stale(made: Made) -> None:
    found = asked(made, [p for p in writes_of(made[1]) if p.needle != FORGET])
    assert found.kind == "stale_state"
    assert "before all were forgotten" in found.reason


def test_an_empty_state_is_lost_though_the_near_register_is_right(made: Made) -> None:
    found = asked(made, [])
    assert (found.kind, found.near_right) == ("lost_state", True)
    assert sum(f.kind == "lost_state" for f in found.findings) >= 5


def test_another_registers_value_is_named(made: Made) -> None:
    plan, segments = made
    held = last_written(writes_of(segments))
    ask = plan.asks(segments, no_count)[0]
    near = near_of(ask.tail)
    one, two = [r for r in held if r != near.register][:2]
    swapped = {**held, one: held[two], two: held[one]}
    found = ask.diagnose(answer_of(swapped, near))
    assert found.kind == "lost_state"
    assert f"the value of register {two}" in found.reason


def test_writes_lost_only_across_boundaries_are_the_boundaries_fault(made: Made) -> None:
    writes = writes_of(made[1])
    across = [
        p
        for p in last_written(writes).values()
        if any((p.at_tokens + HEAD_TOKENS + n) % CHUNK_TOKENS == 0 for n in (3, 4, 5))
    ]
    found = asked(made, [p for p in writes if p not in across])
    assert found.kind == "chunk_boundary"
    assert "written across a multiple of" in found.reason


@pytest.mark.parametrize("answer", ["", "The river was near.", "S ALPHA\n"])
def test_no_list_of_registers_is_unreadable(made: Made, answer: str) -> None:
    ask = made[0].asks(made[1], no_count)[0]
    found = ask.diagnose(answer)
    assert (found.kind, found.near_right) == ("unreadable", False)


def test_half_a_value_is_no_value(made: Made) -> None:
    ask = made[0].asks(made[1], no_count)[0]
    value = next(line for line in ask.expected.split("\n") if EMPTY not in line)
    found = ask.diagnose(ask.expected.replace(value, value.rpartition(" ")[0]))
    wrong = [f for f in found.findings if f.kind != "right"] or found.near_right is False
    assert wrong
