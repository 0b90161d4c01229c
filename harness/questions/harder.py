"""Harder tests in one growing document: key-value pairs, chains of two hops, and counts.

Each rung of the ladder has `QUESTIONS` facts a task of its own, spread over the whole document up
to that rung, so that one reading of the longest document serves all rungs. Facts of other rungs
stand between them and look the same. After RULER's multi-key retrieval, variable tracing and
aggregation (Hsieh et al. 2024), worded for exact scoring.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from harness.questions.background import NATO_NAMES, digits
from harness.questions.haystack import Placed
from harness.questions.needles import COUNT_PREFIX, Ask, CodeSource, Needle, make_ask

Task = Literal["kv", "hops", "count"]
TASKS: tuple[Task, ...] = get_args(Task)

QUESTIONS = 8
"""Questions of a task at a rung, the control's not among them."""

QUESTIONS_PER_REQUEST = 4
LEAST_TOKENS = 2048
"""The shortest rung that has room for the facts of all tasks."""

_KINDS = ("PINE", "OAK", "BEECH", "MAPLE", "CEDAR", "BIRCH", "WALNUT", "EBONY")
_MOST_MORE = 3
_TOKENS_PER_OTHER = 1024
"""Of the document, for one pair (and half a chain) that is never asked for."""

_HEX = "0123456789ABCDEF"


@dataclass(frozen=True, slots=True)
class Fact(Needle):
    """A line of the document and the question it answers; the first hop of a chain has no code."""

    line: str = ""
    question: str = ""

    @property
    def text(self) -> str:
        """The line, newline-terminated."""
        return f"{self.line}\n"

    @property
    def wording(self) -> str:
        """What the question says after its number."""
        return self.question


@dataclass(frozen=True, slots=True)
class HarderPlan:
    """What to put where and what to ask: `planned` as `haystack.grow` takes it.

    `asked` has the facts to ask for by rung and task; a count's code is its number at that rung.
    """

    budgets: tuple[tuple[int, int], ...]
    planned: Mapping[int, tuple[Placed, ...]]
    asked: Mapping[tuple[int, Task], tuple[Fact, ...]]

    @property
    def facts(self) -> tuple[Needle, ...]:
        """All facts of the document."""
        return tuple(p.needle for placed in self.planned.values() for p in placed)

    def asks(self, depth: int, task: Task, codes: CodeSource, rng: random.Random) -> list[Ask]:
        """The requests of a task at a rung, each with a local control of its own."""
        facts = self.asked[depth, task]
        return [
            make_ask(facts[start : start + QUESTIONS_PER_REQUEST], codes, "shuffled", rng)
            for start in range(0, len(facts), QUESTIONS_PER_REQUEST)
        ]


