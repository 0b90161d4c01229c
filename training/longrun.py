"""Exactness at any length in PyTorch, on a GPU: one forward pass over a real prompt and its answer.

    python -m training.longrun --weights build/training/model.pt --spec 131072:4 1048576:2 4194304:1

An answer is exact when every answer token is the most likely one, which is what greedy decoding
needs. Positions are contiguous, keys and values are rounded as the KV type rounds them, attention
runs in f16.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from harness.questions.background import Background
from training.model import Block, ReferenceModel, fake_q4_0, fake_q8_0, rope_tables
from training.prompts import STYLES, Prompt, Style, make_prompt
from training.tokenizer import IM_END, load_tokenizer
from training.train import load

KV_TYPES = ("f16", "q8_0", "q4_0")
_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Result:
    """`margin` is the least lead of the right token's logit; `sharpness_nats` the least lead, in
    nats, of the right code token over everything else together in head 0 of the last layer."""

    exact: bool
    tokens: int
    margin: float
    sharpness_nats: float
    first_wrong: str | None


@dataclass(frozen=True, slots=True)
class Where:
    """The first token's position, and whether angles are reduced as graphics hardware does it."""

    offset: int = 0
    coarse: bool = False


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of `text`; encoded line by line, which gives the same tokens."""
    parts = text.split("\n")
    ends = [part + "\n" for part in parts[:-1]] + parts[-1:]
    return [i for encoding in tokenizer.encode_batch(ends) for i in encoding.ids]


def _round(x: Tensor, kv_type: str) -> Tensor:
    if kv_type == "q8_0":
        return fake_q8_0(x)
    return fake_q4_0(x) if kv_type == "q4_0" else x


@torch.no_grad()
def answer_rows(
    model: ReferenceModel, ids: Tensor, first: int, kv_type: str, where: Where
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits at the answer's rows, and the last layer's head-0 queries there with all its keys."""
    half = torch.float16 if ids.is_cuda else torch.float32
    positions = torch.arange(len(ids), device=ids.device)[None] + where.offset
    coarse = torch.tensor([True], device=ids.device) if where.coarse else None
    cos, sin = rope_tables(positions, model.shape.head_size, coarse)
    h = model.emb(ids)[None].float()
    last_q = last_k = h
    for block in model.blocks:
        assert isinstance(block, Block)
        chunks = []
        for i in range(0, len(ids), _ROWS):
            rows = slice(i, i + _ROWS)
            q, k, v = block.project(h[:, rows], cos[:, rows], sin[:, rows])
            chunks.append((q.to(half), _round(k, kv_type).to(half), _round(v, kv_type).to(half)))
        q, k, v = (torch.cat(parts, 2) for parts in zip(*chunks, strict=True))
        heads = block.heads
        last_q, last_k = q[0, 0, first - 1 : -1].float(), k[0, 0].float()
        attended = F.scaled_dot_product_attention(
            q,
            k.expand(-1, heads, -1, -1).contiguous(),
            v.expand(-1, heads, -1, -1).contiguous(),
            is_causal=True,
            scale=block.size**-0.5,
        )
        attended = attended.transpose(1, 2).flatten(2)
        for i in range(0, len(ids), _ROWS):
            rows = slice(i, i + _ROWS)
            h[:, rows] = block.finish(h[:, rows], attended[:, rows].float())
    logits = (model.nf(h[0, first - 1 : -1]) @ model.emb.weight.t()).float()
    return logits, last_q * model.shape.head_size**-0.5, last_k


def check(
    model: ReferenceModel,
    tokenizer: Tokenizer,
    prompt: Prompt,
    device: str,
    kv_type: str = "f16",
    where: Where = Where(),
) -> Result:
    """Is the prompt's right answer what greedy decoding would give?"""
    before = encode(tokenizer, prompt.chatml)
    answer = [
        *encode(tokenizer, prompt.expected),
        tokenizer.get_vocab(with_added_tokens=True)[IM_END],
    ]
    ids = torch.tensor(before + answer, device=device)
    logits, queries, keys = answer_rows(model, ids, len(before), kv_type, where)
    wanted = ids[len(before) :]
    right = logits.gather(1, wanted[:, None])[:, 0]
    best_other = logits.scatter(1, wanted[:, None], -1e9).amax(1)
    margins = right - best_other
    wrong = (margins <= 0).nonzero()[:, 0].tolist()
    first_wrong = None
    if wrong:
        at = wrong[0]
        got = tokenizer.decode([int(logits[at].argmax())])
        said = tokenizer.decode(answer[:at])
        first_wrong = f"after {said[-24:]!r} wanted {tokenizer.decode([answer[at]])!r} got {got!r}"
    sharp = _sharpness(tokenizer, prompt, np.array(before), queries, keys)
    return Result(not wrong, len(before), float(margins.min()), sharp, first_wrong)


