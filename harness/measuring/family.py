"""Asks a member of the family what only its special layer can answer, rung by rung.

A document grows through the ladder's rungs. Each is sent alone and then asked about, so that every
ask goes on from the state or window that the rung left. A wrong answer, and one at the deepest
rung, is asked for again cold: right when the document is read anew and wrong when it is reused
points at what was restored, not at the kernel.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from harness.errors import SetupError
from harness.measuring.asking import Interview
from harness.questions.family import END, HEAD, Diagnosis, FamilyAsk, FamilyPlan, Member
from harness.questions.registers import Registers
from harness.questions.window import Window
from harness.records.family import FamilyRung

ANSWER_TOKENS = 64
_TAIL_TOKENS = 200
_TOLD = 3


class FamilyClimb:
    """One member on one server, which serves it."""

    def __init__(self, interview: Interview, member: Member) -> None:
        sitting = interview.sitting
        settings, script = sitting.settings, sitting.script
        if (script.head, script.end) != (HEAD, END):
            raise SetupError(
                f"--reference {member.name}: the server wraps a message in {script.head!r} and "
                f"{script.end!r}, the model's own template in {HEAD!r} and {END!r}; leave "
                "--chat-template and its like out of the server's flags"
            )
        self._interview = interview
        self._tokens_after = partial(_tokens_after, interview)
        rng = random.Random(f"family/{member.name}/{settings.seed}")
        room = _TAIL_TOKENS + script.head_tokens
        budgets = [(d, round(settings.fill * d) - room) for d in settings.rung_depths]
        ubatch_tokens = int(sitting.session.identity.key.get("ubatch") or 512)
        self._plan = plan_of(
            member, budgets, rng, ubatch_tokens=ubatch_tokens, head_tokens=script.head_tokens
        )
        try:
            self.segments = interview.grow(budgets, self._plan.planned, self._plan.decoys)
        except ValueError as error:
            raise SetupError(f"--reference {member.name}: {error}") from error

    def run(self) -> Iterator[FamilyRung]:
        """Read and ask, rung by rung.

        Raises:
            ServerError: the server failed on the way.
        """
        document = ""
        for number, segment in enumerate(self.segments, 1):
            document += segment.text
            self._interview.read(document, segment.total_tokens, reuse=number > 1)
            asks = self._plan.asks(self.segments[:number], self._tokens_after)
            found = [self._ask(document, segment.depth, ask) for ask in asks]
            rung = _counted(segment.depth, found)
            wrong = [a for a, d in zip(asks, found, strict=True) if d.kind != "right"]
            if wrong or number == len(self.segments):
                again = (wrong or asks[-1:])[0]
                cold = _counted(0, [self._ask(document, segment.depth, again, cold=True)])
                counts = {"cold_right": cold.right, "cold_asked": cold.asked}
                rung = rung.model_copy(update=counts)
            yield rung

    def _ask(self, document: str, depth: int, ask: FamilyAsk, *, cold: bool = False) -> Diagnosis:
        """One request, answered, read and recorded."""
        answer = self._interview.say(document + ask.tail, ANSWER_TOKENS, cold=cold)
        found = ask.diagnose(answer)
        self._interview.sitting.event(
            "family_ask",
            found.reason or found.kind,
            depth=depth,
            cold=cold,
            failure_class=found.kind,
            tail=ask.tail,
            expected=ask.expected,
            answer=answer,
        )
        return found


def plan_of(
    member: Member,
    budgets: Sequence[tuple[int, int]],
    rng: random.Random,
    *,
    ubatch_tokens: int,
    head_tokens: int,
) -> FamilyPlan:
    """What a member's documents hold, and what is asked of them."""
    if member.kind == "registers":
        return Registers(budgets, rng, ubatch_tokens=ubatch_tokens, head_tokens=head_tokens)
    return Window(budgets, rng)


def _tokens_after(interview: Interview, text: str) -> int:
    sitting = interview.sitting
    return sitting.session.client.token_total(text + sitting.script.end)


def _counted(depth: int, found: Sequence[Diagnosis]) -> FamilyRung:
    """A rung's answers together."""
    findings = [f for one in found for f in one.findings]
    wrong = [f for f in findings if f.kind != "right"]
    near = [one.near_right for one in found if one.near_right is not None]
    return FamilyRung(
        depth=depth,
        right=len(findings) - len(wrong),
        asked=len(findings),
        near_right=sum(near),
        near_asked=len(near),
        classes=dict(Counter(f.kind for f in wrong)),
        said="; ".join(f.note for f in wrong[:_TOLD]),
    )
