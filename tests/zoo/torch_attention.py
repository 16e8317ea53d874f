"""Attention as torch has it: `nn.MultiheadAttention` and the layers made of it."""

import torch
from torch import nn

from .attention import TokenClassifier
from .entry import Entry, at_least, floats


class Multihead(nn.Module):
    """15 -> nn.MultiheadAttention(15, 3 heads of 5) -> 15, attending to itself."""

    def __init__(self, *, need_weights=False, width=15, heads=3, **options):
        super().__init__()
        options = {"batch_first": True, **options}
        self.mha = nn.MultiheadAttention(width, heads, **options)
        self.need_weights = need_weights

    def forward(self, x):
        return self.mha(x, x, x, need_weights=self.need_weights)[0]


class Masked(Multihead):
    """The same; later tokens are hidden, and for the first example the last one."""

    def __init__(self, *, causal=True, padding=True, **options):
        super().__init__(**options)
        self.causal, self.padding = causal, padding

    def forward(self, x):
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[0, -1] = True
        return self.mha(
            x,
            x,
            x,
            need_weights=self.need_weights,
            attn_mask=hidden,
            key_padding_mask=padding if self.padding else None,
            is_causal=self.causal,
        )[0]


class Cross(nn.Module):
    """q 15, k 7, v 11 -> nn.MultiheadAttention -> 15, tokens first."""

    def __init__(self, *, use_weights=False, **options):
        super().__init__()
        self.keys, self.values = nn.Linear(15, 7), nn.Linear(15, 11)
        self.mha = nn.MultiheadAttention(15, 3, kdim=7, vdim=11, **options)
        self.use_weights = use_weights

    def forward(self, x):
        x = x.transpose(0, 1)
        out, weights = self.mha(x, self.keys(x), self.values(x))
        out = out.transpose(0, 1)
        return out * weights.sum(-1, keepdim=True) if self.use_weights else out


class PackedCross(nn.Module):
    """q 35, k and v 35 of another layer -> one packed projection -> 35."""

    def __init__(self):
        super().__init__()
        self.memory = nn.Linear(35, 35)
        self.mha = nn.MultiheadAttention(35, 5, batch_first=True)

    def forward(self, x):
        memory = self.memory(x)
        return self.mha(x, memory, memory)[0]


class Own(nn.MultiheadAttention):
    """A user's subclass, which adds something to what torch returns."""

    def forward(self, x):
        return 2 * super().forward(x, x, x, need_weights=False)[0]


class Encoder(nn.Module):
    """20 -> nn.TransformerEncoder of 2 layers (4 heads of 5, hidden 17) -> 20."""

    def __init__(self, *, padding=False, nested=False, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(20, 4, 17, **{"dropout": 0.1, **options})
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.padding = padding

    def forward(self, x):
        if not self.padding:
            return self.encoder(x)
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[0, -2:] = True
        return self.encoder(x, src_key_padding_mask=padding)


class Decoder(nn.Module):
    """20 -> nn.Transformer, one layer each way (4 heads of 5, hidden 17) -> 20."""

    def __init__(self, **options):
        super().__init__()
        self.memory = nn.Linear(20, 20)
        self.transformer = nn.Transformer(20, 4, 1, 1, 17, batch_first=True, **options)

    def forward(self, x):
        causal = nn.Transformer.generate_square_subsequent_mask(
            x.shape[1], dtype=x.dtype
        )
        return self.transformer(self.memory(x), x, tgt_mask=causal, tgt_is_causal=True)


class PerHeadMask(nn.Module):
    """A mask of its own for each of 3 heads comes from outside: heads are frozen."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(3, 15), nn.Linear(15, 5)
        self.mha = nn.MultiheadAttention(15, 3, batch_first=True)

    def forward(self, x, mask):
        x = self.stem(x)
        return self.head(self.mha(x, x, x, attn_mask=mask, need_weights=False)[0])


SEQUENCE = floats(2, 5, 3)


def _classifier(build, groups=3, width=15) -> Entry:
    return Entry(
        lambda: TokenClassifier(build(), width), SEQUENCE, expect=at_least(groups)
    )


def _masked_inputs():
    return torch.randn(2, 5, 3).double(), torch.rand(6, 5, 5) < 0.2


ENTRIES = {
    "torch_multihead": _classifier(Multihead),
    "torch_multihead_tokens_first": _classifier(lambda: Multihead(batch_first=False)),
    "torch_multihead_weights": _classifier(lambda: Multihead(need_weights=True), 4),
    "torch_multihead_even": _classifier(lambda: Multihead(heads=4, width=20), width=20),
    "torch_multihead_no_bias": _classifier(lambda: Multihead(bias=False)),
    "torch_multihead_bias_kv": _classifier(lambda: Multihead(add_bias_kv=True)),
    "torch_multihead_zero": _classifier(
        lambda: Masked(add_bias_kv=True, add_zero_attn=True)
    ),
    "torch_multihead_masked": _classifier(lambda: Masked(causal=False)),
    "torch_multihead_causal": _classifier(lambda: Masked(padding=False)),
    "torch_multihead_mask_weights": _classifier(lambda: Masked(need_weights=True), 4),
    "torch_cross": _classifier(Cross),
    "torch_cross_weights": _classifier(lambda: Cross(use_weights=True), groups=2),
    "torch_cross_packed": _classifier(PackedCross, width=35),
    "torch_own_multihead": _classifier(lambda: Own(15, 3, batch_first=True)),
    "torch_per_head_mask": Entry(PerHeadMask, _masked_inputs, expect=at_least(2)),
    "torch_encoder": _classifier(lambda: Encoder(batch_first=True), 8, width=20),
    "torch_encoder_tokens_first": _classifier(
        lambda: Encoder(norm_first=True, activation="gelu"), 8, width=20
    ),
    "torch_encoder_no_bias": _classifier(
        lambda: Encoder(batch_first=True, bias=False), 8, width=20
    ),
    "torch_encoder_padding": _classifier(
        lambda: Encoder(batch_first=True, padding=True), 8, width=20
    ),
    "torch_encoder_nested": _classifier(
        lambda: Encoder(batch_first=True, padding=True, nested=True), 8, width=20
    ),
    "torch_transformer": _classifier(Decoder, 11, width=20),
}
