"""Hypothesis strategies for retrieval cases, and the settings profile they run under.

Everything shrinks towards the plainest case: few needles, asked in document order, plain names,
numbered 1, 2, 3 …, no distractors, English. So a failing case ends as the least that fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.strategies import SearchStrategy

from harness.questions.background import NATO_NAMES
from harness.questions.heatmap import MAX_QUESTIONS
from harness.questions.needles import (
    CODE_PREFIXES,
    DISTRACTOR_KINDS,
    LANGUAGES,
    LOCAL_CONTROL,
    MEMORY_TARGET,
    ORDERS,
    Ask,
    Language,
    Needle,
    Order,
    Question,
)

PROFILE = "harness"
_CODE_DIGITS = 6
_ALL_NUMBERS = 10**_CODE_DIGITS
_HIGHEST_NUMBER = 99
_HUNDREDTHS = 100
_SKIPPED = MAX_QUESTIONS
_NATO = len(NATO_NAMES)


def register_profiles(examples_dir: str = ".hypothesis/examples") -> None:
    """Register the profile "harness", the same everywhere, also where `CI` is set.

    No deadline (a server's speed is not under test here), random as always, failing examples kept
    in `examples_dir` and replayed first, and a line printed that reproduces a failure. Without the
    phase that varies a failing case hundreds of times more to explain it: the case says it all.
    """
    settings.register_profile(
        PROFILE,
        deadline=None,
        derandomize=False,
        print_blob=True,
        phases=[phase for phase in Phase if phase is not Phase.explain],
        database=DirectoryBasedExampleDatabase(examples_dir),
    )


@dataclass(frozen=True, slots=True)
class AskPlan:
    """Which of a document's needles to ask, in which order and under which numbers.

    `asked` are indices of needles in document order; the control's question stands at `control_at`
    among the questions; `numbers` has one number a question, the control's included.
    """

    asked: tuple[int, ...]
    control_at: int
    numbers: tuple[int, ...]
    language: Language = "en"

    @property
    def order(self) -> Order:
        """The order's name: shuffled unless the control is last and the rest monotonic."""
        if self.control_at == len(self.asked):
            if list(self.asked) == sorted(self.asked):
                return "forward"
            if list(self.asked) == sorted(self.asked, reverse=True):
                return "reversed"
        return "shuffled"

    def ask(self, needles: Sequence[Needle], control_code: str) -> Ask:
        """The request's tail for a document that holds `needles`."""
        control = Needle(LOCAL_CONTROL, control_code)
        subjects = [needles[index] for index in self.asked]
        subjects.insert(self.control_at, control)
        questions = tuple(
            Question(number, needle, needle is control, self.language)
            for number, needle in zip(self.numbers, subjects, strict=True)
        )
        return Ask(self.order, control, questions, self.language)


@dataclass(frozen=True, slots=True)
class Case:
    """A document's needles and distractors, where they stand, and what is asked of it.

    `shares` and `distractor_shares` are places as shares of the document, one for each record.
    """

    needles: tuple[Needle, ...]
    shares: tuple[float, ...]
    plan: AskPlan
    control_code: str
    distractors: tuple[Needle, ...] = ()
    distractor_shares: tuple[float, ...] = ()

    @property
    def ask(self) -> Ask:
        """The case's questions."""
        return self.plan.ask(self.needles, self.control_code)


@dataclass(frozen=True, slots=True)
class _PlanParts:
    """What a plan has whatever the number of questions, so that this can shrink by itself."""

    language: Language
    order: Order
    control_from_end: int
    numbers: tuple[int, ...]


# Each record is drawn as a few integers, one for each thing, whose least is the plainest: so the
# shrinker can leave a record out or make one plain without changing what the others are.
_Ranks = Sequence[int]
_NeedleDraft = tuple[int, int, int, int]
_DecoyDraft = tuple[int, int, int]
_PLAIN_NAMES = st.integers(0, _NATO - 1)
_NAMES = st.integers(0, 4 * _NATO - 1)
_NUMBERS = st.integers(0, 2 * _ALL_NUMBERS - 1)
_PLACES = st.integers(1, _HUNDREDTHS - 2)
_RANKS = st.integers(0, _SKIPPED)


def names(count: int, *, alike: bool = True) -> SearchStrategy[tuple[str, ...]]:
    """`count` distinct names: NATO names; with `alike` also such as begin like one (`ALPHA-07`)."""
    one = _NAMES if alike else _PLAIN_NAMES
    return st.lists(one, min_size=count, max_size=count).map(_distinct_names)


def code_numbers(count: int) -> SearchStrategy[tuple[str, ...]]:
    """The digits of `count` codes, all different; some rotations or near copies of the first."""
    return st.lists(_NUMBERS, min_size=count, max_size=count).map(_distinct_numbers)


def placements(count: int) -> SearchStrategy[tuple[float, ...]]:
    """Places of `count` records in document order, as ascending shares of the document."""
    return st.lists(_PLACES, min_size=count, max_size=count).map(
        lambda places: tuple(sorted(_distinct_shares(places)))
    )


def numberings(count: int) -> SearchStrategy[tuple[int, ...]]:
    """Numbers of `count` questions (8 at most): 1, 2, 3 ...; or any from 1 to 99, in any order."""
    return st.builds(
        lambda order, first: tuple(first + number for number in order[:count]),
        st.permutations(range(1, MAX_QUESTIONS + 1)),
        st.integers(0, _HIGHEST_NUMBER - MAX_QUESTIONS),
    )


def ask_plans(
    needles: int,
    *,
    max_questions: int = MAX_QUESTIONS,
    languages: Sequence[Language] = LANGUAGES,
    free_numbers: bool = True,
) -> SearchStrategy[AskPlan]:
    """Subset, order and numbering of the questions on a document of `needles` needles.

    The least subset is asked that fails, not all of the document's needles.
    """
    ranks = st.lists(
        st.tuples(st.booleans(), st.integers(0, _SKIPPED - 1)), min_size=needles, max_size=needles
    )
    return st.builds(
        _plan,
        _plan_parts(languages, free_numbers),
        # The last needle's part is drawn first: the shrinker clears the first drawn by preference.
        ranks.map(lambda drawn: [rank if asked else _SKIPPED for asked, rank in drawn[::-1]]),
        st.just(max_questions),
    )


def cases(
    *,
    max_needles: int = 12,
    max_distractors: int = 4,
    max_questions: int = MAX_QUESTIONS,
    languages: Sequence[Language] = LANGUAGES,
    alike: bool = True,
    free_numbers: bool = True,
) -> SearchStrategy[Case]:
    """Whole cases: needles with names, codes and places, distractors, and the questions."""
    needle = st.tuples(_RANKS, _NAMES if alike else _PLAIN_NAMES, _NUMBERS, _PLACES)
    labels = st.integers(0, len(DISTRACTOR_KINDS) * max_needles - 1)
    return st.builds(
        _case,
        _plan_parts(languages, free_numbers),
        st.integers(0, len(CODE_PREFIXES) - 1),
        st.lists(needle, min_size=1, max_size=max_needles),
        st.lists(st.tuples(labels, _NUMBERS, _PLACES), max_size=max_distractors),
        st.just(max_questions),
    )


def _case(
    parts: _PlanParts,
    prefix_step: int,
    drafts: Sequence[_NeedleDraft],
    decoys: Sequence[_DecoyDraft],
    max_questions: int,
) -> Case:
    shares = _distinct_shares([place for *_, place in drafts])
    placed = sorted(zip(shares, drafts, strict=True))
    labels = _distinct_names([name for _, (_, name, _, _) in placed])
    numbers = _distinct_numbers(
        [number for _, (_, _, number, _) in placed] + [number for _, number, _ in decoys] + [0]
    )
    codes = [
        f"{CODE_PREFIXES[index * prefix_step % len(CODE_PREFIXES)]}-{number}"
        for index, number in enumerate(numbers)
    ]
    needles = [
        Needle(f"{MEMORY_TARGET} {label}", code) for label, code in zip(labels, codes, strict=False)
    ]
    kinds = len(DISTRACTOR_KINDS)
    distractors = [
        Needle(f"{DISTRACTOR_KINDS[label % kinds]} {labels[label // kinds % len(labels)]}", code)
        for (label, _, _), code in zip(decoys, codes[len(needles) :], strict=False)
    ]
    return Case(
        tuple(needles),
        tuple(share for share, _ in placed),
        _plan(parts, [rank for _, (rank, *_) in placed], max_questions),
        f"CTL-{numbers[-1]}",
        tuple(distractors),
        tuple(_distinct_shares([place for *_, place in decoys])),
    )


def _plan_parts(languages: Sequence[Language], free_numbers: bool) -> SearchStrategy[_PlanParts]:
    plain = st.just(tuple(range(1, MAX_QUESTIONS + 1)))
    return st.builds(
        _PlanParts,
        st.sampled_from(list(languages)),
        st.sampled_from(ORDERS),
        st.integers(0, MAX_QUESTIONS - 1),
        plain | numberings(MAX_QUESTIONS) if free_numbers else plain,
    )


def _plan(parts: _PlanParts, ranks: _Ranks, max_questions: int) -> AskPlan:
    """Those to be asked, the least ranks if they are too many; the first when none is.

    Shuffled means by ascending rank, in document order at a tie.
    """
    chosen = [index for index, rank in enumerate(ranks) if rank != _SKIPPED] or [0]
    chosen = sorted(chosen, key=lambda index: ranks[index])[: max_questions - 1]
    if parts.order != "shuffled":
        chosen.sort(reverse=parts.order == "reversed")
    asked = tuple(chosen)
    control_at = max(0, len(asked) - parts.control_from_end)
    return AskPlan(asked, control_at, parts.numbers[: len(asked) + 1], parts.language)


def _distinct_names(drafts: Sequence[int]) -> tuple[str, ...]:
    """The plain name of each draft, or one that begins with it; the next free where it is taken."""
    taken: dict[str, None] = {}
    for draft in drafts:
        first = draft % _NATO
        candidates = [*NATO_NAMES[first:], *NATO_NAMES[:first]]
        if draft >= _NATO:
            second = 37 * draft
            candidates = [f"{NATO_NAMES[first]}-{(second + n) % 100:02d}" for n in range(100)]
        taken[next(name for name in candidates if name not in taken)] = None
    return tuple(taken)


def _distinct_numbers(drafts: Sequence[int]) -> tuple[str, ...]:
    """Digits of codes, the next free where they are taken; large drafts are kin of the first."""
    taken: dict[str, None] = {}
    for draft in drafts:
        number = draft % _ALL_NUMBERS
        if draft >= _ALL_NUMBERS and taken:
            kin = _kin(next(iter(taken)))
            number = int(kin[number % len(kin)])
        while (digits := f"{number:0{_CODE_DIGITS}d}") in taken:
            number = (number + 1) % _ALL_NUMBERS
        taken[digits] = None
    return tuple(taken)


def _kin(number: str) -> list[str]:
    """Rotations of a number, and copies with one digit changed."""
    turned = [number[n:] + number[:n] for n in range(1, len(number))]
    changed = [
        number[:n] + str((int(digit) + step) % 10) + number[n + 1 :]
        for n, digit in enumerate(number)
        for step in (1, 5, 9)
    ]
    return [*turned, *changed]


def _distinct_shares(places: Sequence[int]) -> list[float]:
    taken: dict[int, None] = {}
    for place in places:
        free = place
        while free in taken:
            free = free % (_HUNDREDTHS - 2) + 1
        taken[free] = None
    return [place / _HUNDREDTHS for place in taken]