def plan_harder(
    budgets: Sequence[tuple[int, int]],
    tasks: Sequence[Task],
    codes: CodeSource,
    rng: random.Random,
) -> HarderPlan:
    """Facts of `tasks` for every rung of `budgets`, pairs of (depth, document tokens), ascending.

    No two counts of a rung are equal, so that one kind's number is never right for another.
    """
    taken: set[str] = set()
    counts = dict.fromkeys(_KINDS, 0)
    planned: dict[int, tuple[Placed, ...]] = {}
    asked: dict[tuple[int, Task], tuple[Fact, ...]] = {}
    start = 0
    for depth, budget in budgets:
        placed: list[Placed] = []
        others = (budget - start) // _TOKENS_PER_OTHER
        if "kv" in tasks:
            pairs = [_pair(rng, codes, taken) for _ in range(QUESTIONS)]
            placed += _spread(rng, pairs, 0, budget)
            placed += _spread(rng, [_pair(rng, codes, taken) for _ in range(others)], start, budget)
            asked[depth, "kv"] = tuple(pairs)
        if "hops" in tasks:
            chains = [_chain(rng, codes, taken) for _ in range(QUESTIONS)]
            seals = [second for _, second in chains]
            more = [hop for _ in range(others // 2) for hop in _chain(rng, codes, taken)]
            placed += _spread(rng, rng.sample(more, len(more)), start, budget)
            placed += _spread(rng, [first for first, _ in chains], 0, budget)
            placed += _spread(rng, rng.sample(seals, len(seals)), 0, budget)
            asked[depth, "hops"] = tuple(seals)
        if "count" in tasks:
            before, counts = counts, _more(rng, counts)
            things = [
                _thing(rng, kind, taken)
                for kind in _KINDS
                for _ in range(counts[kind] - before[kind])
            ]
            placed += _spread(rng, rng.sample(things, len(things)), start, budget)
            asked[depth, "count"] = tuple(_count(kind, counts[kind]) for kind in _KINDS)
        planned[depth] = tuple(placed)
        start = budget
    return HarderPlan(tuple(budgets), planned, asked)


def sample_asks(tasks: Sequence[Task]) -> list[Ask]:
    """Requests of every task, for measuring; they are never sent."""
    rng = random.Random(0)
    codes = CodeSource(rng)
    plan = plan_harder([(LEAST_TOKENS, LEAST_TOKENS)], tasks, codes, rng)
    return [ask for task in tasks for ask in plan.asks(LEAST_TOKENS, task, codes, rng)]


def _spread(rng: random.Random, facts: Sequence[Needle], start: int, end: int) -> list[Placed]:
    """One fact in each of as many equal stretches of tokens `start` to `end`, anywhere in it."""
    step = (end - start) / max(1, len(facts))
    places = [start + int((index + rng.random()) * step) for index in range(len(facts))]
    return [Placed(f, at, at / end) for f, at in zip(facts, places, strict=True)]


def _pair(rng: random.Random, codes: CodeSource, taken: set[str]) -> Fact:
    key = _new(lambda: "".join(rng.choice(_HEX) for _ in range(8)), taken)
    code = codes.take("VAL")
    return Fact(
        f"key {key}",
        code,
        f"The value of key {key} is {code}.",
        f"What is the value of key {key}?",
    )


def _chain(rng: random.Random, codes: CodeSource, taken: set[str]) -> tuple[Fact, Fact]:
    """A crate that names a seal, and the seal with its code, which is what is asked for."""
    crate = _new(lambda: f"{rng.choice(NATO_NAMES)}-{digits(rng, 2)}", taken)
    seal = _new(lambda: f"S{digits(rng, 5)}", taken)
    code = codes.take("HOP")
    return (
        Fact(f"crate {crate}", "", f"Crate {crate} carries seal {seal}."),
        Fact(
            f"crate {crate} seal {seal}",
            code,
            f"The code of seal {seal} is {code}.",
            f"What is the code of the seal that crate {crate} carries?",
        ),
    )


def _thing(rng: random.Random, kind: str, taken: set[str]) -> Fact:
    number = _new(lambda: digits(rng, 5), taken)
    return Fact(f"{kind} barrel {number}", "", f"Item {number}: one barrel of {kind}.")


def _count(kind: str, number: int) -> Fact:
    return Fact(
        f"barrels of {kind}",
        f"{COUNT_PREFIX}-{number}",
        question=f"How many barrels of {kind} are listed, written as {COUNT_PREFIX}-n?",
    )


def _more(rng: random.Random, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts after another rung, none smaller than before and no two equal."""
    if not any(counts.values()):
        first = rng.sample(range(1, len(counts) + 1), len(counts))
        return dict(zip(counts, first, strict=True))
    while True:
        new = {kind: count + rng.randint(0, _MOST_MORE) for kind, count in counts.items()}
        if len(set(new.values())) == len(new) and new != counts:
            return new


def _new(draw: Callable[[], str], taken: set[str]) -> str:
    while (name := draw()) in taken:
        pass
    taken.add(name)
    return name
