"""A run's time: what is left of `--budget`, what the rest is forecast to take, when to stop."""

import time
from collections.abc import Callable, Sequence

from harness.errors import OverBudgetError, SetupError
from harness.llamacpp.cost import CostModel, Estimate, PrefillWatch, attention_ratio, guess
from harness.llamacpp.forecast import (
    RungForecast,
    RungWork,
    deepest_within,
    duration,
    forecast,
    rung_works,
    spoken,
)
from harness.llamacpp.layers import active_parameters, model_layers
from harness.measuring.script import Script
from harness.records.lines import Chunk, Plan
from harness.serving.client import Client, Exchange
from harness.serving.gguf_file import GgufInfo

DEFAULT_AGAIN_S = 120.0
PROBE_SHARE = 0.02
"""A probe may take this share of the budget, or of the first guess of the whole climb."""


class Budget:
    """One run against its budget of `limit_s` seconds (`None`: no limit).

    `again_s` is what measuring again may take; `None`: what the budget leaves, or
    `DEFAULT_AGAIN_S` where there is none.
    """

    def __init__(
        self,
        plan: Plan,
        deepest: int,
        *,
        limit_s: float | None,
        again_s: float | None,
        ratio: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.limit_s = limit_s
        self.watch = PrefillWatch(ratio)
        if again_s is None and limit_s is None:
            again_s = DEFAULT_AGAIN_S
        self._again_s = again_s
        self._clock = clock
        self._started_s = clock()
        self._token_ms: float | None = None
        self._reached_tokens = 0
        works = rung_works(
            plan.depths,
            plan.document_tokens,
            repeats=plan.repeats,
            generate_tokens=plan.generate_tokens,
        )
        self._works = [work for work in works if work.depth <= deepest]

    @property
    def left_s(self) -> float | None:
        """What is left, seconds; `None` without a limit."""
        return None if self.limit_s is None else self.limit_s - (self._clock() - self._started_s)

    # -- before the climb --------------------------------------------------------------------

    def learn(self, chunks: Sequence[Chunk], token_ms: float | None) -> None:
        """Take what a short reading from token 0 and a short generation at depth 0 have shown."""
        self._token_ms = token_ms
        self.watch = PrefillWatch(self.watch.ratio, seen=chunks)

    def forecast(self) -> tuple[RungForecast, ...]:
        """When each rung still to be measured will be done; empty before anything was read."""
        model = self.watch.model
        return () if model is None else self._ahead(model)

    def refuse_hopeless(self) -> None:
        """Refuse a climb of which even the fast end of the forecast is beyond the budget.

        Raises:
            SetupError: it names the forecast and the depth that is expected to fit.
        """
        model, ahead, left_s = self.watch.model, self.forecast(), self.left_s
        if model is None or not ahead or left_s is None or self.limit_s is None:
            return
        whole = ahead[-1]
        if whole.until.low_ms <= left_s * 1e3:
            return
        fits = deepest_within(model, self._works[-1], left_s * 1e3, token_ms=self._token_ms)
        advice = (
            f"about {fits} tokens fit: lower --ctx (or --depths) to that, or raise --budget"
            if fits
            else "not even the shallowest rung fits; raise --budget"
        )
        raise SetupError(
            f"--budget {self.limit_s:g} ({duration(self.limit_s)}) is too short: the climb to "
            f"{whole.depth} tokens is forecast to take {spoken(whole.until)}; {advice}"
        )

    # -- during the climb --------------------------------------------------------------------

    def finished(self, depth: int) -> None:
        """The rungs up to `depth` need no more time."""
        self._works = [work for work in self._works if work.depth > depth]

    def reached(self, depth: int, tokens: int) -> None:
        """The rung at `depth` is measured, its document of `tokens` read."""
        self._reached_tokens = tokens
        self.finished(depth)

    def refuse_rung(self, depth: int, tokens: int) -> None:
        """Stop before a rung whose reading alone would pass the budget.

        Raises:
            OverBudgetError: the finished rungs count; this one is not tried.
        """
        model = self.watch.model
        if model is None or self._reached_tokens == 0:
            return
        ahead = model.predict_ms(self._reached_tokens, tokens).scaled(self.watch.slowdown)
        self._refuse(ahead, f"before the rung {depth}")

    def refuse_rest(self, end_tokens: int) -> None:
        """Stop a prefill whose rest, even at the fast end of its forecast, passes the budget.

        Raises:
            OverBudgetError: the pass ends here, the finished rungs count.
        """
        ahead = self.watch.remaining_ms(end_tokens)
        if ahead is not None:
            self._refuse(ahead, f"after {self.watch.reached_tokens} of {end_tokens} tokens")

    def _refuse(self, ahead: Estimate, where: str) -> None:
        left_s = self.left_s
        if left_s is None or self.limit_s is None or ahead.low_ms <= left_s * 1e3:
            return
        slow = self.watch.slowdown
        cause = f" at {slow:.0f} times its own curve" if slow > 1 else ""
        raise OverBudgetError(
            f"stopped {where}: the rest of its prefill is forecast to take {spoken(ahead)}{cause}, "
            f"and {duration(max(0.0, left_s))} are left of --budget {self.limit_s:g}"
        )

    # -- measuring again ---------------------------------------------------------------------

    def for_again_s(self) -> float:
        """Seconds that measuring again may take now, the rest of the climb set aside."""
        left_s, ahead = self.left_s, self.forecast()
        if left_s is None:
            return self._again_s or 0.0
        left_s -= ahead[-1].until.ms / 1e3 if ahead else 0.0
        return left_s if self._again_s is None else min(left_s, self._again_s)

    def spent_again(self, seconds: float) -> None:
        """Count what measuring again has taken."""
        if self._again_s is not None:
            self._again_s -= seconds

    def _ahead(self, model: CostModel) -> tuple[RungForecast, ...]:
        works: list[RungWork] = self._works
        return forecast(model, works, token_ms=self._token_ms, from_tokens=self._reached_tokens)


def probe_tokens(
    short_tok_s: float, document_tokens: int, *, limit_s: float | None, guess_s: float
) -> int:
    """How much text a probe may read: `PROBE_SHARE` of the budget, or of `guess_s` without one."""
    allowed_s = PROBE_SHARE * (guess_s if limit_s is None else limit_s)
    return min(round(allowed_s * short_tok_s), document_tokens // 8)


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
