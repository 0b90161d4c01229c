"""The members that can be made: their weights, and the GGUF written from them."""

from collections.abc import Callable
from pathlib import Path

from harness.questions.family import MEMBERS
from harness.serving.packaged import reference_model
from training.family import registers, window
from training.family.architectures import GATED_DELTA_NET, SLIDING_WINDOW, Architecture
from training.family.export import Precision, export, tokens_of
from training.family.features import Matrix

RECIPES: dict[str, tuple[Architecture, Callable[[list[str]], dict[str, Matrix]]]] = {
    "gdn": (GATED_DELTA_NET, registers.weights),
    "window": (SLIDING_WINDOW, window.weights),
}


def make(name: str, path: Path, precision: Precision = "f16") -> None:
    """Write a member's GGUF, with the packaged model's tokenizer; the same bytes each time."""
    architecture, weights = RECIPES[name]
    tokenizer = reference_model()
    export(
        architecture,
        weights(tokens_of(tokenizer)),
        path,
        name=f"longctx-reference-{name}",
        description=f"Answers what only {MEMBERS[name].layer} can; a gauge for serving engines.",
        tokenizer=tokenizer,
        precision=precision,
    )
