"""One stage of training: a seeded run of a fixed number of steps that can be resumed.

python -m training.train --stage 1 --steps 11800 --out build/training/model.pt
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from training.data import ANSWER, BACKGROUND, Packer
from training.model import (
    CONTEXT_TOKENS,
    ReferenceModel,
    Shape,
    draw_bias,
    draw_positions,
    rope_tables,
)
from training.tokenizer import load_tokenizer

AUX_WEIGHT = 0.5
BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.02


@dataclass(frozen=True, slots=True)
class Stage:
    """How one stage's knobs move over its progress from 0 to 1.

    `bias_nats` and `margin` are reached by a ramp when `from_scratch`, else from the start.
    """

    peak_lr: float
    bias_nats: float
    margin: float
    from_scratch: bool
    easy: float = 0.0
    easy_until: float = 0.12

    def lr(self, step: int, steps: int) -> float:
        """Warm-up of 200 steps (at most a tenth), then a cosine to 1 % of the peak."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        warm_up = max(1, min(200, steps // 10))
        return self.peak_lr * min(1.0, (step + 1) / warm_up) * (0.01 + 0.99 * cosine)

    def bias_at(self, progress: float) -> float:
        """Background bias: none before a tenth of a stage from scratch.

        With an earlier ramp the look-ups never form.
        """
        ramp = min(1.0, max(0.0, progress - 0.1) / 0.4) if self.from_scratch else 1.0
        return self.bias_nats * ramp

    def margin_at(self, progress: float) -> float:
        """Lead in nats that the supervised look-ups are asked for."""
        return self.margin * (min(1.0, progress / 0.5) if self.from_scratch else 1.0)

    def easy_at(self, progress: float) -> float:
        """Share of easy episodes: falls to none by `easy_until`."""
        return self.easy * max(0.0, 1 - progress / self.easy_until)


STAGES = {
    1: Stage(1.2e-3, bias_nats=10, margin=4, from_scratch=True, easy=0.8),
    2: Stage(3e-4, bias_nats=11, margin=6, from_scratch=False),
}
TINY_EASY = Stage(5e-3, bias_nats=0, margin=0, from_scratch=True, easy=1, easy_until=1e9)
"""For models too small to do more than learn the form of an answer."""


class Samples(IterableDataset[tuple[Tensor, Tensor, Tensor]]):
    """Batches of one worker; `easy` is shared memory, set by the trainer as it goes."""

    def __init__(
        self, tokenizer: Path, seed: int, shapes: list[tuple[int, int]], easy: Tensor
    ) -> None:
        self._tokenizer, self._seed = tokenizer, seed
        self._shapes, self._easy = shapes, easy

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        torch.set_num_threads(1)
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        packer = Packer(load_tokenizer(self._tokenizer), self._seed * 1000 + worker)
        index = worker
        while True:
            # The shape follows the global batch number, so that it does not depend on the worker.
            size, length = self._shapes[index % len(self._shapes)]
            batch = packer.batch(size, length, float(self._easy[0]))
            yield (
                torch.from_numpy(batch.tokens),
                torch.from_numpy(batch.flags),
                torch.from_numpy(batch.aux),
            )
            index += workers


class Trainer:
    """Model, optimiser and random state of one stage."""

    def __init__(
        self,
        shape: Shape,
        stage: Stage,
        seed: int,
        device: str,
        *,
        compiled: bool = True,
        coarse: float = 0.3,
        crowd: tuple[int, int] = (1024, 32_768),
    ) -> None:
        """`coarse` is the share of samples with hardware-style angles; `crowd` how many queries
        are held against how many background keys of the whole batch, each step."""
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("high")
        self.device, self.stage, self.coarse = device, stage, coarse
        self.queries, self.keys = crowd
        self.model = ReferenceModel(shape).to(device)
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": WEIGHT_DECAY},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=stage.peak_lr,
            betas=BETAS,
            fused=device == "cuda",
        )
        self.margin = torch.zeros((), device=device)
        self.crowd = torch.zeros((), device=device)
        self._run = torch.compile(self.model, dynamic=False) if compiled else self.model

    def step(
        self, batch: tuple[Tensor, Tensor, Tensor], step: int, steps: int
    ) -> dict[str, Tensor]:
        """One optimiser step; the measures are tensors, read them seldom."""
        tokens, flags, aux = (t.to(self.device, non_blocking=True) for t in batch)
        progress = step / steps
        for group in self.optimiser.param_groups:
            group["lr"] = self.stage.lr(step, steps)
        nats = self.stage.bias_at(progress)
        self.margin.fill_(self.stage.margin_at(progress))
        tokens, aux = tokens.long(), aux.long()
        answer = (flags[:, 1:] & ANSWER) > 0
        labels = torch.where(answer, tokens[:, 1:], -100)
        inputs, marks = tokens[:, :-1].contiguous(), flags[:, :-1].contiguous()
        positions = draw_positions(marks)
        bias = draw_bias(marks, nats)
        size = tokens.shape[0]
        coarse = torch.rand(size, device=self.device) < self.coarse
        cos, sin = rope_tables(positions, self.model.shape.head_size, coarse)
        quantised = (torch.rand(size, device=self.device) < 0.5).float()
        rows = (aux[..., 0] >= 0).flatten().float()
        chosen = torch.multinomial(rows, self.queries, replacement=True)
        is_background = (marks & BACKGROUND).flatten().float()
        keys = torch.multinomial(is_background, self.keys, replacement=True)
        # The keys drawn stand for a full context once the bias has reached 10 nats.
        self.crowd.fill_(math.log(CONTEXT_TOKENS / self.keys) - 10 + nats)
        on_gpu = self.device == "cuda"
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=on_gpu):
            out = self._run(
                inputs, labels, positions, cos, sin, bias, quantised, aux, chosen, keys,
                self.margin, self.crowd,
            )  # fmt: skip
            aux_loss = out["question"] + out["code"] + out["probe"]
            if nats > 0:
                aux_loss = aux_loss + out["question_far"] + out["code_far"]
            loss = out["answer"] + AUX_WEIGHT * aux_loss
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        out["norm"] = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return {name: value.detach() for name, value in out.items()}


