"""Networks that lose parts while they learn, and answer the same once they are cut."""

import copy

import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F

import diffprune as dp

TEXT = (copy.__doc__ + pytest.__doc__ + optim.__doc__ + nn.Module.__doc__)[:4000]
LETTERS = sorted(set(TEXT))
CODES = torch.tensor([LETTERS.index(letter) for letter in TEXT])
LENGTH = 24


def batch(size=16):
    starts = torch.randint(len(CODES) - LENGTH - 1, (size,)).unsqueeze(1)
    window = CODES[starts + torch.arange(LENGTH + 1)]
    return window[:, :-1], window[:, 1:]


class Attention(nn.Module):
    """Causal self-attention with separate projections."""

    def __init__(self, width, heads):
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        shape = (*x.shape[:2], -1, self.head_width)
        q, k, v = (
            project(x).view(shape).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Letters -> 2 layers of 8 heads -> the next letter."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 32)
        self.places = nn.Parameter(torch.randn(LENGTH, 32) * 0.02)
        self.layers = nn.Sequential(Layer(32, 8, 64), Layer(32, 8, 64))
        self.fc = nn.Linear(32, len(LETTERS))

    def forward(self, codes):
        x = self.letters(codes) + self.places[: codes.shape[1]]
        return self.fc(self.layers(x))


class Recurrent(nn.Module):
    """Letters -> LSTM 48 -> the next letter."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 16)
        self.lstm = nn.LSTM(16, 48, batch_first=True)
        self.fc = nn.Linear(48, len(LETTERS))

    def forward(self, codes):
        return self.fc(self.lstm(self.letters(codes))[0])


@torch.no_grad()
def generate(model, length=40):
    codes = CODES[:LENGTH].unsqueeze(0)
    for _ in range(length):
        following = model(codes[:, -LENGTH:])[:, -1].argmax(-1, keepdim=True)
        codes = torch.cat([codes, following], 1)
    return "".join(LETTERS[code] for code in codes[0].tolist())


def shrunk(model, example, strength, loss, steps=120):
    """Train with live removal; the pruner and the loss at the start and at the end."""
    pruner = dp.Pruner(model, example, strength=strength, remove_every=20)
    groups = pruner.parameter_groups(lr=3e-3, gate_lr=3e-2)
    optimizer = optim.Adam(groups)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        task = loss(model)
        (task + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)
        losses.append(task.item())
    return pruner, sum(losses[:10]) / 10, sum(losses[-10:]) / 10


def next_letter(model):
    codes, following = batch()
    return F.cross_entropy(model(codes).flatten(0, 1), following.flatten())


def test_a_transformer_loses_heads_and_hidden_units_and_says_the_same():
    model, (codes, _) = Transformer(), batch(2)
    heads = [f"layers.{i}.attention.value" for i in range(2)]
    by_kind = {"*.attention.*": 1e-2, "*.up": 1e-3}
    pruner, first, last = shrunk(model, codes, by_kind, next_letter)
    assert last < first
    widths = [model.get_submodule(name).out_features for name in heads]
    assert min(widths) < 32  # by training alone
    assert all(width % 4 == 0 for width in widths)  # and whole heads
    model.eval()
    whole = copy.deepcopy(model)
    small = pruner.finalize()
    assert generate(small) == generate(whole)
    assert small.layers[0].up.out_features < 64
    assert len(small.state_dict()) == len(Transformer().state_dict())


def test_a_recurrent_network_loses_units_and_says_the_same():
    model, (codes, _) = Recurrent(), batch(2)
    pruner, first, last = shrunk(model, codes, 2e-3, next_letter)
    assert last < first
    whole = copy.deepcopy(model)
    small = pruner.finalize()
    assert generate(small) == generate(whole)
    assert small.lstm.hidden_size < 48
    assert small.lstm.hidden_size == small.fc.in_features


class UNet(nn.Module):
    """Two scales, one skip."""

    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(1, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.down2 = nn.Conv2d(12, 20, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(20, 10, 2, stride=2)
        self.out = nn.Conv2d(22, 1, 3, padding=1)

    def forward(self, x):
        skip = self.norm(self.down1(x)).relu()
        return self.out(torch.cat([skip, self.up(self.down2(skip).relu()).relu()], 1))


def test_a_u_net_loses_channels_and_draws_the_same():
    def denoise(model):
        clean = torch.zeros(8, 1, 12, 12)
        clean[:, :, 3:9, 4:8] = torch.rand(8, 1, 1, 1)
        return F.mse_loss(model(clean + 0.2 * torch.randn_like(clean)), clean)

    model, x = UNet(), torch.rand(2, 1, 12, 12)
    pruner, first, last = shrunk(model, x, 1e-3, denoise)
    assert last < first
    model.eval()
    before = model(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), before, rtol=1e-5, atol=1e-5)
    assert small.out.in_channels == small.down1.out_channels + small.up.out_channels
    assert small.out.in_channels < 22
    assert [record.step % 20 for record in pruner.history[:-1]].count(0) > 0
