"""Removing units that a norm takes its statistics over."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import diffprune as dp
from diffprune._surgery.plan import Plan
from diffprune._surgery.remove import removal
from diffprune.errors import ArgumentError, RemovalError, UnknownNameError

X = torch.randn(4, 5, dtype=torch.float64)
KEEP = torch.tensor([True, False, True, True, False, True, True])


class ByHand(nn.Module):
    """RMS norm as many write it."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class ByShape(nn.Module):
    def __init__(self, width):
        super().__init__()
        del width

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:])


NORMS = {
    "layer norm": nn.LayerNorm,
    "without weights": lambda width: nn.LayerNorm(width, elementwise_affine=False),
    "rms norm": nn.RMSNorm,
    "group norm": lambda width: nn.GroupNorm(1, width),
    "rms norm by hand": ByHand,
    "the width from a shape": ByShape,
}


class Stream(nn.Module):
    """A stream of some width with a block beside it, behind norms."""

    def __init__(self, norm, width=7, inner=6):
        super().__init__()
        self.start, self.norm, self.last = (
            nn.Linear(5, width),
            norm(width),
            norm(width),
        )
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.start(x)
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.head(self.last(x))


def stream(norm, **sizes):
    torch.manual_seed(0)
    model = Stream(norm, **sizes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.3, std=0.5)
    return model


@pytest.mark.parametrize("name", NORMS)
def test_it_is_the_network_one_would_write_with_fewer_units(name):
    model, expected = stream(NORMS[name]), stream(NORMS[name], width=5)
    small = dp.remove(model, X, keep={"start": KEEP}, norms="narrow")
    index = KEEP.nonzero().flatten()
    sliced = {
        name: functools.reduce(
            lambda t, dim: t.index_select(dim, index) if t.shape[dim] == 7 else t,
            range(tensor.ndim),
            tensor,
        )
        for name, tensor in model.state_dict().items()
    }
    expected.load_state_dict(sliced)
    torch.testing.assert_close(small(X), expected(X), rtol=0, atol=1e-12)
    assert str(small) == str(expected)


@pytest.mark.parametrize("name", NORMS)
def test_nothing_of_it_can_be_cut_unless_one_asks(name):
    groups = dp.find_groups(stream(NORMS[name]), X)
    assert [group.name for group in groups] == ["up"]
    assert any("No removal is exact here" in str(axis) for axis in groups.frozen)
    with pytest.raises(UnknownNameError, match="`start` cannot be cut: "):
        dp.remove(stream(NORMS[name]), X, keep={"start": KEEP})


def test_groups_say_which_of_them_are_exact():
    groups = dp.find_groups(stream(nn.LayerNorm), X, norms="narrow")
    assert {g.name: g.is_exact for g in groups} == {"start": False, "up": True}
    narrower = groups.keep({"start": KEEP})
    assert [group.is_exact for group in narrower] == [False, True]


def test_the_certificate_says_what_it_does_not_show():
    model = stream(nn.LayerNorm)
    groups = dp.find_groups(model, X, norms="narrow")
    inner = torch.arange(6) > 1
    found = removal(model, X, groups, keep={"start": KEEP, "up": inner})
    certificate = found.plan.certificate
    assert certificate.max_relative < 1e-10
    assert "statistics over what is left of `start`" in certificate.doubts[-1]
    exact = removal(model, X, groups, keep={"up": inner}).plan.certificate
    assert not exact.doubts
    assert set(exact.compared) <= set(certificate.compared)


def test_a_stream_that_is_kept_whole_is_as_exact_as_ever():
    model = stream(nn.LayerNorm)
    keep = {"start": torch.ones(7, dtype=torch.bool), "up": torch.arange(6) > 1}
    small = dp.remove(model, X, keep=keep, norms="narrow")
    torch.testing.assert_close(small.start.weight, model.start.weight)
    assert small.up.out_features == 4


class Fixed(Stream):
    def forward(self, x):
        return self.head(F.layer_norm(self.start(x), (7,)))


def test_a_width_that_the_code_writes_as_a_number_stays():
    model = Fixed(nn.Identity).double()
    assert "start" not in dp.find_groups(model, X, norms="narrow").sizes


class Sneaky(Stream):
    """It multiplies units by numbers that belong to their positions."""

    def forward(self, x):
        x = self.start(x)
        positions = torch.linspace(1, 2, x.shape[1], dtype=x.dtype)
        return self.head(self.norm(x) * positions)


def test_units_that_cannot_change_places_are_not_cut():
    model = Sneaky(nn.LayerNorm).double()
    with pytest.raises((RemovalError, UnknownNameError)):
        dp.remove(model, X, keep={"start": KEEP}, norms="narrow")


def test_a_refit_makes_up_for_most_of_it():
    torch.manual_seed(0)
    model, inputs = stream(nn.LayerNorm), torch.randn(256, 5).double()
    groups = dp.find_groups(model, X, norms="narrow")
    cut = removal(model, X, groups, keep={"start": KEEP}).model
    fit = removal(model, X, groups, keep={"start": KEEP}, refit=[inputs]).model
    whole = model(inputs)
    assert F.mse_loss(fit(inputs), whole) < 0.5 * F.mse_loss(cut(inputs), whole)


def test_a_branch_does_not_disappear_at_the_same_time():
    keep = {"start": KEEP, "up": torch.zeros(6, dtype=torch.bool)}
    with pytest.raises(ArgumentError, match="Remove the branch first"):
        dp.remove(stream(nn.LayerNorm), X, keep=keep, norms="narrow")


def test_plans_and_files_know_the_width_of_a_norm(tmp_path):
    model = stream(nn.LayerNorm)
    groups = dp.find_groups(model, X, norms="narrow")
    found = removal(model, X, groups, keep={"start": KEEP})
    assert found.plan.attributes["norm.normalized_shape[0]"] == 5
    assert Plan.from_json(found.plan.to_json()) == found.plan
    folder = dp.save_pruned(found.model, tmp_path / "small")
    loaded = dp.load_pruned(stream(nn.LayerNorm), folder)
    assert loaded.norm.normalized_shape == (5,)
    torch.testing.assert_close(loaded(X), found.model(X), rtol=0, atol=0)


def test_other_words_are_refused():
    with pytest.raises(ArgumentError, match="norms must be 'exact' or 'narrow'"):
        dp.find_groups(stream(nn.LayerNorm), X, norms="wide")
