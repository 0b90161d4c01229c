"""The fingerprint of a server's output: its likeliest next tokens after a fixed text.

Two configurations that must compute differently (a stretched RoPE, another cache type) and whose
fingerprints agree to the last digit compute the same: a flag had no effect.
"""

from pydantic import BaseModel, ConfigDict

from harness.serving.client import Client
from harness.serving.shapes import shaped

_TOKENS = 10

Fingerprint = tuple[tuple[int, float], ...]
"""Token ids and their log probabilities, the likeliest first; empty where a server tells none."""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Candidate(_Shape):
    id: int
    logprob: float


class _Position(_Shape):
    top_logprobs: tuple[_Candidate, ...] = ()


class _Completion(_Shape):
    completion_probabilities: tuple[_Position, ...] = ()


def fingerprint_of(client: Client, text: str) -> Fingerprint:
    """What the server would say after `text`, read cold."""
    body = {
        "prompt": text,
        "n_predict": 1,
        "n_probs": _TOKENS,
        "temperature": 0,
        "cache_prompt": False,
        "id_slot": 0,
    }
    answer = shaped(_Completion, client.post("/completion", body), "/completion's answer")
    first = next(iter(answer.completion_probabilities), _Position())
    return tuple((candidate.id, candidate.logprob) for candidate in first.top_logprobs)
