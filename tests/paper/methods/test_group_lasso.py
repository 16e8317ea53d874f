"""Norms, shrinkage and exact zeros of group lasso on LeNet-5."""

import pytest
import torch

import diffprune as dp
from paper.methods.group_lasso import LENET5, norms, penalty, shrink_, zero_small_
from paper.models.lenet5 import LeNet5


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LeNet5()


def test_norms_are_those_of_all_weights_of_a_unit(model):
    both = torch.cat([model.fc1.weight[3], model.fc2.weight[:, 3]])
    torch.testing.assert_close(norms(model, LENET5["fc1"])[3], both.norm())
    channel = model.fc1.weight[:, 7].norm()
    torch.testing.assert_close(norms(model, LENET5["flat"])[7], channel)


def test_groups_are_filters_features_and_hidden_units(model):
    """Hidden units with the weights that they read and that read them."""
    units = {place: norms(model, slices).numel() for place, slices in LENET5.items()}
    assert units == {"conv1": 20, "conv2": 50, "flat": 800, "fc1": 500}
    for parameter in model.parameters():
        parameter.data.fill_(1.0)
    sizes = {place: norms(model, s)[0].item() ** 2 for place, s in LENET5.items()}
    assert sizes == pytest.approx({"conv1": 25, "conv2": 500, "flat": 500, "fc1": 810})


def test_the_penalty_is_the_sum_of_all_norms(model):
    both = sum(norms(model, slices).sum() for slices in LENET5.values())
    torch.testing.assert_close(penalty(model, LENET5.values(), 0.3), 0.3 * both)


def test_weights_below_a_ten_thousandth_become_zero(model):
    model.fc1.weight.data[0, :3] = torch.tensor([0.9e-4, -1.1e-4, -0.9e-4])
    zero_small_(model, LENET5.values())
    assert model.fc1.weight[0, :3].tolist() == pytest.approx([0.0, -1.1e-4, 0.0])


def test_the_gradient_at_zero_is_zero(model):
    model.conv1.weight.data[2] = 0.0
    penalty(model, LENET5.values(), 0.1).backward()
    assert model.conv1.weight.grad[2].abs().sum() == 0
    filters = model.conv1.weight
    expected = 0.1 * filters[1] / filters[1].norm()
    torch.testing.assert_close(filters.grad[1], expected)


@pytest.mark.parametrize("place", LENET5)
def test_the_proximal_step_shortens_every_norm_by_as_much(model, place):
    only = [LENET5[place]]
    before = norms(model, only[0]).detach()
    cut = float(before.sort().values[10])
    shrink_(model, only, cut)
    after = norms(model, only[0]).detach()
    torch.testing.assert_close(after, (before - cut).clamp(min=0), atol=1e-5, rtol=1e-4)
    assert int((after == 0).sum()) >= 10


def test_units_of_zeros_are_removed(model):
    images = torch.rand(4, 1, 28, 28)
    with torch.no_grad():
        model.conv1.weight[5:].mul_(1e-5)
        model.conv1.bias[5:] = 0.0
    zero_small_(model, LENET5.values())
    small = dp.compact(model, images)
    assert small.conv1.out_channels == 5
    torch.testing.assert_close(small(images), model(images), atol=1e-5, rtol=1e-4)
