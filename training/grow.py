"""The reference model made as heavy as a model that people run, with the same answers.

    python -m training.grow --out build/grown.gguf                    # 975 M parameters, 1.95 GB
    python -m training.grow --width 512 --layers 6 --heads 4 --kv-heads 2 --feed-forward 1024 \
        --out build/little.gguf

Width, heads, feed-forward rows and layers are added around the trained ones. What is added is
computed like everything else and then multiplied by zeros (the added columns of `attn_output` and
`ffn_down`, all of them in an added layer), so the residual stream is the reference model's own. A
GPU that idles under 3 M parameters works under 975 M as it does for users.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from harness.serving.packaged import reference_model

NAME = "longctx-reference-grown"
NOISE = 0.02
"""Deviation of the added weights: as of a freshly drawn model, so nothing overflows."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Size:
    """What the grown model measures; the defaults are those of a usual model of 1 B parameters."""

    width: int = 2048
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    feed_forward: int = 8192


def grow(source: Path, target: Path, size: Size) -> int:
    """Write the grown copy of `source`; the number of its parameters.

    Raises:
        ValueError: `size` is smaller than the model, or its heads can't be shared out: the trained
            query heads must all look into the first KV head.
    """
    reader = gguf.GGUFReader(str(source))
    old = Size(
        width=_number(reader, "embedding_length"),
        layers=_number(reader, "block_count"),
        heads=_number(reader, "attention.head_count"),
        kv_heads=_number(reader, "attention.head_count_kv"),
        feed_forward=_number(reader, "feed_forward_length"),
    )
    for name in Size.__dataclass_fields__:
        if getattr(size, name) < getattr(old, name):
            raise ValueError(f"{name} {getattr(size, name)}: at least {getattr(old, name)}")
    if size.heads % size.kv_heads or size.heads // size.kv_heads < old.heads:
        raise ValueError(
            f"{size.heads} heads to {size.kv_heads} KV heads: a multiple of it, at least "
            f"{old.heads} to one"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(target), "llama")
    _copy_metadata(reader, writer, old, size)
    parameters = 0
    for name, weights in _Grown(reader, old, size).tensors():
        writer.add_tensor(name, weights)
        parameters += weights.size
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return parameters


class _Grown:
    """The trained tensors, each in the corner of a larger one."""

    def __init__(self, reader: gguf.GGUFReader, old: Size, size: Size) -> None:
        self._trained = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
        self._old, self._size = old, size
        self._head = _number(reader, "attention.key_length")
        self._noise = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32) * NOISE

    def tensors(self) -> Iterator[tuple[str, Array]]:
        """Name and weights of every tensor."""
        new, head = self._size, self._head
        table = self._trained["token_embd.weight"]
        yield "token_embd.weight", self._corner(np.zeros((len(table), new.width)), table)
        yield "output_norm.weight", self._norm("output_norm")
        for layer in range(new.layers):
            block = f"blk.{layer}."
            for name in ("attn_norm", "ffn_norm"):
                yield f"{block}{name}.weight", self._norm(block + name)
            for name, rows in (
                ("attn_q", new.heads * head),
                ("attn_k", new.kv_heads * head),
                ("attn_v", new.kv_heads * head),
                ("ffn_gate", new.feed_forward),
                ("ffn_up", new.feed_forward),
            ):
                noise = np.resize(self._noise, (rows, new.width))
                yield self._placed(f"{block}{name}.weight", noise)
            for name, columns in (
                ("attn_output", new.heads * head),
                ("ffn_down", new.feed_forward),
            ):
                yield self._placed(f"{block}{name}.weight", np.zeros((new.width, columns)))

    def _placed(self, name: str, around: Array) -> tuple[str, Array]:
        trained = self._trained.get(name)
        return name, around.astype(np.float16) if trained is None else self._corner(around, trained)

    def _corner(self, around: Array, trained: Array) -> Array:
        rows, columns = trained.shape
        around[:rows] = 0.0
        around[:rows, :columns] = trained
        return around.astype(np.float16)

    def _norm(self, name: str) -> Array:
        # The mean square is taken over more elements, the added ones zero: the normalised vector
        # comes out larger by the root of the ratio, and its weights smaller.
        weights = np.full(self._size.width, 0.5, np.float32)
        trained = self._trained.get(f"{name}.weight")
        if trained is not None:
            weights[: len(trained)] = trained * np.sqrt(self._old.width / self._size.width)
        return weights


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, old: Size, size: Size) -> None:
    epsilon = _value(reader, "llama.attention.layer_norm_rms_epsilon")
    changed = {
        "general.name": NAME,
        "llama.attention.layer_norm_rms_epsilon": epsilon * old.width / size.width,
        "llama.embedding_length": size.width,
        "llama.block_count": size.layers,
        "llama.attention.head_count": size.heads,
        "llama.attention.head_count_kv": size.kv_heads,
        "llama.feed_forward_length": size.feed_forward,
    }
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        of = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(key, changed.get(key, field.contents()), field.types[0], of)


def _number(reader: gguf.GGUFReader, key: str) -> int:
    return int(_value(reader, f"llama.{key}"))


def _value(reader: gguf.GGUFReader, key: str) -> Any:
    return reader.fields[key].contents()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", type=Path, help="GGUF (default: the packaged reference model)")
    usual = Size()
    for name in Size.__dataclass_fields__:
        p.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(usual, name))
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    size = Size(**{name: getattr(args, name) for name in Size.__dataclass_fields__})
    try:
        parameters = grow(args.model or reference_model(), args.out, size)
    except ValueError as error:
        p.error(str(error))
    print(f"{args.out}: {parameters:,} parameters, {args.out.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
