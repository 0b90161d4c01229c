"""Looking ahead before a climb: a short probe where needed, and the forecast in words."""

from harness.budget import Budget, probe_tokens
from harness.core.cost import attention_ratio, guess
from harness.core.forecast import spoken
from harness.core.layers import active_parameters, model_layers
from harness.script import Script
from harness.serving.client import Client, Exchange
from harness.serving.gguf_file import GgufInfo

MIN_PROBE_TOKENS = 1024
"""A shorter reading shows no curve."""
SAID_FROM_S = 20.0
"""A climb shorter than this needs no announcement."""


def attention_share(gguf: GgufInfo | None) -> float | None:
    """Attention's share of the arithmetic by the model's metadata (`core.cost.attention_ratio`)."""
    if gguf is None:
        return None
    active = active_parameters(gguf.metadata, gguf.parameters)
    return attention_ratio(model_layers(gguf.metadata), active)


def token_ms(warm: Exchange) -> float | None:
    """Time of one generated token at depth 0; `None` where the server does not tell."""
    took_ms, tokens = (warm.timings.get(name) for name in ("predicted_ms", "predicted_n"))
    return took_ms / tokens if took_ms and tokens else None


def probe(
    client: Client, script: Script, warm: Exchange, *, deepest: int, budget_s: float | None
) -> Exchange | None:
    """Read a short plain text, cold, for a forecast.

    As long as `PROBE_SHARE` of the budget (or of a first guess) allows, by the speed of `warm`;
    `None` where that is too short to show a curve.
    """
    took_ms = warm.timings.get("prompt_ms")
    if not took_ms or not warm.new_tokens:
        return None
    tok_s = warm.new_tokens / took_ms * 1e3
    wanted = probe_tokens(
        tok_s,
        script.plan.document_tokens[-1],
        limit_s=budget_s,
        guess_s=guess(tok_s, 0.0).predict_ms(0, deepest).ms / 1e3,
    )
    if wanted < MIN_PROBE_TOKENS:
        return None
    return client.prefill(script.filler("probe", wanted), reuse=False)


def sentence(budget: Budget) -> str | None:
    """The forecast in one line; `None` for a climb too short to speak of, or not to be told."""
    ahead = budget.forecast()
    if not ahead or ahead[-1].until.ms < SAID_FROM_S * 1e3:
        return None
    last = ahead[-1]
    return f"forecast: measured up to {last.depth} tokens in about {spoken(last.until)}"
