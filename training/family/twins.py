"""The family's models in PyTorch: `forward` gives the logits that a right engine gives.

Weights go by their GGUF names, so what is computed here is what `export` writes, unchanged. All
is float32 and differentiable. The state is computed token by token, as it is defined, or in
chunks, as for training.
"""

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from training.family.architectures import Architecture

Weights = Mapping[str, Tensor]
_Named = Callable[[str], Tensor]


def forward(a: Architecture, weights: Weights, tokens: Tensor, *, chunk: int | None = 64) -> Tensor:
    """Logits [B, T, vocabulary] of tokens [B, T]; `chunk` None goes token by token."""
    x = weights["token_embd.weight"][tokens]
    if a.kind == "gemma3":
        x = x * math.sqrt(a.width)
    for layer in range(a.layers):
        x = _block(a, weights, x, layer, chunk)
    return rms(x, weights["output_norm.weight"], a.epsilon) @ weights["output.weight"].T


def _block(a: Architecture, weights: Weights, x: Tensor, layer: int, chunk: int | None) -> Tensor:
    def w(name: str) -> Tensor:
        return weights[f"blk.{layer}.{name}"]

    def normed(value: Tensor, name: str) -> Tensor:
        return rms(value, w(f"{name}.weight"), a.epsilon)

    h = normed(x, "attn_norm")
    y = gated_delta_net(a, w, h, chunk) if a.is_recurrent(layer) else attention(a, w, h, layer)
    if a.kind == "gemma3":
        x = x + normed(y, "post_attention_norm")
        return x + normed(_mlp(w, normed(x, "ffn_norm"), _gelu), "post_ffw_norm")
    x = x + y
    return x + _mlp(w, normed(x, "post_attention_norm"), F.silu)


