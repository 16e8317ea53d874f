"""Random blocks from (b n c) to (b n c)."""

from random import Random

import torch
from torch import nn
from torch.nn import functional as F

from .shapes import Block, Shape, activation, divisor, width


class Attention(nn.Module):
    """Self-attention with fused weights; queries may share keys and values."""

    def __init__(self, channels, kv_heads, repeats, head_dim, out):
        super().__init__()
        self.repeats, self.head_dim = repeats, head_dim
        query = kv_heads * repeats * head_dim
        self.sizes = [query, kv_heads * head_dim, kv_heads * head_dim]
        self.qkv = nn.Linear(channels, sum(self.sizes))
        self.proj = nn.Linear(query, out)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for part in self.qkv(x).split(self.sizes, dim=-1)
        )
        if self.repeats > 1:
            k, v = (part.repeat_interleave(self.repeats, dim=1) for part in (k, v))
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).flatten(2))


class FusedAttention(nn.Module):
    """Self-attention over one reshape of a fused projection."""

    def __init__(self, channels, num_heads, head_dim):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(channels, 3 * num_heads * head_dim, bias=False)
        self.proj = nn.Linear(num_heads * head_dim, channels)

    def forward(self, x):
        b, n, _ = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q @ k.transpose(-2, -1) / 2).softmax(dim=-1)
        return self.proj((scores @ v).transpose(1, 2).reshape(b, n, -1))


class CrossProjections(nn.Module):
    """Attention with an einsum between separate projections, added to the input."""

    def __init__(self, channels, key, value):
        super().__init__()
        self.q, self.k = nn.Linear(channels, key), nn.Linear(channels, key, bias=False)
        self.v, self.o = nn.Linear(channels, value), nn.Linear(value, channels)

    def forward(self, x):
        scores = torch.einsum("bic,bjc->bij", self.q(x), self.k(x)).softmax(-1)
        return (x + self.o(torch.einsum("bij,bjc->bic", scores, self.v(x)))) / 2


class TorchAttention(nn.Module):
    """nn.MultiheadAttention, batch first."""

    def __init__(self, channels, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Recurrent(nn.Module):
    """The outputs of a recurrent layer at every step."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.gate = nn.Linear(channels, hidden, bias=False)
        self.up = nn.Linear(channels, hidden)
        self.down = nn.Linear(hidden, channels)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Transposed(nn.Module):
    """Applies a layer to (b c n)."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


class ClassToken(nn.Module):
    """Prepends a learned token and adds learned positions."""

    def __init__(self, num_tokens, channels):
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, channels))
        self.position = nn.Parameter(torch.empty(num_tokens + 1, channels))

    def forward(self, x):
        token = self.token.expand(x.shape[0], -1, -1)
        return torch.cat((token, x), dim=1) + self.position


class Residual(nn.Module):
    """x + scale * body(norm(x))."""

    def __init__(self, norm, body, channels):
        super().__init__()
        self.norm, self.body = norm, body
        self.scale = nn.Parameter(torch.empty(channels))

    def forward(self, x):
        return x + self.scale * self.body(self.norm(x))


class RotaryHalves(nn.Module):
    """Multiplies the halves of the width by position-dependent rotations."""

    def forward(self, x):
        angles = torch.arange(x.shape[1]).to(x)[:, None] / 3
        left, right = x.chunk(2, dim=-1)
        rotated = torch.cat((-right, left), dim=-1)
        return x * angles.cos() + rotated * angles.sin()


def attention(rng: Random, shape: Shape) -> nn.Module:
    heads, repeats, head_dim = rng.randint(1, 3), rng.randint(1, 2), rng.randint(2, 5)
    return Attention(shape[1], heads, repeats, head_dim, width(rng))


def torch_attention(rng: Random, shape: Shape) -> nn.Module | None:
    heads = divisor(rng, shape[1])
    return TorchAttention(shape[1], heads) if heads else None


def recurrent(rng: Random, shape: Shape) -> nn.Module:
    layer = rng.choice([nn.LSTM, nn.GRU, nn.RNN])
    return Recurrent(layer(shape[1], width(rng), batch_first=True))


def norm(rng: Random, shape: Shape) -> nn.Module:
    c = shape[1]
    return rng.choice([nn.LayerNorm(c), nn.RMSNorm(c), Transposed(nn.BatchNorm1d(c))])


def mixer(rng: Random, shape: Shape) -> nn.Module:
    tokens, hidden = shape[0], width(rng)
    first, second = nn.Linear(tokens, hidden), nn.Linear(hidden, tokens)
    return Transposed(nn.Sequential(first, activation(rng), second))


def residual(rng: Random, shape: Shape) -> nn.Module:
    body = rng.choice(
        [SwiGLU(shape[1], width(rng)), FusedAttention(shape[1], 2, rng.randint(2, 5))]
    )
    return Residual(norm(rng, shape), body, shape[1])


BLOCKS: tuple[Block, ...] = (
    attention,
    attention,
    torch_attention,
    recurrent,
    norm,
    mixer,
    residual,
    residual,
    lambda rng, shape: nn.Linear(shape[1], width(rng), bias=rng.random() < 0.7),
    lambda rng, shape: nn.Sequential(nn.Linear(shape[1], width(rng)), activation(rng)),
    lambda rng, shape: Transposed(nn.Conv1d(shape[1], width(rng), 3, padding=1)),
    lambda rng, shape: FusedAttention(shape[1], rng.randint(1, 4), rng.randint(2, 5)),
    lambda rng, shape: CrossProjections(shape[1], width(rng), width(rng)),
    lambda rng, shape: SwiGLU(shape[1], width(rng)),
    lambda _, shape: ClassToken(*shape),
    lambda _, shape: RotaryHalves() if shape[1] % 2 == 0 else None,
)
