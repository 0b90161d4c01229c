"""A server that is only pretended: it reads prompts, counts tokens by line, and answers by rule."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from harness.measuring.asking import Interview
from harness.measuring.script import Script
from harness.measuring.sitting import Sitting
from harness.questions.needles import Ask
from harness.records.lines import ProbeAsk
from harness.serving.session import Session
from harness.serving.wire import Exchange
from harness.settings import Settings

Rule = Callable[[str, bool], str]
"""The answer to a prompt, and whether that is read cold."""

_QUESTION = re.compile(r"^Q(\d+)(?:: (?P<en>.+) CODE\?|：(?P<ja>.+) のCODEを答える)$", re.MULTILINE)


def right(prompt: str, cold: bool) -> str:
    """Every question with the code that the prompt has for it."""
    return "\n".join(f"Q{n}={code}" for n, code in codes_asked(prompt).items())


def codes_asked(prompt: str) -> dict[int, str]:
    """The right code of each question of a prompt."""
    records = dict(re.findall(r"^<<< (.+) >>>\nCODE=(\S+)$", prompt, re.MULTILINE))
    return {int(m[1]): records[m["en"] or m["ja"]] for m in _QUESTION.finditer(prompt)}


def tokens_of(text: str) -> int:
    """One token for four characters of a line, and one for its end."""
    return sum(len(line) // 4 + 1 for line in text.splitlines())


@dataclass
class Pretended:
    """Client, session and script in one; `budgets` are the token budgets it was asked with."""

    rule: Rule = right
    finish_reason: str = "stop"
    budgets: list[int] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    asks: list[ProbeAsk] = field(default_factory=list)
    _cached: str = ""

    head = ""
    head_tokens = 0
    native = True

    def interview(self, settings: Settings) -> Interview:
        """A probe's talk with it."""
        session = SimpleNamespace(
            client=self, check_alive=lambda doing: None, identity=SimpleNamespace(n_ctx=10**6)
        )
        watching: Any = None
        sitting = Sitting(
            cast(Session, session),
            self.script,
            settings,
            cast(Any, self.asks.append),
            cast(Any, SimpleNamespace(say=lambda text: None)),
            watching,
            watching,
        )
        return Interview(sitting, "fuzz")

    @property
    def script(self) -> Script:
        return cast(Script, self)

    # -- what a script says

    def count(self, texts: Sequence[str]) -> list[int]:
        return [tokens_of(text) for text in texts]

    def tail_tokens(self, ask: Ask) -> int:
        return tokens_of(ask.tail)

    def foreign_codes(self, ask: Ask) -> dict[str, str]:
        return {}

    # -- what a client does

    def prefill(self, text: str, *, reuse: bool) -> Exchange:
        self.documents.append(text)
        return self._exchange(text, "", reuse)

    def chat(self, text: str, *, max_tokens: int, reuse: bool) -> Exchange:
        self.budgets.append(max_tokens)
        return self._exchange(text, self.rule(text, not reuse), reuse)

    def _exchange(self, text: str, answer: str, reuse: bool) -> Exchange:
        total, reused = tokens_of(text), 0
        if reuse:
            same = 0
            for old, new in zip(self._cached.splitlines(True), text.splitlines(True), strict=False):
                if old != new:
                    break
                same += len(new)
            reused = tokens_of(text[:same])
        self._cached = text
        return Exchange(
            content=answer,
            reasoning="",
            finish_reason=self.finish_reason,
            prompt_tokens=total,
            cached_tokens=reused,
            predicted_tokens=10,
            timings={"prompt_n": total - reused, "cache_n": reused, "predicted_ms": 1.0},
            progress=(),
            first_token_ms=1.0,
            token_event_ms=(1.0,),
            wall_ms=2.0,
            started_ns=0,
            ended_ns=10**6,
        )