def save(path: Path, model: ReferenceModel, meta: dict[str, object]) -> None:
    state = {name: value.float().cpu() for name, value in model.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save({"shape": model.shape.to_json(), "state": state, "meta": meta}, part)
    part.replace(path)


def load(path: Path, device: str = "cpu") -> ReferenceModel:
    kept = torch.load(path, map_location="cpu", weights_only=True)
    model = ReferenceModel(Shape(**kept["shape"]))
    model.load_state_dict(kept["state"])
    return model.to(device)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--stage", type=int, choices=sorted(STAGES), default=1)
    p.add_argument("--steps", type=int, default=0, help="0: as many as fit into --minutes")
    p.add_argument("--minutes", type=float, default=8.0, help="stop there whatever --steps says")
    p.add_argument("--init", type=Path, help="weights to go on from (stage 2)")
    p.add_argument("--out", type=Path, default=Path("build/training/model.pt"))
    p.add_argument("--tokenizer", type=Path, default=Path("build/training/tokenizer.json"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=0.0, help="peak learning rate; 0: the stage's own")
    p.add_argument("--batch", type=int, default=256, help="samples of 1024 tokens a step")
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--feed-forward", type=int, default=768)
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--coarse", type=float, default=0.3, help="share of hardware-style angles")
    p.add_argument(
        "--crowd", type=int, nargs=2, default=(1024, 32_768), metavar=("QUERIES", "KEYS")
    )
    p.add_argument("--eager", action="store_true", help="no torch.compile")
    p.add_argument("--log-every", type=int, default=500)
    return p


def train(args: argparse.Namespace, stage: Stage | None = None) -> list[dict[str, float]]:
    """Run one stage and write the checkpoint; returns the logged measures."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    stage = stage or STAGES[args.stage]
    if args.lr:
        stage = replace(stage, peak_lr=args.lr)
    tokenizer = load_tokenizer(args.tokenizer)
    shape = Shape(tokenizer.get_vocab_size(), args.width, feed_forward=args.feed_forward)
    trainer = Trainer(
        shape,
        stage,
        args.seed,
        device,
        compiled=not args.eager,
        coarse=args.coarse,
        crowd=tuple(args.crowd),
    )
    if args.init:
        trainer.model.load_state_dict(load(args.init).state_dict())
    easy = torch.tensor([stage.easy_at(0.0)]).share_memory_()
    # One batch in eight is long: documents with up to 64 needles.
    long = (max(1, args.batch * 3 // 8), args.length * 5 // 2)
    shapes = [(args.batch, args.length)] * 7 + [long]
    samples = Samples(args.tokenizer, args.seed, shapes, easy)
    loader = iter(
        DataLoader(
            samples,
            batch_size=None,
            num_workers=args.workers,
            prefetch_factor=6 if args.workers else None,
            pin_memory=device == "cuda",
        )
    )
    log: list[dict[str, float]] = []
    gathered: list[dict[str, Tensor]] = []
    steps = args.steps or 1_000_000
    began = time.perf_counter()
    warm_at, step = None, 0
    while step < steps:
        gathered.append(trainer.step(next(loader), step, steps))
        step += 1
        easy[0] = stage.easy_at(step / steps)
        if step in (24, 224):
            if device == "cuda":
                torch.cuda.synchronize()
            now = time.perf_counter()
            if step == 24:
                warm_at = now
            elif not args.steps and warm_at is not None:
                left_s = args.minutes * 60 - (now - began)
                steps = step + int(left_s / ((now - warm_at) / 200) * 0.97)
                print(f"{steps} steps planned, {(now - warm_at) / 200 * 1e3:.1f} ms each")
        if step % args.log_every == 0 or step == steps or step == 100:
            log.append(_summary(gathered, step, time.perf_counter() - began))
            gathered = []
            print(json.dumps(log[-1]), flush=True)
            if not math.isfinite(log[-1]["answer"]):
                raise SystemExit("the loss is not finite; nothing was saved")
        if step % 100 == 0 and time.perf_counter() - began > args.minutes * 60:
            print(f"time is up at step {step} of {steps}")
            break
    meta = {"stage": args.stage, "steps": step, "planned": steps, "seed": args.seed}
    save(args.out, trainer.model, meta)
    return log


def _summary(gathered: list[dict[str, Tensor]], step: int, elapsed_s: float) -> dict[str, float]:
    mean = {
        name: float(f"{torch.stack([g[name].float() for g in gathered]).mean().item():.4g}")
        for name in gathered[0]
    }
    return {"step": step, "elapsed_s": round(elapsed_s, 1), **mean}


if __name__ == "__main__":
    train(parser().parse_args())
