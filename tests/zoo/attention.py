"""Attention in the forms people write it: fused, separate, grouped, rotary, einsum."""

import functools

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats


class TokenClassifier(nn.Module):
    """
    3 -> fc 12 -+-> attention -(+)-> mean over tokens -> fc 5
                +---------------+
    """

    def __init__(self, attention: nn.Module, width: int = 12):
        super().__init__()
        self.stem = nn.Linear(3, width)
        self.attention = attention
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.attention(x)).mean(1))


class FusedQKV(nn.Module):
    """12 -> qkv 3*(3 heads of 4) -> scaled dot product -> proj 12, as in timm."""

    def __init__(self, dim=12, num_heads=3):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class SoftmaxByHand(nn.Module):
    """12 -> qkv 3*(5 heads of 7) -> softmax(q k^T) v -> proj 12."""

    def __init__(self, dim=12, num_heads=5, head_dim=7):
        super().__init__()
        self.num_heads, self.scale = num_heads, head_dim**-0.5
        self.qkv = nn.Linear(dim, 3 * num_heads * head_dim, bias=False)
        self.proj = nn.Linear(num_heads * head_dim, dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(b, n, self.num_heads, -1).transpose(1, 2)
        k = k.view(b, n, self.num_heads, -1).transpose(1, 2)
        v = v.view(b, n, self.num_heads, -1).transpose(1, 2)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = self.drop(scores.softmax(dim=-1))
        return self.proj((scores @ v).transpose(1, 2).flatten(2))


@functools.lru_cache
def divided(shape, heads):
    """What a shape is when its last entry is divided, as einops computes it."""
    return (*shape[:-1], heads, shape[-1] // heads)


class RememberedShapes(nn.Module):
    """12 -> q, k, v of 5 heads x 7, divided as a function remembers -> proj 12."""

    def __init__(self, dim=12, heads=5, head_dim=7):
        super().__init__()
        self.heads, self.scale = heads, head_dim**-0.5
        self.to_qkv = nn.Linear(dim, 3 * heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dim)

    def forward(self, x):
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (t.reshape(divided(t.shape, self.heads)).transpose(1, 2) for t in qkv)
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class SeparateQKV(nn.Module):
    """12 -> q, k of 5 heads x 7, v of 5 heads x 11 -> proj 12."""

    def __init__(self, dim=12, heads=5, key_dim=7, value_dim=11):
        super().__init__()
        self.key_dim, self.value_dim = key_dim, value_dim
        self.q_proj = nn.Linear(dim, heads * key_dim)
        self.k_proj = nn.Linear(dim, heads * key_dim, bias=False)
        self.v_proj = nn.Linear(dim, heads * value_dim)
        self.out_proj = nn.Linear(heads * value_dim, dim)

    def forward(self, x):
        shape = (*x.shape[:-1], -1)
        q = self.q_proj(x).view(*shape, self.key_dim).transpose(1, 2)
        k = self.k_proj(x).view(*shape, self.key_dim).transpose(1, 2)
        v = self.v_proj(x).view(*shape, self.value_dim).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(*shape))


class GroupedQuery(nn.Module):
    """12 -> q of 6 heads, k and v of 2 heads, each x 7 -> keys repeated -> proj 12."""

    def __init__(self, dim=12, heads=6, kv_heads=2, head_dim=7):
        super().__init__()
        self.repeats, self.head_dim = heads // kv_heads, head_dim
        self.q_proj = nn.Linear(dim, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, dim, bias=False)

    def attend(self, q, k, v):
        k, v = (x[:, :, None].expand(-1, -1, self.repeats, -1, -1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k.flatten(1, 2), v.flatten(1, 2))

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, -1, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, n, -1, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, n, -1, self.head_dim).transpose(1, 2)
        out = self.attend(q, k, v).transpose(1, 2).contiguous()
        return self.o_proj(out.view(b, n, -1))


class GroupedQueryFlag(GroupedQuery):
    """The same with `enable_gqa`."""

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


class GroupedQueryInterleave(GroupedQuery):
    """The same with `repeat_interleave` and explicit products."""

    def attend(self, q, k, v):
        k, v = (x.repeat_interleave(self.repeats, dim=1) for x in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) / self.head_dim**0.5
        return torch.matmul(F.softmax(scores, dim=-1), v)


class MultiQuery(nn.Module):
    """12 -> q of 5 heads x 7, one k and v of 7 for all heads -> proj 12."""

    def __init__(self, dim=12, heads=5, head_dim=7):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.qkv = nn.Linear(dim, (heads + 2) * head_dim)
        self.proj = nn.Linear(heads * head_dim, dim)

    def forward(self, x):
        sizes = [self.heads * self.head_dim, self.head_dim, self.head_dim]
        q, k, v = self.qkv(x).split(sizes, dim=-1)
        q = q.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        scores = (q @ k.mT.unsqueeze(1) / 3).softmax(-1)
        return self.proj((scores @ v.unsqueeze(1)).transpose(1, 2).flatten(-2))


class EinsumAttention(nn.Module):
    """12 -> w(12 5 7) -> einsum attention -> w(5 7 12): heads are parameter axes."""

    def __init__(self, dim=12, heads=5, head_dim=7):
        super().__init__()
        self.query = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.key = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.value = nn.Parameter(torch.empty(dim, heads, head_dim))
        self.output = nn.Parameter(torch.empty(heads, head_dim, dim))

    def forward(self, x):
        q = torch.einsum("bnc,chd->bhnd", x, self.query)
        k = torch.einsum("bnc,chd->bhnd", x, self.key)
        v = torch.einsum("bnc,chd->bhnd", x, self.value)
        scores = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        mixed = torch.einsum("bhij,bhjd->bihd", scores, v)
        return torch.einsum("bihd,hdc->bic", mixed, self.output)


class LinearAttention(nn.Module):
    """12 -> phi(q 7) (phi(k 7)^T v 11) / phi(q) sum phi(k) -> proj 12."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(12, 7), nn.Linear(12, 7), nn.Linear(12, 11)
        self.proj = nn.Linear(11, 12)

    def forward(self, x):
        q, k, v = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        normaliser = (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)
        return self.proj(torch.bmm(q, torch.bmm(k.transpose(1, 2), v)) / normaliser)


class FusedLinearAttention(nn.Module):
    """12 -> [q | k | v] 3x7 -> sigma(q) (softmax(k)^T v): two axes of one width."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(12, 21), nn.Linear(7, 12)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        context = torch.einsum("btd,bte->bde", k.softmax(1), v)
        return self.proj(torch.einsum("btd,bde->bte", q.sigmoid(), context))


def rotate_half(x):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


def rotate_pairs(x):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((-odd, even), dim=-1).flatten(-2)


class Rotary(nn.Module):
    """12 -> q, k, v (5 heads x 6) -> q, k rotated -> attention -> proj 12."""

    def __init__(self, rotate, dim=12, heads=5, head_dim=6):
        super().__init__()
        self.rotate, self.heads = rotate, heads
        self.qkv = nn.Linear(dim, 3 * heads * head_dim)
        self.proj = nn.Linear(heads * head_dim, dim)
        frequencies = 10.0 ** -torch.linspace(0, 1, head_dim // 2)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def spread(self, angles):
        if self.rotate is rotate_half:
            return torch.cat((angles, angles), -1)
        return angles.repeat_interleave(2, -1)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        angles = torch.outer(torch.arange(n).to(x), self.frequencies)
        cos, sin = self.spread(angles).cos(), self.spread(angles).sin()
        q, k = (t * cos + self.rotate(t) * sin for t in (q, k))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(b, n, -1))


class ShiftedPositions(nn.Module):
    """12 -> q, k, v (5 heads x 7), scores of distances shifted by rows -> proj 12."""

    def __init__(self, dim=12, heads=5, head_dim=7):
        super().__init__()
        self.heads, width = heads, heads * head_dim
        self.qkv, self.proj = nn.Linear(dim, 3 * width), nn.Linear(width, dim)
        self.position = nn.Linear(3, width, bias=False)
        self.register_buffer("places", torch.randn(17, 3))

    def shifted(self, scores):
        """From one column for each distance to one for each token."""
        b, h, n, distances = scores.shape
        scores = F.pad(scores, (1, 0)).view(b, h, distances + 1, n)[:, :, 1:]
        return scores.view(b, h, n, distances)[..., :n]

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in self.qkv(x).chunk(3, -1))
        places = self.position(self.places).unflatten(-1, (self.heads, -1))
        scores = torch.einsum("bihd,bjhd->bhij", q, k)
        scores = scores + self.shifted(torch.einsum("bihd,jhd->bhij", q, places))
        return self.proj(
            torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2)
        )


SEQUENCE = floats(2, 9, 3)


def _classifier(attention, *options, groups=1) -> Entry:
    return Entry(
        lambda: TokenClassifier(attention(*options)), SEQUENCE, expect=at_least(groups)
    )


ENTRIES = {
    "fused_qkv": _classifier(FusedQKV, groups=0),
    "softmax_by_hand": _classifier(SoftmaxByHand),
    "remembered_shapes": _classifier(RememberedShapes, groups=3),
    "separate_qkv": _classifier(SeparateQKV, groups=2),
    "grouped_query": _classifier(GroupedQuery),
    "grouped_query_flag": _classifier(GroupedQueryFlag),
    "grouped_query_interleave": _classifier(GroupedQueryInterleave),
    "multi_query": _classifier(MultiQuery),
    "einsum_attention": _classifier(EinsumAttention, groups=2),
    "linear_attention": _classifier(LinearAttention, groups=2),
    "fused_linear_attention": _classifier(FusedLinearAttention, groups=0),
    "rotary_half": _classifier(Rotary, rotate_half),
    "rotary_pairs": _classifier(Rotary, rotate_pairs),
    "shifted_positions": _classifier(ShiftedPositions, groups=4),
}
