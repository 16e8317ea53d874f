import copy

import pytest
import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.remove import removal, remove
from diffprune.errors import ArgumentError, RemovalError, UnknownNameError

X = torch.rand(2, 3, 8, 8)


class Net(nn.Module):
    """3 -> conv 12 -> BN -> ReLU -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


def keep(n):
    return {"conv": torch.arange(12) >= 12 - n}


def test_the_result_is_a_smaller_model_of_the_same_class():
    small = remove(Net(), X, keep=keep(7))
    assert type(small) is Net
    assert str(small) == str(Net()).replace("12", "7")


@pytest.mark.parametrize("refit", [None, [torch.rand(16, 3, 8, 8)]])
def test_what_is_around_the_call_changes_nothing(refit):
    model = Net()
    expected = remove(model, X, keep=keep(7), refit=refit).state_dict()
    for around in (torch.inference_mode(), torch.autocast("cpu")):
        with around:
            small = remove(model, X, keep=keep(7), refit=refit)
        small.train()(X).sum().backward()
        for name, parameter in small.named_parameters():
            assert torch.equal(parameter, expected[name])


def test_the_plan_comes_with_its_certificate():
    model = Net()
    result = removal(model, X, find_groups(model, X), keep=keep(7))
    assert result.plan.kept == {"conv": tuple(range(5, 12))}
    assert result.plan.certificate.max_relative < 1e-10
    assert result.plan.certificate.dtype == "float64"


@pytest.mark.parametrize(
    ("options", "width"), [({"round_to": 4}, 8), ({"min_units": 9}, 9), ({}, 5)]
)
def test_widths_can_be_rounded(options, width):
    small = remove(Net(), X, keep=keep(5), **options)
    assert small.conv.out_channels == width


def test_scores_choose_what_stays():
    model = Net()
    small = remove(
        model, X, keep=keep(1), min_units=2, scores={"conv": torch.arange(12)}
    )
    assert torch.equal(small.fc.weight, model.fc.weight[:, 10:])


def test_options_reach_group_discovery():
    with pytest.raises(UnknownNameError, match="`conv` cannot be cut: asked for"):
        remove(Net(), X, keep=keep(5), freeze=["conv"])


@pytest.mark.parametrize(
    ("masks", "error"),
    [
        ({"conv": torch.ones(3, dtype=torch.bool)}, ArgumentError),
        ({"conv": torch.zeros(12, dtype=torch.bool)}, ArgumentError),
        ({**keep(5), "nothing": torch.ones(2, dtype=torch.bool)}, UnknownNameError),
    ],
)
def test_bad_masks_change_nothing(masks, error):
    model = Net()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error):
        remove(model, X, keep=masks)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


class Rolled(nn.Module):
    """Turns the channels round by one."""

    def forward(self, x):
        return x.roll(1, dims=1)


def channels_stay(call, x, *_):
    """A rule that is wrong about `roll`."""
    del call
    return x.axes


def test_a_wrong_cut_is_caught_named_and_changes_nothing():
    model = nn.Sequential(nn.Linear(3, 12), Rolled(), nn.Linear(12, 2))
    before = copy.deepcopy(model.state_dict())
    rules = {torch.ops.aten.roll: channels_stay}
    with pytest.raises(RemovalError, match="something else, first in `1`"):
        remove(model, torch.rand(2, 3), keep={"0": keep(7)["conv"]}, rules=rules)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_a_refit_that_fitted_nothing_says_why():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.rand(4, 3)
    with pytest.warns(UserWarning, match="2.weight: not fitted, because") as caught:
        remove(model, x, keep={"0": torch.arange(5) < 3}, refit=[x * torch.nan])
    assert caught[0].filename == __file__
