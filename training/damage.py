"""Damaged copies of the reference model, to prove that the gauge moves when something is wrong.

    python -m training.damage --kind keys --layer 2 --amount 2 --out build/damaged.gguf
    python -m training.damage --kind rope --amount 1e12 --out build/damaged.gguf

`keys`: Gaussian noise on one layer's key projection, as a share of its standard deviation.
`rope`: another rotary base in the metadata, as a wrong `--rope-freq-base` would give.
"""

import argparse
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFReader

from harness.serving.session import reference_model

Kind = Literal["keys", "rope"]


def damage(
    source: Path, target: Path, kind: Kind, amount: float, *, layer: int = 2, seed: int = 0
) -> None:
    """Copy `source` to `target` and damage the copy in place."""
    shutil.copyfile(source, target)
    target.chmod(0o644)
    reader = GGUFReader(str(target), "r+")
    if kind == "rope":
        field = reader.fields["llama.rope.freq_base"]
        field.parts[field.data[0]][:] = amount
    else:
        name = f"blk.{layer}.attn_k.weight"
        tensor = next(t for t in reader.tensors if t.name == name)
        weights = tensor.data.astype(np.float32)
        noise = np.random.default_rng(seed).standard_normal(weights.shape)
        tensor.data[:] = (weights + amount * weights.std() * noise).astype(tensor.data.dtype)
    reader.data.flush()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", type=Path, help="GGUF (default: the packaged reference model)")
    p.add_argument("--kind", choices=["keys", "rope"], default="keys")
    p.add_argument("--amount", type=float, default=2.0)
    p.add_argument("--layer", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    source = args.model or reference_model()
    damage(source, args.out, args.kind, args.amount, layer=args.layer, seed=args.seed)
    print(args.out)


if __name__ == "__main__":
    main()
