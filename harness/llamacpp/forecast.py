"""How long a ladder takes: its prefills by a cost model, its answers by a rate, rung by rung."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.llamacpp.cost import CostModel, Estimate
from harness.quantities import duration

GENERATION_S = 1.0
"""A fast server repeats its generation until it has generated for so long in all."""
ANSWER_TOKENS = 80
"""About what five codes and the local control take to answer."""
ASKS = 3
MOST_ASKS = 9
REST_MS = 300.0
"""Of each rung, so that the machine's counters cover its last request."""
REQUEST_MS = 12.0
TOKENISED_MS = 1.1e-3
"""Of each token of each prompt, cached or not: sent, tokenised, compared (0.9 to 1.4 µs seen)."""
TOKENISED_FACTOR = 2.0
GENERATION_PER_PREFILL = 15.0
"""One token's attention while generating against the same while reading, where a batch shares its
reads of the cache: 17 to 54 on a GPU, 2 to 10 on CPUs. Its spread is as large as itself."""
MEASURED_SPREAD = 0.1
"""Deviation of one short generation's speed."""
SIGMAS = 1.645
"""Deviations of a 90 % interval."""


@dataclass(frozen=True, slots=True)
class RungForecast:
    """Time until the rung at `depth` is measured, from where the forecast starts, milliseconds."""

    depth: int
    until: Estimate


@dataclass(frozen=True, slots=True)
class RungWork:
    """What is left to do at one rung: its document's end, three questions, and generations.

    A fast server generates more often than `repeats` (`repeats_made`); what a baseline leaves
    undecided is generated and asked again, up to `max_repeats` and `MOST_ASKS`, if `again`.
    """

    depth: int
    document_tokens: int
    generate_tokens: int = 0
    repeats: int = 0
    max_repeats: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answering:
    """How long a generated token takes: `token_ms` at depth 0, `deep_ms` behind `deep_tokens`.

    `deep_ms` is `None` where no generation at depth was seen.
    """

    token_ms: float
    deep_tokens: int = 0
    deep_ms: float | None = None

    def at(self, depth_tokens: int, attention_ms: float) -> Estimate:
        """One token behind `depth_tokens`, its growth weighed between what was seen and what the
        reading's `attention_ms` (a token and token before it) lets expect.
        """
        slope = spread = GENERATION_PER_PREFILL * attention_ms
        if self.deep_ms is not None and self.deep_tokens > 0:
            seen = max(0.0, self.deep_ms - self.token_ms) / self.deep_tokens
            error = MEASURED_SPREAD * math.hypot(self.deep_ms, self.token_ms) / self.deep_tokens
            error = math.hypot(error, 0.25 * seen)  # what lies beyond need not go on as a line
            expected = max(spread, seen)  # an expectation that is far off must not outweigh it
            weight = expected**2 / (expected**2 + error**2) if expected else 0.0
            slope, spread = weight * seen + (1 - weight) * slope, error * math.sqrt(weight)
        more = SIGMAS * spread * depth_tokens
        typical = self.token_ms + slope * depth_tokens
        return Estimate(
            typical,
            max(self.token_ms, typical - more) * (1 - MEASURED_SPREAD),
            (typical + more) * (1 + MEASURED_SPREAD),
        )


def repeats_made(token_ms: float, generate_tokens: int, repeats: int, max_repeats: int) -> int:
    """How often a server of that speed generates: `repeats`, or for `GENERATION_S` in all."""
    took_ms = token_ms * generate_tokens
    wanted = math.ceil(GENERATION_S * 1e3 / took_ms) if took_ms > 0 else repeats
    return max(repeats, min(wanted, max_repeats))


def rung_works(
    depths: Sequence[int],
    document_tokens: Sequence[int],
    *,
    repeats: int,
    max_repeats: int,
    generate_tokens: int,
    again: bool = False,
) -> tuple[RungWork, ...]:
    """The rungs of a plan."""
    return tuple(
        RungWork(depth, document, generate_tokens, repeats, max_repeats, again)
        for depth, document in zip(depths, document_tokens, strict=True)
    )


def forecast(
    model: CostModel,
    works: Sequence[RungWork],
    *,
    answering: Answering | None,
    from_tokens: int = 0,
) -> tuple[RungForecast, ...]:
    """When each rung will be done, the climb being at `from_tokens`.

    `answering` is `None` where no speed is known: answers are then left out. Lows and highs are
    added up: what makes one rung slow makes all of them slow.
    """
    result = []
    spoken = Estimate(0.0, 0.0, 0.0)
    for work in works:
        if answering is not None:
            told = _answers(work, answering.at(work.document_tokens, model.attention_ms))
            spoken = Estimate(
                spoken.ms + told.ms, spoken.low_ms + told.low_ms, spoken.high_ms + told.high_ms
            )
        read = model.predict_ms(from_tokens, work.document_tokens)
        result.append(
            RungForecast(
                work.depth,
                Estimate(
                    read.ms + spoken.ms, read.low_ms + spoken.low_ms, read.high_ms + spoken.high_ms
                ),
            )
        )
    return tuple(result)


def _answers(work: RungWork, token: Estimate) -> Estimate:
    """Time of one rung's questions and generations."""

    def took_ms(token_ms: float, factor: float, *, again: bool) -> float:
        made = repeats_made(token_ms, work.generate_tokens, work.repeats, work.max_repeats)
        asks = ASKS if work.repeats else 0
        if again and work.repeats:
            made, asks = max(made, work.max_repeats), MOST_ASKS
        said = (asks * ANSWER_TOKENS + made * work.generate_tokens) * token_ms
        sent = REQUEST_MS + work.document_tokens * TOKENISED_MS
        return said + (asks + made) * sent * factor + (REST_MS if work.repeats else 0.0)

    return Estimate(
        took_ms(token.ms, 1.0, again=False),
        took_ms(token.low_ms, 1 / TOKENISED_FACTOR, again=False),
        took_ms(token.high_ms, TOKENISED_FACTOR, again=work.again),
    )


def deepest_within(
    model: CostModel,
    work: RungWork,
    budget_ms: float,
    *,
    answering: Answering | None,
    step: int = 1024,
) -> int | None:
    """The largest depth, a multiple of `step` up to `work.depth`, that is expected to fit.

    The document keeps its share of the context. `None` when not even `step` fits.
    """
    share = work.document_tokens / work.depth

    def fits(depth: int) -> bool:
        shorter = replace(work, depth=depth, document_tokens=round(depth * share))
        return forecast(model, (shorter,), answering=answering)[0].until.ms <= budget_ms

    low, high = 0, work.depth // step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle - 1)
    return low * step or None


def spoken(estimate: Estimate) -> str:
    """An estimate in words, with its interval: `3 min 20 s (2 min 40 s to 4 min 10 s)`."""
    return (
        f"{duration(estimate.ms / 1e3)} ({duration(estimate.low_ms / 1e3)} to "
        f"{duration(estimate.high_ms / 1e3)})"
    )
