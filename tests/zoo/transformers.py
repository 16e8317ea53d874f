"""Whole small transformers, as their libraries write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from .attention import FusedQKV, rotate_half
from .entry import Entry, at_least, floats, tokens


class ViTBlock(nn.Module):
    """
    x -+-> LN -> attention -(+)-+-> LN -> fc 29 -> GELU -> fc -(+)->
       +---------------------+  +-------------------------------+
    """

    def __init__(self, dim, num_heads, hidden):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), FusedQKV(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """3 -> patches 3x5 -> 15 wide -> cls | tokens -> + position -> 2 blocks -> fc 5."""

    def __init__(self, dim=15):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, (3, 5), stride=(3, 5))
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.empty(1, 7, dim))
        self.blocks = nn.Sequential(ViTBlock(dim, 3, 29), ViTBlock(dim, 5, 31))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 5)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.norm(self.blocks(x + self.pos_embed))
        return self.head(x[:, 0])


class MixerBlock(nn.Module):
    """x -> LN -> fc 17 mixes tokens -> LN -> fc 19 mixes channels, both residual."""

    def __init__(self, dim=11, num_tokens=6):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token1, self.token2 = nn.Linear(num_tokens, 17), nn.Linear(17, num_tokens)
        self.channel1, self.channel2 = nn.Linear(dim, 19), nn.Linear(19, dim)

    def forward(self, x):
        y = self.token2(F.gelu(self.token1(self.norm1(x).transpose(1, 2))))
        x = x + y.transpose(1, 2)
        return x + self.channel2(F.gelu(self.channel1(self.norm2(x))))


class Mixer(nn.Module):
    """3 -> patches 3x5 -> 11 wide x 6 tokens -> mixer block -> LN -> mean -> fc 5."""

    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 11, (3, 5), stride=(3, 5))
        self.block, self.norm = MixerBlock(), nn.LayerNorm(11)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.block(x)).mean(dim=1))


class GPTBlock(nn.Module):
    """x -> LN -> causal attention -> LN -> MLP 29, both residual, as in nanoGPT."""

    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head, self.n_embd = n_head, dim
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.c_fc, self.mlp_proj = nn.Linear(dim, 29), nn.Linear(29, dim)
        self.register_buffer("mask", torch.ones(1, 1, 8, 8).tril().bool())

    def attention(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(~self.mask[:, :, :t, :t], -torch.inf)
        y = scores.softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """tokens 23 -> embedding 15 + position -> block -> LN -> tied head 23."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(23, 15), nn.Embedding(8, 15)
        self.block, self.ln_f = GPTBlock(15, 3), nn.LayerNorm(15)
        self.lm_head = nn.Linear(15, 23, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx):
        positions = torch.arange(idx.size(1), device=idx.device)
        x = self.wte(idx) + self.wpe(positions)
        return self.lm_head(self.ln_f(self.block(x)))


class LlamaLayer(nn.Module):
    """x -> RMS -> rotary GQA (4 heads, 2 of keys, x 6) -> RMS -> SwiGLU 29."""

    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)
        self.q_proj = nn.Linear(dim, 24, bias=False)
        self.k_proj = nn.Linear(dim, 12, bias=False)
        self.v_proj = nn.Linear(dim, 12, bias=False)
        self.o_proj = nn.Linear(24, dim, bias=False)
        self.gate_proj = nn.Linear(dim, 29, bias=False)
        self.up_proj = nn.Linear(dim, 29, bias=False)
        self.down_proj = nn.Linear(29, dim, bias=False)

    def attention(self, x, cos, sin):
        shape = (*x.shape[:-1], -1, 6)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
        k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(*x.shape[:-1], -1))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    """tokens 23 -> embedding 13 -> 2 layers -> RMS -> head 23."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(23, 13)
        self.layers = nn.ModuleList(LlamaLayer(13) for _ in range(2))
        self.norm, self.lm_head = nn.RMSNorm(13), nn.Linear(13, 23, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        positions = torch.arange(input_ids.shape[1]).to(x)
        angles = torch.outer(positions, 10.0 ** -torch.arange(3).to(x))
        angles = torch.cat((angles, angles), dim=-1)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.lm_head(self.norm(x))


class BiasedAttention(nn.Module):
    """12 -> q, k, v (5 heads x 7) -> softmax(q k^T + bias per head) v -> proj 12."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 35, bias=False) for _ in range(3))
        self.o = nn.Linear(35, 12, bias=False)

    def forward(self, x, bias):
        q, k, v = (
            layer(x).view(*x.shape[:2], 5, 7).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = torch.softmax(q @ k.transpose(3, 2) + bias, dim=-1)
        return x + self.o((scores @ v).transpose(1, 2).reshape(*x.shape[:2], 35))


class T5(nn.Module):
    """
    tokens 23 -> embedding 12 -> attention -> attention -> head 5
    distances -> embedding 5 heads ---+-----------+
    """

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(23, 12)
        self.relative_bias = nn.Embedding(15, 5)
        self.layer1, self.layer2 = BiasedAttention(), BiasedAttention()
        self.head = nn.Linear(12, 5)

    def forward(self, ids):
        positions = torch.arange(ids.shape[1])
        distances = positions[None, :] - positions[:, None] + 7
        bias = self.relative_bias(distances).permute(2, 0, 1).unsqueeze(0)
        return self.head(self.layer2(self.layer1(self.embed(ids), bias), bias))


class TorchEncoder(nn.Module):
    """3 -> fc 12 -> nn.TransformerEncoder (3 heads, ffn 29) -> mean -> fc 5."""

    def __init__(self, *, norm_first):
        super().__init__()
        self.stem = nn.Linear(3, 12)
        layer = nn.TransformerEncoderLayer(
            12, 3, 29, batch_first=True, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.encoder(self.stem(x)).mean(1))


TOKENS, IMAGE, SEQUENCE = tokens(23, 2, 8), floats(2, 3, 9, 10), floats(2, 9, 3)

ENTRIES = {
    "vit": Entry(ViT, IMAGE, expect=at_least(2)),
    "mixer": Entry(Mixer, IMAGE, expect=at_least(2)),
    "gpt": Entry(GPT, TOKENS, expect=at_least(1)),
    "llama": Entry(Llama, TOKENS, expect=at_least(2)),
    "t5": Entry(T5, TOKENS),
    "torch_encoder": Entry(lambda: TorchEncoder(norm_first=False), SEQUENCE),
    "torch_encoder_norm_first": Entry(lambda: TorchEncoder(norm_first=True), SEQUENCE),
}
