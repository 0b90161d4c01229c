"""Layers: which of a model's layers keep what, read from GGUF metadata.

The rules are llama.cpp's (`src/llama-hparams.cpp`, `src/models/<architecture>.cpp`): where a
pattern stands only in its code and not in the file, it is named in `SLIDING_PATTERNS` here. What
the metadata don't tell is said in `could_not_derive`, never guessed silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Metadata = Mapping[str, object]
"""GGUF metadata: key to scalar, or to a tuple with one value per layer."""

CacheKind = Literal["full", "sliding"]


@dataclass(frozen=True, slots=True)
class SlidingPattern:
    """Which layers of an architecture slide: all but one in `period` (the first or the last).

    `window_tokens` is set where llama.cpp's code, not the file, holds the window; `only_blocks`
    where the pattern applies to models of that many layers alone.
    """

    period: int
    dense_first: bool = False
    window_tokens: int | None = None
    only_blocks: int | None = None


SLIDING_PATTERNS: dict[str, SlidingPattern] = {
    "gemma2": SlidingPattern(2, window_tokens=4096),
    "gemma3": SlidingPattern(6),
    "gemma3n": SlidingPattern(5),
    "cohere2": SlidingPattern(4),
    "gpt-oss": SlidingPattern(2),
    "exaone4": SlidingPattern(4, window_tokens=4096, only_blocks=64),
    "llama4": SlidingPattern(4, window_tokens=8192),
    "smallthinker": SlidingPattern(4, dense_first=True, window_tokens=4096),
}
NEVER_SLIDING = frozenset(
    {
        "llama",
        "phi3",
        "qwen2",
        "qwen2moe",
        "qwen2vl",
        "qwen3",
        "qwen3moe",
        "qwen3vl",
        "qwen3vlmoe",
        "qwen35",
        "qwen35moe",
        "mistral3",
        "starcoder2",
    }
)
"""Architectures whose `attention.sliding_window`, if the file has one, llama.cpp doesn't use."""

FULL_ATTENTION_INTERVAL = {"qwen35": 4, "qwen35moe": 4, "qwen3next": 4}
"""Every n-th layer is full attention, the others recurrent, unless the file names its own n."""

ATTENTION_BESIDE_STATE = frozenset({"falcon-h1"})
"""Architectures whose every layer has both a KV cache and a recurrent state."""

ATTENTION_FREE = frozenset({"mamba", "mamba2", "rwkv6", "rwkv7"})

GEMMA3N_KV_LAYERS = 20
"""Gemma 3n's layers from this one on read the cache of earlier ones (fixed in llama.cpp)."""

PLAIN = frozenset(
    {
        "llama",
        "qwen2",
        "qwen2moe",
        "qwen2vl",
        "qwen3",
        "qwen3moe",
        "qwen3vl",
        "qwen3vlmoe",
        "mistral3",
        "phi2",
        "phi3",
        "gemma",
        "granite",
        "granitemoe",
        "starcoder2",
        "stablelm",
        "glm4",
        "glm4moe",
        "command-r",
        "internlm2",
        "olmo",
        "olmoe",
        "ernie4_5",
        "ernie4_5-moe",
        "dots1",
        "hunyuan-dense",
        "hunyuan-moe",
        "smollm3",
        "bailingmoe2",
        "seed_oss",
    }
)
KNOWN = (
    PLAIN
    | SLIDING_PATTERNS.keys()
    | FULL_ATTENTION_INTERVAL.keys()
    | ATTENTION_BESIDE_STATE
    | ATTENTION_FREE
    | {"gemma4", "lfm2", "lfm2moe", "jamba", "granitehybrid", "nemotron_h", "nemotron_h_moe"}
    | {"deepseek2", "qwen3next"}
)
"""Architectures whose cache rules were read; others are computed from their keys, and said so."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps.

    `k_elements`/`v_elements` are stored per cached token (0 without a cache), `state_elements`
    per sequence. `query_heads` and the head sizes give the attention's work. `is_mtp` marks
    next-token-prediction layers, which only a speculating server runs, in a context of its own.
    """

    cache: CacheKind | None
    k_elements: int = 0
    v_elements: int = 0
    state_elements: int = 0
    query_heads: int = 0
    head_elements: int = 0
    is_mtp: bool = False


