"""Do PyTorch and a server agree on random weights? Log-probabilities of the whole vocabulary.

    python -m training.family.agreement gdn window --server embedded

Two readings for each size of micro-batch, each the largest absolute difference over all tokens:
after prefixes of one text, and token by token behind it. Weights and cache in f32, without flash
attention, so that what differs is arithmetic and not type.
"""

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import torch
from gguf import GGUFReader
from torch import Tensor

from harness.serving.packaged import reference_model
from training.evaluate import serving
from training.family import twins
from training.family.architectures import Architecture, shapes
from training.family.export import export
from training.family.members import RECIPES

TEXT_TOKENS = 260
GENERATED = 20
FLAGS = ("-b", "512", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "-t", "1")


def random_weights(a: Architecture, seed: int = 0) -> dict[str, Tensor]:
    """Lively ones: every part of the model moves the logits."""
    torch.manual_seed(seed)
    found = {}
    for name, shape in shapes(a).items():
        value = torch.randn(shape)
        if name.endswith("norm.weight"):
            value = 1 + 0.2 * value
        elif name.endswith("ssm_a"):
            value = -torch.rand(shape) - 0.02
        elif name.endswith("ssm_dt.bias"):
            value = -4 * torch.rand(shape)
        elif name == "token_embd.weight":
            value = value * 2.0 * a.width**-0.5
        else:
            value = value * 1.2 * shape[-1] ** -0.5
        found[name] = value
    return found


def agreement(name: str, server: str, flags: tuple[str, ...]) -> tuple[float, float]:
    """The largest difference after prefixes, and token by token."""
    a = RECIPES[name][0]
    weights = random_weights(a)
    text = random.Random(7).choices(range(4, 1000), k=TEXT_TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        export(
            a,
            {n: w.numpy() for n, w in weights.items()},
            path,
            name="random",
            description="random",
            tokenizer=reference_model(),
            precision="f32",
        )
        biases = _unwhole(path)
        with serving(server, path, 1024, (*FLAGS, *flags)) as url:
            lengths = sorted({*range(1, TEXT_TOKENS, 13), 63, 64, 65, 127, 128, 129, TEXT_TOKENS})
            read = [_told(url, text[:n], 1, biases)[1][0] for n in lengths]
            generated, steps = _told(url, text, GENERATED, biases)
    with torch.no_grad():
        ours = twins.forward(a, weights, torch.tensor([text]))[0].log_softmax(-1)
        whole = torch.tensor([[*text, *generated[:-1]]])
        ours_after = twins.forward(a, weights, whole, chunk=None)[0, TEXT_TOKENS - 1 :]
    prompt = max(_apart(ours[n - 1], row) for n, row in zip(lengths, read, strict=True))
    after = ours_after.log_softmax(-1)
    return prompt, max(_apart(one, row) for one, row in zip(after, steps, strict=True))


def _apart(ours: Tensor, theirs: Tensor) -> float:
    known = torch.isfinite(theirs)
    return float((ours - theirs)[known].abs().max())


def _unwhole(path: Path) -> list[list[Any]]:
    """Biases that keep what is generated to whole ASCII tokens: others come without numbers."""
    fields = GGUFReader(str(path)).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    whole = [
        kind == 1 and all("!" <= c <= "~" or c in "ĠĊ" for c in token)
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    return [[number, False] for number, is_whole in enumerate(whole) if not is_whole]


def _told(url: str, tokens: list[int], count: int, biases: list[Any]) -> tuple[list[int], Tensor]:
    """The tokens a server generates after a prompt, and the log-probabilities before each."""
    body = {
        "prompt": tokens,
        "n_predict": count,
        "temperature": 0,
        "cache_prompt": False,
        "ignore_eos": True,
        "n_probs": 1024,
        "logit_bias": biases,
    }
    reply = httpx2.post(f"{url}/completion", json=body, timeout=600)
    reply.raise_for_status()
    ids, rows = [], []
    for step in reply.json()["completion_probabilities"]:
        row = torch.full((1024,), torch.nan)
        for top in step["top_logprobs"]:
            row[top["id"]] = top["logprob"]
        ids.append(step["id"])
        rows.append(row)
    return ids, torch.stack(rows)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("members", nargs="+", choices=list(RECIPES))
    p.add_argument("--server", default="embedded", help="embedded, or a llama-server")
    args = p.parse_args()
    for name in args.members:
        for ubatch in ("512", "64"):
            prompt, after = agreement(name, args.server, ("-ub", ubatch))
            print(f"{name} -ub {ubatch}: prompt {prompt:.1e}, token by token {after:.1e}")


if __name__ == "__main__":
    main()
