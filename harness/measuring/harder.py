"""Drives the harder tests: one document grows through the ladder's rungs and is asked at each.

Only questions are read anew. Each answer is scored as the ladder's are: strict on the complete
value, tolerant of decoration.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import SetupError
from harness.measuring.asking import Interview
from harness.questions.harder import Task, plan_harder, sample_asks
from harness.questions.haystack import Segment
from harness.questions.needles import CodeSource
from harness.records.probes import ProbeScore
from harness.verdicts.harder import score_name

_TAIL_MARGIN_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """A task at a rung: its score, its wrong answers by class, and requests that say little.

    `controls_failed` and `contaminated` count requests; `requests` is how many there were.
    """

    score: ProbeScore
    classes: Counter[str]
    requests: int
    controls_failed: int
    contaminated: int

    @property
    def sentence(self) -> str:
        """The score in words, with the classes of what was wrong."""
        wrong = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in self.classes.most_common())
        said = f"{self.score.name}: {self.score.right}/{self.score.asked} right"
        said += f" ({wrong})" if wrong else ""
        if self.controls_failed:
            said += f"; local control wrong in {self.controls_failed} of {self.requests} requests"
        return said


class HarderClimb:
    """The tasks of `--harder` on one server."""

    def __init__(self, interview: Interview) -> None:
        settings, script = interview.sitting.settings, interview.sitting.script
        assert settings.harder is not None
        self._interview = interview
        self._tasks = settings.harder
        self._rng = random.Random(f"harder/{settings.seed}")
        self._codes = CodeSource(random.Random(f"harder codes/{settings.seed}"))
        tail = max(script.tail_tokens(ask) for ask in sample_asks(self._tasks))
        wrapped = tail + _TAIL_MARGIN_TOKENS + script.head_tokens
        self.plan = plan_harder(
            [(depth, round(settings.fill * depth) - wrapped) for depth in settings.rung_depths],
            self._tasks,
            self._codes,
            self._rng,
        )
        try:
            self.segments = interview.grow(self.plan.budgets, self.plan.planned)
        except ValueError as error:
            raise SetupError(f"--harder {','.join(self._tasks)}: {error}") from error

    def run(self) -> Iterator[Asked]:
        """Read and ask, rung by rung, task by task.

        Raises:
            ServerError: the server failed on the way.
        """
        document = ""
        self._interview.begin_document(fact for fact in self.plan.facts if fact.code)
        for segment in self.segments:
            document += segment.text
            first = segment is self.segments[0]
            self._interview.read(document, segment.total_tokens, reuse=not first)
            for task in self._tasks:
                asked = self._ask(document, segment, task)
                self._interview.sitting.reporter.say(asked.sentence)
                yield asked

    def _ask(self, document: str, segment: Segment, task: Task) -> Asked:
        right = asked = failed = contaminated = 0
        classes: Counter[str] = Counter()
        requests = self.plan.asks(segment.depth, task, self._codes, self._rng)
        for request in requests:
            answered = self._interview.ask(document, segment.total_tokens, request)
            kinds = [f.kind for f in answered.diagnosis.findings if not f.is_control]
            right += kinds.count("right")
            asked += len(kinds)
            classes.update(kind for kind in kinds if kind != "right")
            failed += not answered.record.control_right
            contaminated += answered.diagnosis.contaminated
        score = ProbeScore(name=score_name(task, segment.depth), right=right, asked=asked)
        return Asked(score, classes, len(requests), failed, contaminated)
