"""What a server holds for the likeliest next tokens: by id, or by text where it tells no ids."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from harness.errors import ServerError
from harness.records.fidelity import TOP, Step
from harness.serving.shapes import shaped

if TYPE_CHECKING:
    from harness.serving.client import Client

_NEVER = -99.0
"""A log-probability for what a server calls impossible (it sends the least number it has)."""

Fingerprint = tuple[tuple[int | str, float], ...]
"""Token ids and their log probabilities, the likeliest first; empty where a server tells none.

Two configurations that must compute differently (a stretched RoPE, another cache type) and whose
fingerprints agree to the last digit compute the same: a flag had no effect.
"""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Candidate(_Shape):
    id: int | None = None
    token: str = ""
    logprob: float


class _Position(_Shape):
    top_logprobs: tuple[_Candidate, ...] = ()


class _Timings(_Shape):
    prompt_n: int = 0


class _Completion(_Shape):
    completion_probabilities: tuple[_Position, ...] = ()
    timings: _Timings = _Timings()


class _Logprobs(_Shape):
    content: tuple[_Position, ...] | None = None


class _Choice(_Shape):
    logprobs: _Logprobs | None = None


class _Chat(_Shape):
    choices: tuple[_Choice, ...] = ()


def fingerprint_of(client: "Client", text: str) -> Fingerprint:
    """What the server would say after `text`, read cold."""
    body = _asked(text, 1, reuse=False)
    answer = shaped(_Completion, client.post("/completion", body), "/completion's answer")
    first = next(iter(answer.completion_probabilities), _Position())
    return tuple((candidate.id or 0, candidate.logprob) for candidate in first.top_logprobs)


def native_steps(client: "Client", prompt: str, tokens: int) -> tuple[tuple[Step, ...], int]:
    """A distribution for each of `tokens` greedy tokens after `prompt`, and the tokens read anew.

    Raises:
        ServerError: it failed, or sent none.
    """
    body = _asked(prompt, tokens, reuse=True)
    answer = shaped(_Completion, client.post("/completion", body), "/completion's answer")
    return _steps(answer.completion_probabilities, "n_probs"), answer.timings.prompt_n


def chat_steps(client: "Client", text: str, tokens: int) -> tuple[Step, ...]:
    """The same of a chat server in reduced mode, after a message.

    Raises:
        ServerError: it failed, or sent none.
    """
    body = {
        "model": client.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": tokens,
        "logprobs": True,
        "top_logprobs": TOP,
    }
    answer = shaped(_Chat, client.post("/v1/chat/completions", body), "a chat completion")
    told = next((c.logprobs for c in answer.choices if c.logprobs is not None), _Logprobs())
    return _steps(told.content or (), "top_logprobs")


def _asked(prompt: str, tokens: int, *, reuse: bool) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "n_predict": tokens,
        "n_probs": TOP,
        "temperature": 0,
        "cache_prompt": reuse,
        "id_slot": 0,
    }


def _steps(positions: tuple[_Position, ...], field: str) -> tuple[Step, ...]:
    steps = tuple(
        tuple(
            (c.token if c.id is None else c.id, max(_NEVER, round(c.logprob, 5)))
            for c in position.top_logprobs
        )
        for position in positions
    )
    if not steps or not all(steps):
        raise ServerError(
            f"the server sends no log-probabilities though {field} asks for them; take a build or "
            "a server that does"
        )
    return steps
