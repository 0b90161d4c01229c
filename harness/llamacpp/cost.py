"""Prefill cost by depth: fit it from a climb's first chunks, forecast the rest, notice a cliff.

Reading tokens s..e costs c + a·(e − s) + b·(e² − s²)/2: a constant per batch, a linear part (every
token goes through every weight) and the attention's part (every new token looks at all before it).
So the speed on short prompts says little about long ones: 350 tok/s held to 131,072 tokens would
be 6 minutes; with a usual b it is over 20.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from harness.llamacpp.layers import ModelLayers


class ChunkLike(Protocol):
    """One batch: tokens `start_tokens..end_tokens` were read in `ms`."""

    @property
    def start_tokens(self) -> int: ...
    @property
    def end_tokens(self) -> int: ...
    @property
    def ms(self) -> float: ...


Array = npt.NDArray[np.float64]

CHUNK_NOISE = 0.05
"""How far one honest chunk strays from the curve, as a share; residuals are counted in it."""
TIMER_MS = 1.0
"""Resolution of the server's progress times."""
CONFIDENCE = 0.90
"""Two-sided level of a forecast's interval."""
EXTRAPOLATION = 0.12
"""Relative error for each e-fold beyond the deepest token read, from the runs in `bench.forecast`:
what a shallow reading can't show (a mask built on the CPU, caches outgrown, clocks that fall)."""
EFFICIENT_CAUCHY = 2.385
"""Scale of the Cauchy loss, in deviations, with which it wastes only 5 % of clean data."""
GUESS_LINEAR_SPREAD = 0.15
GUESS_ATTENTION_SPREAD = 1.5
"""Standard error of the a-priori attention share, relative: FLOPs alone were off by 1.5-2.3x."""

