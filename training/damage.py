"""Damaged copies of the packaged models, to prove that the gauge moves when something is wrong.

    python -m training.damage --kind keys --layer 2 --amount 2 --out build/damaged.gguf
    python -m training.damage --kind rope --amount 1e12 --out build/damaged.gguf
    python -m training.damage --member window --kind window --amount 129 --out build/damaged.gguf

Of the reference model: `keys`, Gaussian noise on one layer's key projection, as a share of its
standard deviation; `rope`, another rotary base in the metadata, as by a wrong `--rope-freq-base`.

Of the member `gdn`: `decay`, the state decays by e^amount a token; `writes`, a write replaces so
large a share of what was there; `forget`, nothing is ever forgotten; `conv`, the convolution sees
no token but the last; `heads`, value heads read the other key head. Of `window`: `window`, so many
tokens in the metadata.
"""

import argparse
import math
import shutil
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from gguf import GGUFReader

from harness.questions.family import MEMBERS
from harness.serving.packaged import member_model, reference_model

Kind = Literal["keys", "rope", "decay", "writes", "forget", "conv", "heads", "window"]


def damage(
    source: Path, target: Path, kind: Kind, amount: float, *, layer: int = 2, seed: int = 0
) -> None:
    """Copy `source` to `target` and damage the copy in place."""
    shutil.copyfile(source, target)
    target.chmod(0o644)
    reader = GGUFReader(str(target), "r+")
    if kind in ("rope", "window"):
        key = "llama.rope.freq_base" if kind == "rope" else "gemma3.attention.sliding_window"
        field = reader.fields[key]
        field.parts[field.data[0]][:] = amount
    elif kind == "keys":
        weights = _tensor(reader, f"blk.{layer}.attn_k.weight")
        values = weights.astype(np.float32)
        noise = np.random.default_rng(seed).standard_normal(values.shape)
        weights[:] = (values + amount * values.std() * noise).astype(weights.dtype)
    else:
        _of_the_state(reader, kind, amount)
    reader.data.flush()


def _of_the_state(reader: GGUFReader, kind: Kind, amount: float) -> None:
    if kind == "decay":
        _tensor(reader, "blk.0.ssm_dt.bias")[:] = math.log(math.expm1(amount))
    elif kind == "writes":
        beta = _tensor(reader, "blk.0.ssm_beta.weight")
        # A write's two parts, 60 - 30, are brought to what the sigmoid makes the share of.
        beta[beta > 0] *= (30 + math.log(amount / (1 - amount))) / 60
    elif kind == "forget":
        _tensor(reader, "blk.0.ssm_alpha.weight")[:] = 0
    elif kind == "conv":
        _tensor(reader, "blk.0.ssm_conv1d.weight")[:, :-1] = 0
    else:
        qkv = _tensor(reader, "blk.0.attn_qkv.weight")
        conv = _tensor(reader, "blk.0.ssm_conv1d.weight")
        for weights in (qkv, conv):  # queries of two heads of 128, then their keys
            pairs = weights[:512].reshape(2, 2, 128, -1)
            pairs[:] = pairs[:, ::-1].copy()


def _tensor(reader: GGUFReader, name: str) -> Any:
    return next(t for t in reader.tensors if t.name == name).data


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", type=Path, help="GGUF (default: the packaged reference model)")
    p.add_argument("--member", choices=list(MEMBERS), help="a member of the family instead")
    p.add_argument("--kind", choices=get_args(Kind), default="keys")
    p.add_argument("--amount", type=float, default=2.0)
    p.add_argument("--layer", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    packaged = member_model(args.member) if args.member else reference_model()
    source = args.model or packaged
    damage(source, args.out, args.kind, args.amount, layer=args.layer, seed=args.seed)
    print(args.out)


if __name__ == "__main__":
    main()