def _mlp(w: _Named, h: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
    return (act(h @ w("ffn_gate.weight").T) * (h @ w("ffn_up.weight").T)) @ w("ffn_down.weight").T


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def rms(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


# -- Gated DeltaNet ---------------------------------------------------------------------------


def gated_delta_net(a: Architecture, w: _Named, x: Tensor, chunk: int | None) -> Tensor:
    """What a Gated DeltaNet layer adds to x [B, T, width]."""
    size, keys, values = (
        a.number(f"ssm.{n}") for n in ("state_size", "group_count", "time_step_rank")
    )
    mixed = F.silu(causal_conv(x @ w("attn_qkv.weight").T, w("ssm_conv1d.weight")))
    q, k, v = mixed.split([keys * size, keys * size, values * size], -1)
    q, k = (_unit(t.unflatten(-1, (keys, size)), a.epsilon) for t in (q, k))
    repeat = (1, 1, values // keys, 1)  # value head h reads key head h mod `keys`
    q, k, v = (
        t.transpose(1, 2) for t in (q.repeat(repeat), k.repeat(repeat), v.unflatten(-1, (-1, size)))
    )
    beta = (x @ w("ssm_beta.weight").T).sigmoid().transpose(1, 2)
    dt = F.softplus(x @ w("ssm_alpha.weight").T + w("ssm_dt.bias"))
    decay = (dt * w("ssm_a")).transpose(1, 2)
    if chunk is None:
        o = delta_rule(q, k, v, decay, beta)
    else:
        o = delta_rule_in_chunks(q, k, v, decay, beta, chunk)
    o = rms(o.transpose(1, 2), w("ssm_norm.weight"), a.epsilon)
    gate = (x @ w("attn_gate.weight").T).unflatten(-1, (values, size))
    return (o * F.silu(gate)).flatten(-2) @ w("ssm_out.weight").T


def _unit(x: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + epsilon)


def causal_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """Depthwise convolution of x [B, T, C] with kernel [C, n]; the last tap is the token itself."""
    before = kernel.shape[-1] - 1
    channels = F.pad(x.transpose(1, 2), (before, 0))
    return F.conv1d(channels, kernel[:, None], groups=kernel.shape[0]).transpose(1, 2)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """Gated delta rule; q, k, v [B, H, T, S], log decay and beta [B, H, T]; starts empty."""
    size = q.shape[-1]
    state = q.new_zeros(*q.shape[:2], size, size)  # [key, value]
    read = []
    for t in range(q.shape[2]):
        state = state * decay[..., t, None, None].exp()
        seen = (state * k[:, :, t, :, None]).sum(-2)
        change = (v[:, :, t] - seen) * beta[..., t, None]
        state = state + k[:, :, t, :, None] * change[..., None, :]
        read.append((state * q[:, :, t, :, None]).sum(-2))
    return torch.stack(read, 2) * size**-0.5


def delta_rule_in_chunks(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, chunk: int
) -> Tensor:
    """The same, `chunk` tokens at a time."""
    length, size = q.shape[2], q.shape[-1]
    pad = -length % chunk
    n = (length + pad) // chunk
    q, k, v = (F.pad(x, (0, 0, 0, pad)).unflatten(2, (n, chunk)) for x in (q * size**-0.5, k, v))
    g = F.pad(decay, (0, pad)).unflatten(2, (n, chunk)).cumsum(-1)
    beta = F.pad(beta, (0, pad)).unflatten(2, (n, chunk))[..., None]
    low = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    between = (g[..., :, None] - g[..., None, :]).masked_fill(~low, -torch.inf).exp()
    eye = torch.eye(chunk, device=q.device, dtype=q.dtype)
    system = eye + ((k * beta) @ k.transpose(-1, -2) * between).tril(-1)
    right = torch.cat([v * beta, k * beta * g[..., None].exp()], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    value, key = solved[..., :size], solved[..., size:]
    inner = q @ k.transpose(-1, -2) * between
    state = q.new_zeros(*q.shape[:2], size, size)
    read = []
    for c in range(n):
        new = value[:, :, c] - key[:, :, c] @ state
        read.append(inner[:, :, c] @ new + (q[:, :, c] * g[:, :, c, :, None].exp()) @ state)
        last = g[:, :, c, -1, None, None]
        grown = (k[:, :, c] * (last - g[:, :, c, :, None]).exp()).transpose(-1, -2) @ new
        state = state * last.exp() + grown
    return torch.cat(read, 2)[:, :, :length]


# -- attention --------------------------------------------------------------------------------


def attention(a: Architecture, w: _Named, x: Tensor, layer: int) -> Tensor:
    """What an attention layer adds to x [B, T, width], over its window where it has one."""
    size = a.head_size
    q, k, v = (x @ w(f"attn_{name}.weight").T for name in "qkv")
    q = q.unflatten(-1, (a.heads, -1)).transpose(1, 2)
    q, gate = q[..., :size], q[..., size:]  # no gate in gemma3
    k, v = (t.unflatten(-1, (a.kv_heads, size)).transpose(1, 2) for t in (k, v))
    q, k = rms(q, w("attn_q_norm.weight"), a.epsilon), rms(k, w("attn_k_norm.weight"), a.epsilon)
    window = a.window(layer)
    base = a.meta["rope.freq_base_swa"] if window else a.rope_base
    turned = a.number("rope.dimension_count") if "rope.dimension_count" in a.meta else size
    assert isinstance(base, float)
    q, k = (rotate(t, base, turned) for t in (q, k))
    o = attend(q, k, v, window)
    if a.kind == "qwen35":
        o = o * gate.sigmoid()
    return o.transpose(1, 2).flatten(-2) @ w("attn_output.weight").T


def rotate(x: Tensor, base: float, dims: int) -> Tensor:
    """Rotary positions on the first `dims` of x [B, H, T, S], in pairs (0, d/2), (1, d/2 + 1) …

    Qwen 3.5's interleaved sections are the same for text.
    """
    half = dims // 2
    speed = base ** (-torch.arange(half, dtype=x.dtype, device=x.device) * 2 / dims)
    angle = torch.arange(x.shape[2], dtype=x.dtype, device=x.device)[:, None] * speed
    one, two, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([one * cos - two * sin, one * sin + two * cos, rest], -1)


def attend(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Causal attention over q, k, v [B, H, T, S]; a window of n sees itself and n - 1 before it."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    row = torch.arange(q.shape[2], device=q.device)
    apart = row[:, None] - row[None, :]
    hidden = (apart < 0) | (apart >= window) if window else apart < 0
    logits = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    return logits.softmax(-1) @ v