CLIFF_FACTOR = 5.0
"""Above what a busy neighbour was seen to cost (up to 4.3x); real cliffs were 18x and 200x."""
CLIFF_CHUNKS = 3
CLIFF_MIN_EXCESS_MS = 50.0
"""A chunk is slow only if it is also this much above the curve: tiny chunks are all overhead."""
MIN_FITTED_CHUNKS = 3
BATCH_SIZE_RANGE = 1.5
"""A constant per batch can be told from a cost per token only if batch sizes differ this much."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A forecast with its 90 % interval, milliseconds."""

    ms: float
    low_ms: float
    high_ms: float

    def scaled(self, factor: float) -> "Estimate":
        """The same forecast on a machine `factor` times slower."""
        return Estimate(self.ms * factor, self.low_ms * factor, self.high_ms * factor)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Coefficients in ms: per batch, per token, and per token and token before it.

    `covariance` is theirs (3 x 3, in that order), `spread` the relative deviation of whole chunks
    from the curve, `degrees` the degrees of freedom behind both. `chunks` is how many were fitted,
    `seen_tokens` how deep they went; 0 for a guess, whose covariance allows for every depth.
    """

    batch_ms: float
    token_ms: float
    attention_ms: float
    batch_tokens: int
    covariance: tuple[tuple[float, float, float], ...]
    spread: float
    degrees: int
    chunks: int
    source: Literal["guess", "fit"]
    seen_tokens: int = 0

    def predict_ms(self, start_tokens: int, end_tokens: int) -> Estimate:
        """Time to read tokens `start_tokens..end_tokens`.

        The interval is symmetric as a ratio, from the coefficients' covariance, the chunks' spread
        (taken as common to all chunks, since a machine's state lasts) and how far beyond what was
        seen the forecast reaches.
        """
        if end_tokens <= start_tokens:
            return Estimate(0.0, 0.0, 0.0)
        batches = math.ceil((end_tokens - start_tokens) / self.batch_tokens)
        features = _features(start_tokens, end_tokens, batches)
        ms = float(features @ np.array([self.batch_ms, self.token_ms, self.attention_ms]))
        variance = float(features @ np.array(self.covariance) @ features)
        if ms <= 0:
            return Estimate(0.0, 0.0, 0.0)
        beyond = math.log(end_tokens / self.seen_tokens) if self.seen_tokens else 0.0
        unseen = EXTRAPOLATION * max(0.0, beyond)
        error = math.sqrt(max(variance, 0.0) / ms**2 + self.spread**2 + unseen**2)
        from scipy import special  # here, as all of scipy: it takes long to import

        ratio = 1 + error * float(special.stdtrit(self.degrees, (1 + CONFIDENCE) / 2))
        return Estimate(ms, ms / ratio, ms * ratio)

    def tok_s(self, at_tokens: int) -> float:
        """Reading speed of one full batch that starts at `at_tokens`."""
        end = at_tokens + self.batch_tokens
        ms = self.predict_ms(at_tokens, end).ms
        return math.inf if ms == 0 else 1000 * self.batch_tokens / ms


@dataclass(frozen=True, slots=True)
class Cliff:
    """Several chunks in a row far below the fitted curve.

    `at_tokens` is where the first of them began, `factor` their median slowness against the curve,
    `chunks` how many there were when it was reported. Speeds are of those chunks.
    """

    at_tokens: int
    factor: float
    chunks: int
    expected_tok_s: float
    seen_tok_s: float


def attention_ratio(layers: ModelLayers, active_parameters: int) -> float | None:
    """b/a before anything was measured: attention's FLOPs over the weights', per token before.

    Per new token the weights cost 2·parameters FLOPs and each full-attention layer
    2·heads·(key + value length) per earlier token. Sliding-window and recurrent layers cost the
    same at every depth and belong to the linear part. `active_parameters` leaves out the experts a
    token doesn't visit (`llamacpp.layers.active_parameters`). None without layers or weights.
    """
    if active_parameters <= 0 or not layers.layers:
        return None
    work = sum(
        layer.query_heads * layer.head_elements for layer in layers.main if layer.cache == "full"
    )
    return work / active_parameters


def guess(short_tok_s: float, ratio: float, batch_tokens: int = 2048) -> CostModel:
    """A model before any chunk was seen, from the speed on a short prompt and `attention_ratio`.

    Its interval is wide on purpose (about a factor of 3 at depth).
    """
    if short_tok_s <= 0 or ratio < 0:
        raise ValueError(f"speed must be positive and ratio not negative: {short_tok_s}, {ratio}")
    token_ms = 1000 / short_tok_s
    linear, attention = GUESS_LINEAR_SPREAD * token_ms, GUESS_ATTENTION_SPREAD * ratio * token_ms
    return CostModel(
        batch_ms=0.0,
        token_ms=token_ms,
        attention_ms=ratio * token_ms,
        batch_tokens=batch_tokens,
        covariance=((0.0, 0.0, 0.0), (0.0, linear**2, 0.0), (0.0, 0.0, attention**2)),
        spread=CHUNK_NOISE,
        degrees=1000,
        chunks=0,
        source="guess",
    )


def fit(chunks: Sequence[ChunkLike], ratio: float | None = None) -> CostModel | None:
    """Fit the three coefficients, none negative, to chunks of a climb.

    Residuals are relative (a chunk counts by its share, not its milliseconds) under a Cauchy loss:
    a neighbour that took the machine for some chunks, or a first chunk that warmed it up, doesn't
    bend the curve. `ratio` (`attention_ratio`) steadies the attention's part while all chunks are
    shallow; it weighs little once they are not. None without a chunk that took time.
    """
    from scipy import optimize  # here, since it takes half a second to import

    usable = [c for c in chunks if c.ms > 0 and c.end_tokens > c.start_tokens]
    if not usable:
        return None
    times = np.array([c.ms for c in usable])
    rows = np.array([_features(c.start_tokens, c.end_tokens, 1) for c in usable])
    noise = np.hypot(CHUNK_NOISE * times, TIMER_MS)
    if rows[:, 1].max() < BATCH_SIZE_RANGE * rows[:, 1].min():
        rows[:, 0] = 0.0
    weighted, target = rows / noise[:, None], times / noise
    if ratio:
        typical_ms = float(np.median(times / rows[:, 1]))
        prior = np.array([[0.0, -ratio, 1.0]]) / (GUESS_ATTENTION_SPREAD * ratio * typical_ms)
        weighted, target = np.vstack([weighted, prior]), np.append(target, 0.0)
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0] = 1.0
    scaled = weighted / scale
    used = scaled.any(axis=0)
    x, _ = optimize.nnls(scaled, target)
    free = max(1, len(usable) - int(used.sum()))
    spread = 1.0
    for _ in range(2):  # the loss needs the spread, and the spread the fit
        solution = optimize.least_squares(
            lambda x: scaled @ x - target,
            np.maximum(x, 1e-9),
            jac=lambda _: scaled,
            bounds=(0, np.inf),
            loss="cauchy",
            f_scale=EFFICIENT_CAUCHY * spread,
        )
        x = solution.x
        residuals = (scaled @ x - target)[: len(usable)]
        typical = float(np.median(np.abs(residuals))) / 0.6745
        spread = max(typical * math.sqrt(len(usable) / free), 0.5)
    weighed = np.append(residuals, np.zeros(len(target) - len(usable)))
    influence = 1 / (1 + (weighed / (EFFICIENT_CAUCHY * spread)) ** 2)
    information = scaled.T @ (scaled * influence[:, None])
    covariance = np.linalg.pinv(information, rcond=1e-10) * spread**2 / np.outer(scale, scale)
    batch_ms, token_ms, attention_ms = (float(v) for v in x * used / scale)
    return CostModel(
        batch_ms,
        token_ms,
        attention_ms,
        batch_tokens=max(c.end_tokens - c.start_tokens for c in usable),
        covariance=tuple((float(r[0]), float(r[1]), float(r[2])) for r in covariance),
        spread=spread * CHUNK_NOISE,
        degrees=free,
        chunks=len(usable),
        source="fit",
        seen_tokens=max(c.end_tokens for c in usable),
    )


class PrefillWatch:
    """Follows a climb chunk by chunk: refits, forecasts, and reports a cliff once it is one.

    A chunk slower than the curve by `factor`, and above the curve's interval, is put aside, not
    fitted; `run` of them in a row are a cliff. Fewer are outliers and forgotten. While a cliff
    lasts, forecasts are slowed by it. `seen` are chunks of an earlier reading of the same kind.
    """

    def __init__(
        self,
        ratio: float | None = None,
        *,
        seen: Sequence[ChunkLike] = (),
        factor: float = CLIFF_FACTOR,
        run: int = CLIFF_CHUNKS,
    ) -> None:
        self.ratio = ratio
        self._factor = factor
        self._run = run
        self._fitted: list[ChunkLike] = [*seen]
        self._slow: list[tuple[ChunkLike, float]] = []
        self._reached_tokens = 0
        self._model: CostModel | None = None
        self._stale = bool(seen)

    @property
    def reached_tokens(self) -> int:
        """Where the climb is, by its last chunk."""
        return self._reached_tokens

    @property
    def model(self) -> CostModel | None:
        """The curve fitted so far; None before the first chunk.

        Fitted when asked for, not at every chunk: a fit takes milliseconds of a processor that the
        server may be using.
        """
        if self._stale:
            self._model = fit(self._fitted, self.ratio)
            self._stale = False
        return self._model

    @property
    def slowdown(self) -> float:
        """How many times slower than the curve it runs now: 1 unless a cliff lasts."""
        if len(self._slow) < self._run:
            return 1.0
        return float(np.median([ratio for _, ratio in self._slow[-self._run :]]))

    def add(self, chunk: ChunkLike) -> Cliff | None:
        """Take the next chunk; a `Cliff` when this one makes it one (once per cliff)."""
        self._reached_tokens = max(self._reached_tokens, chunk.end_tokens)
        expected = self._expected(chunk)
        if expected is not None and chunk.ms > max(
            self._factor * expected.ms, expected.high_ms, expected.ms + CLIFF_MIN_EXCESS_MS
        ):
            self._slow.append((chunk, chunk.ms / expected.ms))
            return self._cliff() if len(self._slow) == self._run else None
        self._slow.clear()
        self._fitted.append(chunk)
        self._stale = True
        return None

    def remaining_ms(self, end_tokens: int) -> Estimate | None:
        """Forecast from the last chunk's end to `end_tokens`; None before the first chunk."""
        model = self.model
        if model is None:
            return None
        return model.predict_ms(self._reached_tokens, end_tokens).scaled(self.slowdown)

    def _expected(self, chunk: ChunkLike) -> Estimate | None:
        """The curve's time for a chunk; None when it is too early or plainly needless to ask."""
        if len(self._fitted) < MIN_FITTED_CHUNKS:
            return None
        recent = [_rate(c) for c in self._fitted[-MIN_FITTED_CHUNKS:]]
        if _rate(chunk) <= self._factor / 2 * float(np.median(recent)):
            return None
        model = self.model
        estimate = model.predict_ms(chunk.start_tokens, chunk.end_tokens) if model else None
        return estimate if estimate and estimate.ms > 0 else None

    def _cliff(self) -> Cliff:
        chunks = [chunk for chunk, _ in self._slow]
        tokens = sum(c.end_tokens - c.start_tokens for c in chunks)
        ms = sum(c.ms for c in chunks)
        return Cliff(
            at_tokens=chunks[0].start_tokens,
            factor=self.slowdown,
            chunks=len(chunks),
            expected_tok_s=1000 * tokens / sum(c.ms / ratio for c, ratio in self._slow),
            seen_tok_s=1000 * tokens / ms,
        )


def _rate(chunk: ChunkLike) -> float:
    return chunk.ms / max(1, chunk.end_tokens - chunk.start_tokens)


def _features(start_tokens: int, end_tokens: int, batches: int) -> Array:
    attended = (end_tokens**2 - start_tokens**2) / 2
    return np.array([float(batches), float(end_tokens - start_tokens), attended])