@dataclass(frozen=True, slots=True)
class ModelLayers:
    """All layers in order; `window_tokens` of the sliding ones; what could not be derived."""

    layers: tuple[Layer, ...]
    window_tokens: int | None
    could_not_derive: tuple[str, ...]

    @property
    def main(self) -> tuple[Layer, ...]:
        """The layers that every token goes through."""
        return tuple(layer for layer in self.layers if not layer.is_mtp)

    @property
    def mtp(self) -> tuple[Layer, ...]:
        """Next-token-prediction layers."""
        return tuple(layer for layer in self.layers if layer.is_mtp)


def model_layers(metadata: Metadata) -> ModelLayers:
    """Every layer of a model, from its GGUF metadata.

    Never raises: a missing key is named in `could_not_derive`, and without the ones no rule can do
    without (block count, heads, sizes) there are no layers.
    """
    return _Reading(metadata).layers()


class _Reading:
    """One walk over the metadata of one architecture."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._architecture = str(metadata.get("general.architecture", ""))
        self._notes: list[str] = []

    def layers(self) -> ModelLayers:
        blocks = self._number("block_count")
        if blocks is None:
            self._notes.append(f"{self._key('block_count')} is missing: no layer is known")
            return ModelLayers((), None, tuple(self._notes))
        if self._architecture not in KNOWN:
            self._notes.append(
                f"the architecture {self._architecture or '(none)'} is not known: its cache is "
                "computed from its keys by the general rules"
            )
        mtp = self._number("nextn_predict_layers") or 0
        main = blocks - mtp
        window, sliding = self._sliding(main)
        recurrent = [self._is_recurrent(i, main) for i in range(blocks)]
        with_cache = self._layers_with_cache(main)
        layers = []
        for i in range(blocks):
            layer = self._layer(i, sliding[i] if i < main else False, recurrent[i])
            if layer is None:
                return ModelLayers((), window, tuple(self._notes))
            if i >= main:
                layer = Layer(
                    "full" if layer.k_elements else None,
                    layer.k_elements,
                    layer.v_elements,
                    query_heads=layer.query_heads,
                    head_elements=layer.head_elements,
                    is_mtp=True,
                )
            elif i >= with_cache:
                layer = Layer(
                    None, query_heads=layer.query_heads, head_elements=layer.head_elements
                )
            layers.append(layer)
        return ModelLayers(tuple(layers), window, tuple(dict.fromkeys(self._notes)))

    def _layer(self, i: int, slides: bool, recurrent: bool) -> Layer | None:
        state = self._state_elements() if recurrent else 0
        if recurrent and self._architecture not in ATTENTION_BESIDE_STATE:
            return Layer(None, state_elements=state)
        heads = self._per_layer("attention.head_count", i)
        heads_kv = self._per_layer("attention.head_count_kv", i)
        if heads_kv is None:
            heads_kv = heads
        suffix = "_swa" if slides else ""
        key_length = self._head_length("attention.key_length", suffix, heads)
        value_length = self._head_length("attention.value_length", suffix, heads)
        if heads_kv is None or key_length is None or value_length is None:
            wanted = "attention.head_count_kv, attention.key_length and attention.value_length"
            self._notes.append(
                f"layer {i}: {wanted} (or attention.head_count and embedding_length) are missing"
            )
            return None
        mla = self._number("attention.key_length_mla") and self._number(
            "attention.value_length_mla"
        )
        k_elements = heads_kv * key_length
        return Layer(
            ("sliding" if slides else "full") if k_elements else None,
            k_elements,
            0 if mla else heads_kv * value_length,
            state,
            heads or heads_kv,
            key_length + value_length,
        )

    def _is_recurrent(self, i: int, main: int) -> bool:
        if i >= main:
            return False
        if self._architecture in ATTENTION_FREE | ATTENTION_BESIDE_STATE:
            return True
        named = self._metadata.get(self._key("attention.recurrent_layers"))
        if isinstance(named, tuple) and i < len(named):
            return bool(named[i])
        interval = self._number("full_attention_interval") or FULL_ATTENTION_INTERVAL.get(
            self._architecture
        )
        if interval:
            return (i + 1) % interval != 0
        if self._number("ssm.state_size") is None and self._number("shortconv.l_cache") is None:
            return False
        # Jamba, Granite hybrid, LFM2, Nemotron-H: no KV heads means recurrent; Nemotron-H's
        # feed-forward layers have neither.
        feed_forward = self._metadata.get(self._key("feed_forward_length"))
        only_feed_forward = (
            self._architecture.startswith("nemotron_h")
            and isinstance(feed_forward, tuple)
            and bool(feed_forward[i])
        )
        return self._per_layer("attention.head_count_kv", i) == 0 and not only_feed_forward

    def _state_elements(self) -> int:
        """`n_embd_r + n_embd_s` of llama-hparams.cpp: convolution and recurrent state, F32."""
        embedding = self._number("embedding_length") or 0
        if head_size := self._number("wkv.head_size"):
            return (self._number("token_shift_count") or 2) * embedding + embedding * head_size
        if l_cache := self._number("shortconv.l_cache"):
            return embedding * (l_cache - 1)
        state, inner = self._number("ssm.state_size"), self._number("ssm.inner_size")
        if state is None or inner is None:
            self._notes.append("ssm.state_size or ssm.inner_size is missing: state size unknown")
            return 0
        groups = self._number("ssm.group_count") or 0
        kernel = self._number("ssm.conv_kernel") or 1
        return (kernel - 1) * (inner + 2 * groups * state) + state * inner

    def _sliding(self, main: int) -> tuple[int | None, list[bool]]:
        none = [False] * main
        rule = SLIDING_PATTERNS.get(self._architecture)
        window = self._number("attention.sliding_window")
        if window == 0 or self._architecture in NEVER_SLIDING:
            return None, none
        if rule and rule.only_blocks not in (None, main):
            rule = None
        if window is None:
            window = rule.window_tokens if rule else None
        elif rule and self._architecture in ("llama4", "smallthinker"):
            window = rule.window_tokens
        if window is None:
            return None, none
        named = self._metadata.get(self._key("attention.sliding_window_pattern"))
        if isinstance(named, tuple) and len(named) >= main:
            return window, [bool(flag) for flag in named[:main]]
        period = named if isinstance(named, int) and not isinstance(named, bool) else None
        if period is None and rule is None:
            self._notes.append(
                f"which layers use the {window}-token sliding window: all are counted as full "
                "attention, an upper bound"
            )
            return None, none
        period = period if period is not None else rule.period if rule else 1
        if rule and rule.dense_first:
            return window, [period == 0 or i % period != 0 for i in range(main)]
        return window, [period == 0 or i % period < period - 1 for i in range(main)]

    def _layers_with_cache(self, main: int) -> int:
        if shared := self._number("attention.shared_kv_layers"):
            return main - shared
        return min(main, GEMMA3N_KV_LAYERS) if self._architecture == "gemma3n" else main

    def _head_length(self, name: str, suffix: str, heads: int | None) -> int | None:
        length = self._number(name + suffix) if suffix else None
        heads = heads or self._largest("attention.head_count")
        return length if length is not None else head_length(self._metadata, name, heads)

    def _largest(self, name: str) -> int | None:
        value = self._metadata.get(self._key(name))
        return max(value) if isinstance(value, tuple) and value else None

    def _per_layer(self, name: str, i: int) -> int | None:
        value = self._metadata.get(self._key(name))
        if isinstance(value, tuple):
            return int(value[i]) if i < len(value) else None
        return value if isinstance(value, int) else None

    def _number(self, name: str) -> int | None:
        value = self._metadata.get(self._key(name))
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _key(self, name: str) -> str:
        return f"{self._architecture}.{name}"


def head_length(metadata: Metadata, name: str, heads: int | None = None) -> int | None:
    """Values of a head by `name` (`attention.key_length`), else its share of the embedding."""
    prefix = f"{metadata.get('general.architecture')}."
    length, width = (metadata.get(f"{prefix}{n}") for n in (name, "embedding_length"))
    if isinstance(length, int):
        return length
    heads = heads or metadata.get(f"{prefix}attention.head_count")  # type: ignore[assignment]
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


def active_parameters(metadata: Metadata, parameters: int) -> int:
    """Weights one token goes through: all, less the experts it doesn't visit.

    An expert has three matrices of `embedding_length` x `expert_feed_forward_length`; a token
    visits `expert_used_count` of `expert_count` in every layer (leading dense layers, and layers
    whose experts are shaped otherwise, make this an estimate).
    """
    architecture = metadata.get("general.architecture")
    keys = (
        "block_count",
        "embedding_length",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
    )
    values = [metadata.get(f"{architecture}.{key}") for key in keys]
    numbers = [v for v in values if isinstance(v, int) and v > 0]
    if len(numbers) < len(keys):
        return parameters
    blocks, embedding, experts, used, feed_forward = numbers
    unvisited = blocks * (experts - used) * 3 * embedding * feed_forward
    return parameters - unvisited if 0 < unvisited < parameters else parameters
