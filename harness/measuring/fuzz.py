"""Fuzzes a live server with Hypothesis: order and subset of questions, and placement of needles.

Order and subset vary on one document that is read once, at the cost of a tail each; placement
varies at the cost of a short document each. On a model known to answer everything right the first
wrong answer is shrunk to the smallest case that fails, which is kept and replayed first by later
runs. On any other model nothing is shrunk: the share of right answers is the result.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NoReturn, TypeVar
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from harness.measuring.asking import Answered, Interview
from harness.questions.background import NATO_NAMES
from harness.questions.cases import PROFILE, AskPlan, Case, ask_plans, cases, register_profiles
from harness.questions.haystack import Placed, Segment
from harness.questions.needles import MEMORY_TARGET, Ask, CodeSource, Needle
from harness.records.probes import ProbeScore

QUESTION_NEEDLES = 12
"""Needles of the one document whose questions vary."""

_TAIL_MARGIN_TOKENS = 8
_ANSWER_CHARS = 300
Example = TypeVar("Example")


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What fuzzing one thing came to.

    `score` counts needle answers of the examples that were drawn, no two alike, shrinking and
    replays left out;
    `failure` is the smallest failing case in words, `None` when nothing failed or nothing was
    looked for.
    """

    score: ProbeScore
    examples: int
    failure: str | None = None
    replayed: bool = False


class _WrongAnswerError(Exception):
    """An example whose answer is wrong; Hypothesis shrinks it."""


class _Stopped(BaseException):
    """Something else than a wrong answer ended an example: not to be shrunk."""


class Fuzz:
    """Hypothesis against one server. `exact`: the model is known to answer everything right."""

    def __init__(
        self,
        interview: Interview,
        *,
        examples_dir: Path,
        exact: bool,
    ) -> None:
        self._interview = interview
        self._script = interview.sitting.script
        self._settings = interview.sitting.settings
        self._examples_dir = examples_dir
        self._exact = exact
        self._count = _Counted(self._script.count)
        self._depth = self._settings.fuzz_depth

    def questions(self, examples: int) -> Fuzzed:
        """Vary which needles are asked, in which order, language and numbering.

        Raises:
            ServerError: the server failed on the way.
        """
        codes = self._code_source("questions")
        needles = [
            Needle(f"{MEMORY_TARGET} {name}", codes.take("MEM"))
            for name in NATO_NAMES[:QUESTION_NEEDLES]
        ]
        shares = [(i + 0.5) / QUESTION_NEEDLES for i in range(QUESTION_NEEDLES)]
        segment = self._document(needles, shares, self._longest_tail(needles))
        self._interview.begin_document(needles)
        self._interview.read(segment.text, segment.total_tokens, reuse=False)

        def put(plan: AskPlan, cold: bool) -> tuple[Ask, Answered]:
            ask = plan.ask(needles, codes.take("CTL"))
            return ask, self._interview.ask(segment.text, segment.total_tokens, ask, cold=cold)

        def told(plan: AskPlan) -> str:
            return (
                f"asking {_listed_plan(plan, needles)} of a document of {segment.total_tokens} "
                "tokens that was read before"
            )

        return _Search(
            "questions", ask_plans(QUESTION_NEEDLES), put, told, self._exact, self._examples_dir
        ).run(examples, f"fuzz questions {self._depth}")

    def placements(self, examples: int) -> Fuzzed:
        """Vary the needles, their names and places, distractors and questions, each read anew.

        Raises:
            ServerError: the server failed on the way.
        """
        controls = self._code_source("placements")

        def put(case: Case, cold: bool) -> tuple[Ask, Answered]:
            del cold  # every placement is read cold
            needles, distractors = self._coded(case)
            ask = case.plan.ask(needles, controls.take("CTL"))
            tail = self._script.tail_tokens(ask) + _TAIL_MARGIN_TOKENS
            segment = self._document(
                needles,
                case.shares,
                tail,
                [
                    (needle, share)
                    for needle, share in zip(distractors, case.distractor_shares, strict=True)
                ],
            )
            self._interview.begin_document(needles)
            return ask, self._interview.ask(segment.text, segment.total_tokens, ask, cold=True)

        def told(case: Case) -> str:
            places = ", ".join(
                f"{_name(needle)} at {share:.0%}"
                for needle, share in zip(case.needles, case.shares, strict=True)
            )
            decoys = f" and {len(case.distractors)} distractor(s)" if case.distractors else ""
            return (
                f"a document of {self._depth} tokens with {places}{decoys}, asking "
                f"{_listed_plan(case.plan, case.needles)}"
            )

        return _Search("placements", cases(), put, told, self._exact, self._examples_dir).run(
            examples, f"fuzz placements {self._depth}"
        )

    def _coded(self, case: Case) -> tuple[list[Needle], list[Needle]]:
        """The case's records with codes of this run, so that no two requests share one.

        The same case has the same codes within a run: what is shrunk must not change underneath.
        """
        codes = self._code_source(repr(case))

        def coded(records: Sequence[Needle]) -> list[Needle]:
            return [Needle(r.label, codes.take(r.code.partition("-")[0])) for r in records]

        return coded(case.needles), coded(case.distractors)

    def _code_source(self, purpose: str) -> CodeSource:
        return CodeSource(random.Random(f"fuzz codes/{self._settings.seed}/{purpose}"))

    def _document(
        self,
        needles: Sequence[Needle],
        shares: Sequence[float],
        tail_tokens: int,
        distractors: Sequence[tuple[Needle, float]] = (),
    ) -> Segment:
        fill = self._settings.fill
        budget = round(fill * self._depth) - tail_tokens - self._script.head_tokens

        def placed(needle: Needle, share: float) -> Placed:
            return Placed(needle, int(share * budget), share)

        (segment,) = self._interview.grow(
            [(self._depth, budget)],
            {self._depth: [placed(n, s) for n, s in zip(needles, shares, strict=True)]},
            [placed(needle, share) for needle, share in distractors],
            count=self._count,
        )
        return segment

    def _longest_tail(self, needles: Sequence[Needle]) -> int:
        asked = tuple(range(7))
        plan = AskPlan(asked, len(asked), tuple(range(90, 98)))
        ask = plan.ask(needles, "CTL-000000")
        return self._script.tail_tokens(ask) + _TAIL_MARGIN_TOKENS


