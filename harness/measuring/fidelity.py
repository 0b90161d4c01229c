"""Looks at the numbers behind a rung's answers: one greedy trajectory and short continuations."""

import hashlib
import time

from harness.errors import ServerError
from harness.measuring.sitting import Sitting
from harness.questions.fidelity import continuations
from harness.records.fidelity import Numbers, Step
from harness.serving.fidelity import chat_steps, native_steps

TRAJECTORY_TOKENS = 64
LEAST_TOKENS = 16
LEAST = 3
"""Continuations that are always asked for where the document need not be read again."""
SHARE = 0.015
"""Of the time a rung took, what its trajectory may take, and again all of its numbers."""


def look(sitting: Sitting, depth: int, took_s: float, token_s: float) -> Numbers:
    """The numbers of the rung at `depth`, which took `took_s` so far and is in the KV cache.

    The trajectory answers the rung's questions, the same at each run of one seed, with as many
    tokens of `token_s` each as `SHARE` of the time allows. Continuations stop there, their order
    being fixed. A server that refuses has no numbers, and
    the reason is kept.

    Raises:
        ServerError: it died or hangs.
    """
    script, client = sitting.script, sitting.session.client
    document, began_s = script.document(depth), time.perf_counter()
    steps: list[tuple[Step, ...]] = []
    new_tokens, missing = 0, None
    length = max(LEAST_TOKENS, min(TRAJECTORY_TOKENS, int(SHARE * took_s / token_s)))
    trajectory = script.fixed_ask(depth).tail + script.end
    for number, tail in enumerate([trajectory, *continuations(document)]):
        spent_s = time.perf_counter() - began_s
        if number > (LEAST if script.native else 0) and spent_s > SHARE * took_s:
            break
        tokens = 1 if number else length
        sitting.session.check_alive("waiting for the next request")
        try:
            if script.native:
                told, read = native_steps(client, script.head + document + tail, tokens)
                new_tokens += read
            else:
                told = chat_steps(client, document + tail, tokens)
        except ServerError as error:
            if error.cause != "SERVER_ERROR":
                raise
            missing = str(error)
            break
        steps.append(told)
    prompt = script.head + document + trajectory
    return Numbers(
        prompt=hashlib.sha256(prompt.encode()).hexdigest()[:12],
        steps=() if missing else tuple(steps),
        missing=missing,
        new_tokens=new_tokens,
        wall_ms=(time.perf_counter() - began_s) * 1e3,
    )
