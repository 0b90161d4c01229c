"""The grown reference model answers as the reference model does, on a real server."""

from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="training needs the training dependency group")

from harness.serving.gguf_file import read_gguf
from harness.serving.packaged import reference_model
from tests.e2e.test_reference_model import lines_right
from training.grow import NAME, Size, grow

LITTLE = Size(width=512, layers=6, heads=6, kv_heads=2, feed_forward=1024)


def test_a_grown_model_is_heavier_and_answers_alike(tmp_path: Path) -> None:
    path = tmp_path / "grown.gguf"
    parameters = grow(reference_model(), path, LITTLE)
    read = read_gguf(path)
    assert read.parameters == parameters > 4 * 2_983_000
    assert read.metadata["general.name"] == NAME
    assert lines_right(path) == 18


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (Size(width=128), "width 128: at least 256"),
        (Size(heads=9, kv_heads=8), "at least 2 to one"),
    ],
)
def test_a_size_that_cannot_hold_the_model_is_refused(size, says, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        grow(reference_model(), tmp_path / "grown.gguf", size)
