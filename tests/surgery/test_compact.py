import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from diffprune import compact
from diffprune._core.copying import copied
from diffprune._surgery import mask
from diffprune._surgery.compact import compaction_of_groups
from diffprune.testing.outcomes import (
    assert_close,
    is_deterministic,
    other_inputs,
    returned,
)
from zoo import ZOO, analysed


def convnet(*, padding=0, bias=True, act=nn.Tanh):
    """3 -> conv 11 -> BN -> act -> conv 7 -> ReLU -> mean -> 5, random values."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 11, 3, padding=padding),
        nn.BatchNorm2d(11),
        act(),
        nn.Conv2d(11, 7, 3, padding=padding, bias=bias),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(7, 5),
    ).double()
    norm = model[1]
    for tensor in (norm.running_mean, norm.weight, norm.bias):
        nn.init.normal_(tensor)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return model.eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 8, 8, dtype=torch.float64)


def zero_filters(model, filters=(1, 4, 5)):
    with torch.no_grad():
        model[0].weight[list(filters)] = 0
    return model


def same_outputs(model, small, x):
    torch.testing.assert_close(small(x), model(x), rtol=1e-10, atol=1e-12)


def test_constants_go_into_a_bias_where_there_is_no_padding(images):
    model = zero_filters(convnet())
    small = compact(model, images)
    assert small[0].out_channels == 8
    same_outputs(model, small, images)


@pytest.mark.parametrize(
    "options", [{"padding": 1}, {"bias": False}], ids=["padding", "no bias"]
)
def test_where_no_bias_can_say_it_one_unit_says_it_for_all(images, options):
    model = zero_filters(convnet(**options))
    small = compact(model, images)
    assert small[0].out_channels == 9
    same_outputs(model, small, images)


def test_constant_units_that_a_rectifier_silences_just_go(images):
    model = zero_filters(convnet(padding=1, act=nn.ReLU))
    with torch.no_grad():
        model[1].bias[[1, 4, 5]] = -50.0
    small = compact(model, images)
    assert small[0].out_channels == 8
    same_outputs(model, small, images)


def test_units_that_nobody_reads_go(images):
    model = convnet()
    with torch.no_grad():
        model[3].weight[:, [0, 2]] = 0
    small = compact(model, images)
    assert small[0].out_channels == 9
    same_outputs(model, small, images)


def test_death_spreads_until_nothing_more_dies():
    model = nn.Sequential(
        nn.Linear(3, 11), nn.ReLU(), nn.Linear(11, 13), nn.Tanh(), nn.Linear(13, 2)
    ).double()
    with torch.no_grad():
        model[4].weight[:, :6] = 0
        model[2].weight[6:, 3:] = 0
    x = torch.randn(4, 3, dtype=torch.float64)
    small = compact(model, x)
    assert [layer.out_features for layer in small if isinstance(layer, nn.Linear)] == [
        3,
        7,
        2,
    ]
    same_outputs(model, small, x)


def test_a_layer_of_which_nothing_is_used_keeps_one_unit():
    model = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2)).double()
    with torch.no_grad():
        model[2].weight.zero_()
    x = torch.randn(4, 3, dtype=torch.float64)
    small = compact(model, x)
    assert small[0].out_features == 1
    same_outputs(model, small, x)


def test_masks_of_torch_prune_become_real(images):
    model = convnet()
    prune.ln_structured(model[0], "weight", amount=5, n=2, dim=0)
    prune.ln_structured(model[3], "weight", amount=2, n=2, dim=0)
    small = compact(model, images)
    assert (small[0].out_channels, small[3].out_channels) == (6, 5)
    assert not prune.is_pruned(small)
    assert prune.is_pruned(model)
    same_outputs(model, small, images)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folding_is_exact_in_coarse_types_too(images, dtype):
    model = zero_filters(convnet()).to(dtype)
    small = compact(model, images.to(dtype))
    assert small[0].out_channels == 8
    assert small[3].bias.dtype == dtype
    rtol = 20 * torch.finfo(dtype).eps
    x = images.to(dtype)
    torch.testing.assert_close(small(x), model(x), rtol=rtol, atol=rtol)


def test_the_original_is_left_alone(images):
    model = zero_filters(convnet())
    before = copy.deepcopy(model.state_dict())
    compact(model, images)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_model_without_dead_units_stays_as_it_is(images):
    model = convnet()
    small = compact(model, images)
    for name, tensor in small.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def assert_alike(small, model, inputs, *, training):
    """Equal on the example, and on inputs that nobody has seen."""
    if not is_deterministic(model, inputs, training=training):
        return
    for seen in (inputs, other_inputs(inputs, seed=1), other_inputs(inputs, seed=2)):
        expected = returned(model, seen, training=training)
        actual = returned(small, seen, training=training)
        assert_close(actual, expected, what=f"training: {training}", atol=1e-9)


@torch.no_grad()
def kill_rows_(model):
    """Let every third unit of plain layers carry a constant, half of them negative."""
    for module in model.modules():
        is_plain = type(module) in (nn.Linear, nn.Conv1d, nn.Conv2d)
        own = dict(module.named_parameters(recurse=False))
        if is_plain and {"weight", "bias"} <= own.keys():
            module.weight[::3] = 0
            module.bias[::6] = -0.4
            module.bias[3::6] = 0.3


@pytest.mark.parametrize(
    "name",
    [name for name in ZOO if name != "torch_encoder_nested"],
)
def test_constants_are_folded_rightly_in_every_network(name):
    """On inputs that are not the example; in eval mode, as statistics are others."""
    model, inputs, groups = analysed(name)
    model = copied(model)
    kill_rows_(model)
    small = compaction_of_groups(model, inputs, groups).model
    assert_alike(small, model, inputs, training=False)


@pytest.mark.parametrize(
    "name",
    # Nested tensors, which torch makes of padded inputs, have no sizes to compare.
    [name for name in ZOO if name != "torch_encoder_nested"],
)
def test_masked_units_are_found_again(name):
    """What `mask` zeroed, `compact` removes, whatever the network."""
    model, inputs, groups = analysed(name)
    keep = {g.name: torch.arange(g.size) % 3 > 0 for g in groups if g.size > 2}
    if name.startswith(
        "weight_norm"
    ):  # a direction cannot be zeroed, so nothing looks dead
        keep = {}
    masked = mask(model, groups, keep)
    small = compaction_of_groups(masked, inputs, groups).model
    for training in (False, True):
        assert_alike(small, masked, inputs, training=training)
    tensors = dict(small.named_parameters())
    for group in groups:
        kept = int(keep.get(group.name, torch.ones(group.size)).sum())
        place = next(p for p in group.axes if p.is_parameter)
        if place.axis == (group.atom,):
            assert tensors[place.tensor].shape[place.dim] <= kept
