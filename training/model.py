"""The reference model in PyTorch: llama blocks with one KV head, and the losses that sharpen it.

Four layers. The first two look around locally, the third finds the question that is being
answered, the fourth finds that question's code; head 0 of the last two is supervised to do so.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.data import ANSWER_ROWS, BACKGROUND, START, STEPS

ROPE_BASE = 1e24
CONTEXT_TOKENS = 1 << 22
RMS_EPSILON = 1e-5
_FAR = -1e9


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a llama model with one KV head."""

    vocabulary: int = 1024
    width: int = 256
    layers: int = 4
    heads: int = 2
    head_size: int = 64
    feed_forward: int = 768

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def rope_tables(positions: Tensor, head_size: int, coarse: Tensor | None = None) -> Any:
    """cos and sin [B, T, head_size/2] as ggml's CPU code makes them: float32, theta multiplied up.

    `coarse` [B] marks samples whose angles are reduced the way graphics hardware does it, in
    float32 revolutions: at 4M tokens that is an error of up to 0.2 of a position.
    """
    scale = float(np.float32(ROPE_BASE) ** np.float32(-2.0 / head_size))
    factor = torch.tensor(scale, dtype=torch.float32, device=positions.device)
    theta = positions.float()
    angles = []
    for _ in range(head_size // 2):
        angles.append(theta)
        theta = theta * factor
    angle = torch.stack(angles, -1)
    if coarse is not None:
        turns = angle * (1 / (2 * math.pi))
        reduced = (turns - turns.floor()) * (2 * math.pi)
        angle = torch.where(coarse[:, None, None], reduced, angle)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate interleaved pairs of x [B, H, T, head_size] (GGUF's NORM layout)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def fake_q4_0(x: Tensor) -> Tensor:
    """x after a round trip through ggml's q4_0, blocks of 32 along the last axis."""
    blocks = x.detach().float().unflatten(-1, (-1, 32))
    high, low = blocks.amax(-1, True), blocks.amin(-1, True)
    step = torch.where(high > -low, high, low) / -8
    step = torch.where(step == 0, torch.ones_like(step), step)
    levels = (blocks / step + 8.5).floor().clamp(0, 15) - 8
    return (levels * step.half().float()).flatten(-2)


def fake_q8_0(x: Tensor) -> Tensor:
    """x after a round trip through ggml's q8_0, blocks of 32 along the last axis."""
    blocks = x.detach().float().unflatten(-1, (-1, 32))
    step = blocks.abs().amax(-1, True) / 127
    step = torch.where(step == 0, torch.ones_like(step), step)
    return ((blocks / step).round() * step.half().float()).flatten(-2)


def draw_positions(flags: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Positions [B, T]: contiguous within a record, random gaps before records, up to 4M.

    Two samples of ten have no gaps; three have a span drawn evenly in its logarithm; half end in
    the last quarters of the context, where float32 angles are coarsest.
    """
    size, length = flags.shape
    device = flags.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device, generator=generator)

    kind = uniform(size, 1)
    room = CONTEXT_TOKENS - length - 8
    low = torch.exp2(8 + 13.9 * uniform(size, 1))
    high = room * (0.25 + 0.75 * uniform(size, 1))
    span = torch.where(kind < 0.2, 0.0, torch.where(kind < 0.5, low, high)).clamp(max=room)
    share = torch.tensor([0.1, 0.3, 0.7, 1.0], device=device)[
        torch.randint(4, (size, 1), device=device, generator=generator)
    ]
    is_start = (flags & START) > 0
    kept = is_start & (uniform(size, length) < share)
    kept = torch.where(kept.any(1, True), kept, is_start)
    weight = -torch.log(uniform(size, length).clamp(min=1e-9))
    weight = torch.where(uniform(size, 1) < 0.5, weight, weight**3) * kept
    gaps = (weight / weight.sum(1, True).clamp(min=1e-9) * span).floor().long()
    return torch.arange(length, device=device) + gaps.cumsum(1)


def draw_bias(flags: Tensor, nats: float, generator: torch.Generator | None = None) -> Tensor:
    """Key bias [B, T] that lets each background token stand for up to e^nats of its like.

    A fifth of the samples have none. In half of the others only some records are multiplied, so
    that the rest are read the way a background token is read among millions.
    """
    size, length = flags.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, device=flags.device, generator=generator)

    level = torch.where(uniform(size, 1) < 0.2, 0.0, uniform(size, 1) * nats)
    share = torch.where(uniform(size, 1) < 0.5, 1.0, 0.3 + 0.7 * uniform(size, 1))
    record = ((flags & START) > 0).long().cumsum(1)
    multiplied = uniform(size, length).gather(1, record.clamp(max=length - 1)) < share
    return ((flags & BACKGROUND) > 0) * multiplied * level


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + RMS_EPSILON) * self.weight


def _linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(inputs))
    return layer


class LookUp(NamedTuple):
    """What head 0 of a layer must attend to, and against which keys of other samples.

    `query` [B, A] rows, `target` [B, A, n] rows any of which is right, `weight` [B, A];
    `chosen` [M] indices into the flattened [B, A], `keys` [N] into the flattened [B, T].
    """

    query: Tensor
    target: Tensor
    weight: Tensor
    chosen: Tensor
    keys: Tensor
    positions: Tensor
    margin: Tensor
    crowd: Tensor


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, size = shape.width, shape.head_size
        self.heads, self.size = shape.heads, size
        self.n1, self.n2 = RMSNorm(width), RMSNorm(width)
        self.q = _linear(width, shape.heads * size)
        self.k, self.v = _linear(width, size), _linear(width, size)
        self.o = _linear(shape.heads * size, width, 0.5)
        self.g, self.u = _linear(width, shape.feed_forward), _linear(width, shape.feed_forward)
        self.w = _linear(shape.feed_forward, width, 0.5)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [B, H, T, size], rotated keys and values [B, 1, T, size], float32."""
        size, length, _ = x.shape
        h = self.n1(x)
        q = self.q(h).view(size, length, self.heads, self.size).transpose(1, 2).float()
        k = self.k(h).view(size, length, 1, self.size).transpose(1, 2).float()
        v = self.v(h).view(size, length, 1, self.size).transpose(1, 2).float()
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual stream after attention output [B, T, H*size] and the feed-forward."""
        x = x + self.o(attended).float()
        h = self.n2(x)
        return x + self.w(F.silu(self.g(h)) * self.u(h)).float()

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        bias: Tensor,
        quantised: Tensor,
        look: LookUp | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
        q, k, v = self.project(x, cos, sin)
        mask = quantised.view(-1, 1, 1, 1)
        k = k + (fake_q4_0(k) - k.detach()) * mask
        v = v + (fake_q4_0(v) - v.detach()) * mask
        losses = None if look is None else self._sharpen(q, k, bias, look)
        one = torch.zeros_like(q[..., :8])
        one[..., 0] = 1
        extra = torch.zeros_like(k[..., :8])
        extra[..., 0] = bias[:, None] * self.size**0.5
        kind = torch.bfloat16 if x.is_cuda else torch.float32
        attended = F.scaled_dot_product_attention(
            torch.cat([q, one], -1).to(kind),
            torch.cat([k, extra], -1).to(kind).expand(-1, self.heads, -1, -1),
            F.pad(v, (0, 8)).to(kind).expand(-1, self.heads, -1, -1),
            is_causal=True,
            scale=self.size**-0.5,
        )[..., : self.size]
        return self.finish(x, attended.transpose(1, 2).flatten(2)), losses

    def _sharpen(
        self, q: Tensor, k: Tensor, bias: Tensor, look: LookUp
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses of head 0: within the sample, against other samples' background; error rate."""
        length = k.shape[2]
        index = look.query[..., None].expand(-1, -1, self.size)
        queries = q[:, 0].gather(1, index) * self.size**-0.5
        logits = torch.einsum("bad,btd->bat", queries, k[:, 0]) + bias[:, None]
        rows = torch.arange(length, device=q.device)
        logits = logits.masked_fill(rows > look.query[..., None], _FAR)
        right = torch.logsumexp(logits.gather(2, look.target), -1)
        wrong = torch.logsumexp(logits.scatter(2, look.target, _FAR), -1)
        total = look.weight.sum().clamp(min=1)
        inside = (F.softplus(wrong + look.margin - right) * look.weight).sum() / total
        error = ((wrong > right) * look.weight).sum() / total
        chosen_q = queries.flatten(0, 1)[look.chosen]
        keys = k[:, 0].flatten(0, 1)[look.keys]
        crowd = (chosen_q @ keys.t()).float()
        query_position = look.positions.gather(1, look.query).flatten()[look.chosen]
        later = look.positions.flatten()[look.keys] > query_position[:, None]
        rest = torch.logsumexp(crowd.masked_fill(later, _FAR), -1) + look.crowd
        chosen_weight = look.weight.flatten()[look.chosen]
        short = F.softplus(rest + look.margin - right.flatten()[look.chosen])
        across = (short * chosen_weight).sum() / chosen_weight.sum().clamp(min=1)
        return inside, across, error


class ReferenceModel(nn.Module):
    """The exported part is `emb`, `blocks` and `nf`; the probes only help training."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.emb = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.emb.weight, std=2 * shape.width**-0.5)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.nf = RMSNorm(shape.width)
        self.step_probe = nn.Linear(shape.width, 2 * STEPS)
        self.name_probe = nn.Linear(shape.width, 48, bias=False)

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor,
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        bias: Tensor,
        quantised: Tensor,
        aux: Tensor,
        chosen: Tensor,
        keys: Tensor,
        margin: Tensor,
        crowd: Tensor,
    ) -> dict[str, Tensor]:
        """Losses and measures of one batch; `labels` is -100 outside the answers."""
        x = self.emb(tokens)
        query = aux[..., 0].clamp(min=0)
        weight = (aux[..., 0] >= 0).float()
        has_code = weight * (aux[..., 3] >= 0)
        span = torch.arange(3, device=tokens.device)
        question = torch.minimum(aux[..., 1:2] + span, aux[..., 2:3]).clamp(min=0)
        code = aux[..., 3:4].clamp(min=0)
        out: dict[str, Tensor] = {}
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            look = None
            if i >= last - 1:
                target, w = (question, weight) if i == last - 1 else (code, has_code)
                look = LookUp(query, target, w, chosen, keys, positions, margin, crowd)
            x, losses = block(x, cos, sin, bias, quantised, look)
            if losses is not None:
                name = "question" if i == last - 1 else "code"
                out[name], out[name + "_far"], out[name + "_wrong"] = losses
            if i == 1:
                out["probe"] = self._probes(x, aux, query, weight, has_code)
        index = labels.ge(0).float().topk(ANSWER_ROWS + 44, dim=1, sorted=False).indices
        wanted = labels.gather(1, index)
        rows = x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
        logits = (self.nf(rows) @ self.emb.weight.t()).float()
        is_answer = wanted.ge(0)
        flat = F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="sum"
        )
        out["answer"] = flat / is_answer.sum()
        out["exact"] = ((logits.argmax(-1) == wanted) | ~is_answer).all(1).float().mean()
        return out

    def _probes(
        self, x: Tensor, aux: Tensor, query: Tensor, weight: Tensor, has_code: Tensor
    ) -> Tensor:
        """After layer 2: which step of the code, and which of the sample's labels."""
        mark, code = aux[..., 1].clamp(min=0), aux[..., 3].clamp(min=0)

        def at(rows: Tensor) -> Tensor:
            return F.normalize(x, dim=-1).gather(1, rows[..., None].expand(-1, -1, x.shape[-1]))

        asked = F.normalize(self.name_probe(at(mark) * 16).float(), dim=-1)
        held = F.normalize(self.name_probe(at(code) * 16).float(), dim=-1)
        score = 16 * asked @ held.transpose(1, 2)
        own = score.diagonal(dim1=1, dim2=2)
        other = aux[:, :, None, 3] - aux[:, :, None, 4] != aux[:, None, :, 3] - aux[:, None, :, 4]
        other = other & (has_code[:, None] > 0)
        rest = torch.logsumexp(score.masked_fill(~other, _FAR), -1)
        coded = has_code.sum().clamp(min=1)
        name = (F.softplus(rest - own) * has_code).sum() / coded
        step = aux[..., 4].clamp(min=0)
        here = self.step_probe(at(query) * 16).float()[..., :STEPS]
        there = self.step_probe(at(code) * 16).float()[..., STEPS:]
        step_here = F.cross_entropy(here.transpose(1, 2), step, reduction="none") * weight
        step_there = F.cross_entropy(there.transpose(1, 2), step, reduction="none") * has_code
        return name + step_here.sum() / weight.sum().clamp(min=1) + step_there.sum() / coded
