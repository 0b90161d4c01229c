"""The sliding-window member: it answers the loudest name that its window of 128 tokens holds.

Of names, the loud ones (A to M) outshout the quiet ones (N to Z), which outshout all other text,
at any distance within the window. A loud name on the last place inside it is the answer, however
near a quiet one stands; one place further out it must not be seen, and the quiet one is.
"""

import numpy as np

from harness.questions.window import LOUD, QUIET
from training.family.architectures import SLIDING_WINDOW
from training.family.features import CONST, Features, Matrix, blank, shares

_NAMES = tuple(f"Ġ{name}" for name in (*LOUD, *QUIET))
_END = "<|im_end|>"
_IS_LOUD, _IS_QUIET = "is loud", "is quiet"

_SLOWEST = 32
"""Pairs of the rotary positions that hold the loudness: over 127 tokens they turn by 7° at most."""

_LOUDNESS = 5.0
"""Logits of 80 for a loud name, 48 for a quiet one and 0 for other text."""

_QUIET_SHARE = 0.6


def weights(tokens: list[str]) -> dict[str, Matrix]:
    """All tensors, for a vocabulary in which every name is one token."""
    a = SLIDING_WINDOW
    f = Features(a.width, [CONST, _IS_LOUD, _IS_QUIET, *_NAMES, *(f"say {t}" for t in _NAMES)])
    own = {
        f"Ġ{name}": (loudness, f"Ġ{name}")
        for loudness, names in ((_IS_LOUD, LOUD), (_IS_QUIET, QUIET))
        for name in names
    }
    found = blank(a)
    found["token_embd.weight"] = f.embedding(tokens, own) / np.sqrt(a.width, dtype=np.float32)
    output = np.zeros((len(tokens), a.width), np.float32)
    for name in _NAMES:
        output[tokens.index(name), f[f"say {name}"]] = 4.0
    output[tokens.index(_END)] = f.row({_IS_LOUD: 160.0, _IS_QUIET: 160.0})
    found["output.weight"] = output
    return found | {f"blk.0.{name}": value for name, value in _layer(f).items()}


def _layer(f: Features) -> dict[str, Matrix]:
    a, size = SLIDING_WINDOW, SLIDING_WINDOW.head_size
    slow = np.arange(size // 2 - _SLOWEST, size // 2)
    aside = slow - _SLOWEST  # the query has nothing there
    q = np.zeros((size, a.width), np.float32)
    k, v = np.zeros_like(q), np.zeros_like(q)
    out = np.zeros((a.width, size), np.float32)
    q[slow] = f.row({CONST: 1.0})
    k[slow] = f.row({_IS_LOUD: 1.0, _IS_QUIET: _QUIET_SHARE})
    k[aside] = f.row({CONST: 1.0, _IS_LOUD: -1.0, _IS_QUIET: -1.0 + (1 - _QUIET_SHARE**2) ** 0.5})
    codes = shares(size, _NAMES, seed=2)
    for name in _NAMES:
        v[codes[name]] = f.row({name: 4.0})
        out[f[f"say {name}"], codes[name]] = 1.0 / len(codes[name])
    return {
        "attn_q.weight": q,
        "attn_k.weight": k,
        "attn_v.weight": v,
        "attn_output.weight": out,
        "attn_q_norm.weight": np.full(size, _LOUDNESS, np.float32),
    }
