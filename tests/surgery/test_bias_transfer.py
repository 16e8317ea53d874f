import pytest
import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.bias_transfer import hand_back_


class PreNorm(nn.Module):
    """3 -> fc 5 -+-> norm -> fc 5 -(+)-> fc 2."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Linear(3, 5), nn.LayerNorm(5)
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, 2)

    def stream(self, x):
        x = self.stem(x)
        return x + self.first(self.norm(x))

    def forward(self, x):
        return self.head(self.stream(x))


class Stream(PreNorm):
    """3 -> fc 5 -+-> norm -> fc 5 -(+)-+-> fc 5 -(+)-> fc 2."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(5, 5)

    def stream(self, x):
        x = super().stream(x)
        return x + self.second(x)


class Watched(PreNorm):
    """Something reads the stream before the bias is added to it."""

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.first(self.norm(x))) + x.mean()


class Scaled(PreNorm):
    """What the bias is added to is twice as much."""

    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.add(x, self.first(self.norm(x)), alpha=2))


class Tied(PreNorm):
    """Two layers have one bias."""

    def __init__(self):
        super().__init__()
        self.first.bias = self.stem.bias


class PostNorm(PreNorm):
    """The stream is written by a norm."""

    def forward(self, x):
        x = self.norm(self.stem(x))
        return self.head(x + self.first(x))


class Convs(nn.Module):
    """3 -> conv 5 -> BN -+-> conv 5 -(+)-> conv 2."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 5, 1, bias=False), nn.BatchNorm2d(5))
        self.first, self.head = nn.Conv2d(5, 5, 3, padding=1), nn.Conv2d(5, 2, 1)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.first(x))


def handed(model, *silent, x=None):
    """Hand back in a model whose named layers have no weights; check its outputs."""
    x = torch.rand(4, 3, dtype=torch.float64) if x is None else x
    model = model.double()
    with torch.no_grad():
        for name in silent:
            model.get_submodule(name).weight.zero_()
    expected = model.train()(x)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    solution = find_groups(model, x).solution
    hand_back_(model, solution)
    torch.testing.assert_close(model.train()(x), expected, rtol=0, atol=1e-12)
    after = dict(model.named_parameters())
    return {name for name in after if not torch.equal(after[name], before[name])}


@pytest.mark.parametrize(
    ("model", "silent", "changed"),
    [
        (Stream, ["first"], {"first.bias", "stem.bias"}),
        (Stream, ["second"], {"second.bias", "first.bias"}),
        (Stream, ["first", "second"], {"first.bias", "second.bias", "stem.bias"}),
        (PostNorm, ["first"], {"first.bias", "norm.bias"}),
        (Stream, [], set()),
        (Watched, ["first"], set()),
        (Scaled, ["first"], set()),
        (Tied, ["first"], set()),
    ],
)
def test_a_bias_goes_to_what_it_is_added_to(model, silent, changed):
    assert handed(model(), *silent) == changed


def test_a_bias_is_handed_on_until_somebody_can_keep_it():
    model = Stream()
    handed(model, "first", "second")
    assert not model.first.bias.any()
    assert not model.second.bias.any()


def test_a_convolution_hands_its_bias_to_a_norm():
    x = torch.rand(2, 3, 6, 6, dtype=torch.float64)
    assert handed(Convs(), "first", x=x) == {"first.bias", "stem.1.bias"}


def test_a_layer_that_reads_zeros_hands_back_too():
    model = PreNorm()
    nn.init.zeros_(model.norm.bias)
    changed = handed(model, "norm")
    assert changed == {"first.weight", "first.bias", "stem.bias"}
