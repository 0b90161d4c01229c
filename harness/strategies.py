"""Hypothesis strategies for retrieval cases, and the settings profile they run under.

Everything shrinks towards the plainest case: few needles, asked in document order, plain names,
numbered 1, 2, 3 …, no distractors, English. So a failing case ends as the least that fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.strategies import SearchStrategy

from harness.core.background import NATO_NAMES
from harness.core.heatmap import MAX_QUESTIONS
from harness.core.needles import (
    CODE_PREFIXES,
    DISTRACTOR_KINDS,
    LANGUAGES,
    LOCAL_CONTROL,
    MEMORY_TARGET,
    Ask,
    Language,
    Needle,
    Order,
    Question,
)

PROFILE = "harness"
_CODE_DIGITS = 6
_HIGHEST_NUMBER = 99
_HUNDREDTHS = 100


def register_profiles(examples_dir: str = ".hypothesis/examples") -> None:
    """Register the profile "harness", the same everywhere, also where `CI` is set.

    No deadline (a server's speed is not under test here), random as always, failing examples kept
    in `examples_dir` and replayed first, and a line printed that reproduces a failure.
    """
    settings.register_profile(
        PROFILE,
        deadline=None,
        derandomize=False,
        print_blob=True,
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


def names(count: int, *, alike: bool = True) -> SearchStrategy[tuple[str, ...]]:
    """`count` distinct names: NATO names; with `alike` also such as begin like one (`ALPHA-07`)."""
    plain = st.sampled_from(NATO_NAMES)
    two_part = st.builds("{}-{:02d}".format, plain, st.integers(0, 99))
    one = st.one_of(plain, two_part) if alike else plain
    return st.lists(one, min_size=count, max_size=count, unique=True).map(tuple)


def code_numbers(count: int) -> SearchStrategy[tuple[str, ...]]:
    """The digits of `count` codes, all different: unrelated ones, or all close kin of one.

    Kin are rotations of a number and its neighbours that differ in one digit.
    """
    number = st.integers(0, 10**_CODE_DIGITS - 1).map(f"{{:0{_CODE_DIGITS}d}}".format)
    unrelated = st.lists(number, min_size=count, max_size=count, unique=True).map(tuple)
    kin = number.map(lambda first: _kin(first)[:count]).filter(lambda found: len(found) == count)
    return st.one_of(unrelated, kin)


def _kin(number: str) -> tuple[str, ...]:
    turned = [number[n:] + number[:n] for n in range(1, len(number))]
    changed = [
        number[:n] + str((int(digit) + step) % 10) + number[n + 1 :]
        for n, digit in enumerate(number)
        for step in (1, 5, 9)
    ]
    mixed = [kin for pair in zip(changed, [*turned, *changed], strict=False) for kin in pair]
    return tuple(dict.fromkeys([number, *mixed, *changed]))


def placements(count: int) -> SearchStrategy[tuple[float, ...]]:
    """Places of `count` records in document order, as ascending shares of the document."""
    hundredths = st.integers(1, _HUNDREDTHS - 2)
    return st.lists(hundredths, min_size=count, max_size=count, unique=True).map(
        lambda places: tuple(place / _HUNDREDTHS for place in sorted(places))
    )


@st.composite
def ask_plans(
    draw: st.DrawFn,
    needles: int,
    *,
    max_questions: int = MAX_QUESTIONS,
    languages: Sequence[Language] = LANGUAGES,
    free_numbers: bool = True,
) -> AskPlan:
    """Subset, order and numbering of the questions on a document of `needles` needles."""
    asked = draw(
        st.lists(
            st.integers(0, needles - 1),
            min_size=1,
            max_size=min(needles, max_questions - 1),
            unique=True,
        )
    )
    control_from_end = draw(st.integers(0, len(asked)))
    count = len(asked) + 1
    numbers = tuple(range(1, count + 1))
    if free_numbers and draw(st.booleans()):
        free = st.lists(
            st.integers(1, _HIGHEST_NUMBER), min_size=count, max_size=count, unique=True
        )
        numbers = tuple(draw(free))
    language = draw(st.sampled_from(list(languages)))
    return AskPlan(tuple(asked), len(asked) - control_from_end, numbers, language)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    max_needles: int = 12,
    max_distractors: int = 4,
    max_questions: int = MAX_QUESTIONS,
    languages: Sequence[Language] = LANGUAGES,
    alike: bool = True,
    free_numbers: bool = True,
) -> Case:
    """Whole cases: needles with names, codes and places, distractors, and the questions."""
    count = draw(st.integers(1, max_needles))
    distracting = draw(st.integers(0, max_distractors))
    numbers = iter(draw(code_numbers(count + distracting + 1)))
    prefixes = st.sampled_from(CODE_PREFIXES)
    needles = tuple(
        Needle(f"{MEMORY_TARGET} {name}", f"{draw(prefixes)}-{next(numbers)}")
        for name in draw(names(count, alike=alike))
    )
    control_code = f"CTL-{next(numbers)}"
    kinds = st.sampled_from(DISTRACTOR_KINDS)
    distractors = tuple(
        Needle(f"{draw(kinds)} {draw(st.sampled_from(needles)).label.split(' ')[-1]}", code)
        for code in (f"{draw(prefixes)}-{number}" for number in numbers)
    )
    return Case(
        needles,
        draw(placements(count)),
        draw(
            ask_plans(
                count,
                max_questions=max_questions,
                languages=languages,
                free_numbers=free_numbers,
            )
        ),
        control_code,
        distractors,
        draw(placements(distracting)),
    )
