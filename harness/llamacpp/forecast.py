"""How long a ladder takes: its prefills by a cost model, its answers by a rate, rung by rung."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.llamacpp.cost import CostModel, Estimate

DEPTH_SLOWDOWN = (1.0, 1.5, 3.0)
"""Generation at depth against depth 0: at best as fast, often two thirds, at worst a third."""
ANSWER_TOKENS = 80
"""About what five codes and the local control take to answer."""


@dataclass(frozen=True, slots=True)
class RungForecast:
    """Time until the rung at `depth` is measured, from where the forecast starts, milliseconds."""

    depth: int
    until: Estimate


@dataclass(frozen=True, slots=True)
class RungWork:
    """What is left to do at one rung: the end of its document, its answers, its generation."""

    depth: int
    document_tokens: int
    generated_tokens: int


def rung_works(
    depths: Sequence[int], document_tokens: Sequence[int], *, repeats: int, generate_tokens: int
) -> tuple[RungWork, ...]:
    """The rungs of a plan; each asks three times and repeats its generation."""
    generated = 3 * ANSWER_TOKENS + repeats * generate_tokens
    return tuple(
        RungWork(depth, document, generated)
        for depth, document in zip(depths, document_tokens, strict=True)
    )


def forecast(
    model: CostModel,
    works: Sequence[RungWork],
    *,
    token_ms: float | None,
    from_tokens: int = 0,
) -> tuple[RungForecast, ...]:
    """When each rung will be done, the climb being at `from_tokens`.

    `token_ms` is the time of one generated token at depth 0, `None` when it isn't known: answers
    are then left out. Lows and highs are added up: what makes one rung slow makes all of them slow.
    """
    result = []
    spoken = (0.0, 0.0, 0.0)
    for work in works:
        if token_ms is not None:
            spoken_ms = work.generated_tokens * token_ms
            low, typical, high = DEPTH_SLOWDOWN
            spoken = (
                spoken[0] + spoken_ms * typical,
                spoken[1] + spoken_ms * low,
                spoken[2] + spoken_ms * high,
            )
        read = model.predict_ms(from_tokens, work.document_tokens)
        result.append(
            RungForecast(
                work.depth,
                Estimate(read.ms + spoken[0], read.low_ms + spoken[1], read.high_ms + spoken[2]),
            )
        )
    return tuple(result)


def deepest_within(
    model: CostModel, work: RungWork, budget_ms: float, *, token_ms: float | None, step: int = 1024
) -> int | None:
    """The largest depth, a multiple of `step` up to `work.depth`, that is expected to fit.

    The document keeps its share of the context. `None` when not even `step` fits.
    """
    share = work.document_tokens / work.depth

    def fits(depth: int) -> bool:
        shorter = RungWork(depth, round(depth * share), work.generated_tokens)
        return forecast(model, (shorter,), token_ms=token_ms)[0].until.ms <= budget_ms

    low, high = 0, work.depth // step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle - 1)
    return low * step or None


def duration(seconds: float) -> str:
    """A duration as people say it: `9 s`, `3 min 20 s`, `4 h 40 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def spoken(estimate: Estimate) -> str:
    """An estimate in words, with its interval: `3 min 20 s (2 min 40 s to 4 min 10 s)`."""
    return (
        f"{duration(estimate.ms / 1e3)} ({duration(estimate.low_ms / 1e3)} to "
        f"{duration(estimate.high_ms / 1e3)})"
    )