def _sharpness(
    tokenizer: Tokenizer,
    prompt: Prompt,
    before: np.ndarray,
    queries: Tensor,
    keys: Tensor,
) -> float:
    leads = []
    at = 0
    for line in prompt.expected.split("\n"):
        head, code = line.split("=")
        at += len(tokenizer.encode(head + "=").ids)
        code_ids = tokenizer.encode(code).ids
        rows = np.flatnonzero(before == code_ids[0])
        for step, token in enumerate(code_ids):
            rows = rows[rows + step < len(before)]
            rows = rows[before[rows + step] == token]
        for step in range(len(code_ids)):
            logits = keys[: len(before) + at + step] @ queries[at + step]
            places = torch.tensor(rows + step, device=keys.device)
            own = torch.logsumexp(logits[places], 0)
            logits[places] = -1e9
            leads.append(float(own - torch.logsumexp(logits, 0)))
        at += len(code_ids) + 1
    return min(leads)


def run(
    model: ReferenceModel,
    tokenizer: Tokenizer,
    spec: list[str],
    device: str,
    *,
    styles: Sequence[Style],
    backgrounds: Sequence[Background],
    kv_types: Sequence[str],
    seed: int = 70_000,
    where: Where = Where(),
) -> list[dict[str, object]]:
    """Check LENGTH:COUNT prompts for each style, background and KV type; prints one line each."""
    torch.set_float32_matmul_precision("highest")

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]

    table = []
    for item in spec:
        length, number = (int(part) for part in item.split(":"))
        for background in backgrounds:
            for style in styles:
                began = time.perf_counter()
                results: dict[str, list[Result]] = {kv_type: [] for kv_type in kv_types}
                for i in range(number):
                    prompt = make_prompt(seed + i, length, style, background, count)
                    for kv_type in kv_types:
                        found_one = check(model, tokenizer, prompt, device, kv_type, where)
                        results[kv_type].append(found_one)
                for kv_type, found in results.items():
                    wrong = [
                        f"{seed + i}: {r.first_wrong}" for i, r in enumerate(found) if not r.exact
                    ]
                    row: dict[str, object] = {
                        "length": length,
                        "background": background,
                        "style": style,
                        "kv": kv_type,
                        "exact": f"{len(found) - len(wrong)}/{number}",
                        "margin": round(min(r.margin for r in found), 2),
                        "sharpness_nats": round(min(r.sharpness_nats for r in found), 2),
                        "tokens": max(r.tokens for r in found),
                        "elapsed_s": round(time.perf_counter() - began, 1),
                        "wrong": wrong[:3],
                    }
                    table.append(row)
                    print(json.dumps(row, ensure_ascii=False), flush=True)
    return table


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--weights", type=Path, default=Path("build/training/model.pt"))
    p.add_argument("--tokenizer", type=Path, default=Path("build/training/tokenizer.json"))
    p.add_argument("--spec", nargs="+", default=["2048:16", "8192:8"], metavar="TOKENS:COUNT")
    p.add_argument("--styles", nargs="+", default=["suite"], choices=STYLES)
    p.add_argument("--backgrounds", nargs="+", default=["plain"], choices=["plain", "hard"])
    p.add_argument("--kv", nargs="+", default=["f16"], choices=KV_TYPES)
    p.add_argument("--seed", type=int, default=70_000)
    p.add_argument("--offset", type=int, default=0, help="position of the first token")
    p.add_argument("--coarse", action="store_true", help="angles as graphics hardware reduces them")
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(args.weights, device).eval().requires_grad_(False)
    run(
        model,
        load_tokenizer(args.tokenizer),
        args.spec,
        device,
        styles=args.styles,
        backgrounds=args.backgrounds,
        kv_types=args.kv,
        seed=args.seed,
        where=Where(args.offset, args.coarse),
    )


if __name__ == "__main__":
    main()
