"""A run's time: what is left of `--budget`, what the rest is forecast to take, when to stop."""

import time
from collections.abc import Callable, Sequence

from harness.errors import OverBudgetError, SetupError
from harness.llamacpp.cost import CostModel, Estimate, PrefillWatch, attention_ratio, guess
from harness.llamacpp.forecast import (
    Answering,
    RungForecast,
    RungWork,
    deepest_within,
    forecast,
    rung_works,
    spoken,
)
from harness.llamacpp.layers import active_parameters, model_layers
from harness.measuring.script import Script
from harness.quantities import duration
from harness.records.lines import Chunk, Plan
from harness.serving.gguf_file import GgufInfo
from harness.serving.wire import Exchange

DEFAULT_AGAIN_S = 120.0
PROBE_SHARE = 0.02
"""A probe may take this share of the budget, or of the first guess of the whole climb."""
PROBE_S = 2.0
"""A probe may always take so long: what a fast server reads in it shows where its curve bends."""


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
        max_repeats: int = 0,
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
        self._answering: Answering | None = None
        self._reached_tokens = 0
        works = rung_works(
            plan.depths,
            plan.document_tokens,
            repeats=plan.repeats,
            max_repeats=max_repeats,
            generate_tokens=plan.generate_tokens,
            again=again_s != 0.0,
        )
        self._works = [work for work in works if work.depth <= deepest]

    @property
    def left_s(self) -> float | None:
        """What is left, seconds; `None` without a limit."""
        return None if self.limit_s is None else self.limit_s - (self._clock() - self._started_s)

    # -- before the climb --------------------------------------------------------------------

    def learn(self, chunks: Sequence[Chunk], answering: Answering | None) -> None:
        """Take what short readings from token 0 and short generations have shown."""
        self._answering = answering
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
        fits = deepest_within(model, self._works[-1], left_s * 1e3, answering=self._answering)
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
        return forecast(model, works, answering=self._answering, from_tokens=self._reached_tokens)


def probe_tokens(
    short_tok_s: float, document_tokens: int, *, limit_s: float | None, guess_s: float
) -> int:
    """How much text a probe may read: `PROBE_SHARE` of the budget, or of `guess_s` without one.

    Without a budget that needs every second it may take `PROBE_S` at least.
    """
    allowed_s = PROBE_SHARE * (guess_s if limit_s is None else limit_s)
    allowed_s = max(allowed_s, PROBE_S if limit_s is None else min(PROBE_S, limit_s / 10))
    return min(round(allowed_s * short_tok_s), document_tokens // 8)


PROBE_GENERATED = 32
PROBE_DEEPER = 1.5
"""Times deeper than what was read anyway: else a probe shows nothing new."""
MIN_PROBE_TOKENS = 1024
"""A shorter reading shows no curve."""


SAID_FROM_S = 20.0
"""A climb shorter than this needs no announcement."""


def attention_share(gguf: GgufInfo | None) -> float | None:
    """Attention's share of the arithmetic by the metadata (`llamacpp.cost.attention_ratio`)."""
    if gguf is None:
        return None
    active = active_parameters(gguf.metadata, gguf.parameters)
    return attention_ratio(model_layers(gguf.metadata), active)


def answering(warm: Exchange, deep: Exchange | None = None) -> Answering | None:
    """How long generated tokens take, by a generation at depth 0 and one behind a probe's text.

    `None` where the server does not tell.
    """
    token_ms = _token_ms(warm)
    if token_ms is None:
        return None
    if deep is None or (deep_ms := _token_ms(deep)) is None:
        return Answering(token_ms)
    return Answering(token_ms, deep.new_tokens or 0, deep_ms)


def probe(
    script: Script,
    warm: Exchange,
    *,
    deepest: int,
    budget_s: float | None,
    seen_tokens: int = 0,
) -> Exchange | None:
    """Read a plain text, cold, and generate a little behind it, for a forecast.

    As long as `probe_tokens` allows by the speed of `warm`; `None` where that is too short to show
    a curve, or not much deeper than the `seen_tokens` that were read already.
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
    if wanted < max(MIN_PROBE_TOKENS, PROBE_DEEPER * seen_tokens):
        return None
    text = script.filler("probe", wanted)
    return script.chat(text, max_tokens=PROBE_GENERATED, reuse=False, ignore_eos=True)


def _token_ms(exchange: Exchange) -> float | None:
    took_ms, tokens = (exchange.timings.get(n) for n in ("predicted_ms", "predicted_n"))
    return took_ms / tokens if took_ms and tokens else None


def sentence(budget: Budget) -> str | None:
    """The forecast in one line; `None` for a climb too short to speak of, or not to be told."""
    ahead = budget.forecast()
    if not ahead or ahead[-1].until.ms < SAID_FROM_S * 1e3:
        return None
    last = ahead[-1]
    return f"forecast: measured up to {last.depth} tokens in about {spoken(last.until)}"