class _Search(Generic[Example]):
    """One property under Hypothesis: every answer is right."""

    def __init__(
        self,
        name: str,
        strategy: SearchStrategy[Example],
        put: Callable[[Example, bool], tuple[Ask, Answered]],
        told: Callable[[Example], str],
        exact: bool,
        examples_dir: Path,
    ) -> None:
        self._strategy = strategy
        self._put = put
        self._told = told
        self._exact = exact
        self._folder = examples_dir / name
        self._known: dict[Example, tuple[Ask, Answered]] = {}
        self._least: tuple[Example, Ask, Answered] | None = None
        self._counting = False
        self._right = self._asked = self._examples = 0

    def run(self, examples: int, name: str) -> Fuzzed:
        register_profiles(str(self._folder))
        failure, replayed = None, False
        if self._exact:
            failure = self._phase(examples, Phase.reuse)
            replayed = failure is not None
        if failure is None:
            self._counting = True
            failure = self._phase(examples, Phase.generate, Phase.shrink)
        score = ProbeScore(name=name, right=self._right, asked=self._asked)
        return Fuzzed(score, self._examples, failure, replayed)

    def _phase(self, examples: int, *phases: Phase) -> str | None:
        """Run some of Hypothesis' phases; the failure in words, if any."""
        profile = settings(
            settings.get_profile(PROFILE),
            max_examples=examples,
            phases=phases,
            database=DirectoryBasedExampleDatabase(self._folder),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )

        @profile
        @given(self._strategy)
        def every_answer_is_right(example: Example) -> None:
            self._check(example)

        try:
            every_answer_is_right()
        except SkipTest:  # no example is stored
            return None
        except (_WrongAnswerError, Flaky):
            return self._explained()
        except _Stopped as stopped:
            _raise_cause(stopped)
        return None

    def _check(self, example: Example) -> None:
        known = self._known.get(example)
        if known is not None and not self._is_wrong(known[1]):
            reject()  # nothing new: Hypothesis draws another instead
        try:
            ask, answered = known or self._put(example, False)
        except BaseException as error:
            raise _Stopped from error
        self._known[example] = ask, answered
        if self._counting:
            self._examples += 1
            self._right += answered.record.needles_right
            self._asked += answered.record.needles_asked
        if self._is_wrong(answered):
            self._counting = False
            self._least = example, ask, answered
            raise _WrongAnswerError

    def _is_wrong(self, answered: Answered) -> bool:
        """Whether it is to be shrunk: only a model that knows better can be wrong."""
        return self._exact and not answered.right

    def _explained(self) -> str:
        """The last failing example, which is the least, and what it says when asked again."""
        assert self._least is not None
        example, ask, answered = self._least
        again = [
            f"{how}: {found.diagnosis.kind.replace('_', ' ')}"
            for how, cold in (("asked again", False), ("read cold", True))
            for found in [self._put(example, cold)[1]]
        ]
        return (
            f"{answered.diagnosis.kind.replace('_', ' ')} when {self._told(example)}\n"
            f"{answered.diagnosis.reason}\n"
            f"answer: {answered.record.answer[:_ANSWER_CHARS]!r}\n"
            f"expected: {ask.answer!r}\n"
            f"{'; '.join(again)}"
        )


class _Counted:
    """Token counts that are asked of the server once a text."""

    def __init__(self, count: Callable[[Sequence[str]], Sequence[int]]) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, texts: Sequence[str]) -> list[int]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._count(new), strict=True))
        return [self._known[text] for text in texts]


def _listed_plan(plan: AskPlan, needles: Sequence[Needle]) -> str:
    """The questions in words, in the order asked."""
    names = [_name(needles[index]) for index in plan.asked]
    names.insert(plan.control_at, "control")
    numbers = (
        ""
        if plan.numbers[0] == 1 and list(plan.numbers) == sorted(plan.numbers)
        else (f" as Q{', Q'.join(map(str, plan.numbers))}")
    )
    language = "" if plan.language == "en" else " in Japanese"
    return f"{', '.join(names)}{numbers}{language}"


def _name(needle: Needle) -> str:
    return needle.label.removeprefix(f"{MEMORY_TARGET} ")


def _raise_cause(stopped: _Stopped) -> NoReturn:
    assert stopped.__cause__ is not None
    raise stopped.__cause__
