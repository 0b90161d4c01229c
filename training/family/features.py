"""Weights written by hand: named directions of the residual stream, and matrices between them.

A member's weights are no result of training: each is put there to do one step of its task, so that
what an answer rests on is known, and the same command gives the same bytes.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from training.family.architectures import Architecture, shapes

Matrix = NDArray[np.float32]
CONST = "const"
CONST_LEVEL = 4.0
LEVEL = 6.0
"""How strongly a token's own feature stands in its embedding, whose mean square is 1."""


class Features:
    """Which direction of the residual stream stands for what; the spare ones are for noise."""

    def __init__(self, width: int, names: Iterable[str]) -> None:
        self._at = {name: n for n, name in enumerate(names)}
        self._width = width

    def __getitem__(self, name: str) -> int:
        return self._at[name]

    def embedding(self, tokens: Sequence[str], features: Mapping[str, Sequence[str]]) -> Matrix:
        """A row a token: the constant, its features, and noise that fills it up to one length."""
        rng = np.random.default_rng(7)
        spare = slice(len(self._at), self._width)
        rows = np.zeros((len(tokens), self._width))
        rows[:, spare] = rng.standard_normal((len(tokens), self._width - len(self._at)))
        rows[:, spare] /= np.linalg.norm(rows[:, spare], axis=1, keepdims=True)
        for token, row in zip(tokens, rows, strict=True):
            own = features.get(token, ())
            left = self._width - CONST_LEVEL**2 - len(own) * LEVEL**2
            row[spare] *= np.sqrt(left)
            row[self[CONST]] = CONST_LEVEL
            row[[self[name] for name in own]] = LEVEL
        return rows.astype(np.float32)

    def row(self, levels: Mapping[str, float]) -> Matrix:
        """A matrix row that gives the sum of `levels` of the features that a token has."""
        row = np.zeros(self._width)
        for name, level in levels.items():
            row[self[name]] = level / (CONST_LEVEL if name == CONST else LEVEL)
        return row.astype(np.float32)


def shares(channels: int, names: Sequence[str], seed: int) -> dict[str, NDArray[np.int64]]:
    """All `channels` dealt out to `names`, each as many (about), in no order."""
    order = np.random.default_rng(seed).permutation(channels)
    return dict(zip(names, np.array_split(order, len(names)), strict=True))


def blank(a: Architecture, seed: int = 1) -> dict[str, Matrix]:
    """Weights of which no layer adds anything: what a layer reads is lively, what it adds is 0.

    A kernel then works on real numbers everywhere, but only what is written by hand answers.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Matrix] = {}
    for name, shape in shapes(a).items():
        if name.endswith("norm.weight"):
            value = np.ones(shape)
        elif name.endswith(("attn_output.weight", "ssm_out.weight", "ffn_down.weight")):
            value = np.zeros(shape)
        else:
            value = rng.standard_normal(shape) / np.sqrt(shape[-1])
        found[name] = value.astype(np.float32)
    return found
