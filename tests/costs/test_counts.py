from functools import cache

import pytest
import torch
from safetensors.torch import save
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from diffprune._costs.counts import (
    _CODES,
    file_size,
    header_bytes,
    macs,
    memory,
    parameters,
)
from diffprune._costs.network import Network
from diffprune._graph import find_groups
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.plan import plan_removal
from zoo import ZOO, analysed, call

# The flop counter skips bilinear layers.
UNCOUNTED = {"bilinear"}
# Laws of the graph are checked on the whole zoo; here every fourth will do in a hurry.
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if number % 4 else [])
    for number, name in enumerate(sorted(ZOO.keys() - UNCOUNTED))
]


@cache
def network_of(name):
    model, inputs, groups = analysed(name)
    return Network(model, inputs, groups, tuple(groups))


def half(network):
    """The model with every other unit of each group removed, and its widths."""
    keep = {g.name: torch.arange(g.size) % 2 == 0 for g in network.gated}
    small = apply_plan(network.model, plan_removal(network.groups, keep=keep))
    return small, torch.tensor([int(units.sum()) for units in keep.values()])


def convolutional():
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)
    )
    return model.eval(), torch.rand(2, 1, 6, 6)


@pytest.fixture
def network():
    """Two images of 6x6 -> conv 3 -> norm -> relu -> fc 2."""
    model, x = convolutional()
    groups = find_groups(model, x)
    return Network(model, x, groups, tuple(groups))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_small_network_is_counted_by_hand(network, width):
    widths = torch.tensor([width])
    conv, norm, linear = 9 * width + width, 2 * width, 16 * width * 2 + 2
    assert parameters(network)(widths) == conv + norm + linear
    assert macs(network)(widths) == 2 * (16 * 9 * width + 16 * width * 2)
    maps = 3 * 16 * width  # after the convolution, the norm and the ReLU
    assert memory(network)(widths) == 4 * 2 * (maps + 2)


def test_a_model_that_works_in_place_needs_less_memory(network):
    model, x = convolutional()
    model[2] = nn.ReLU(inplace=True)
    groups = find_groups(model, x)
    frugal = memory(Network(model, x, groups, tuple(groups)))
    widths = network.widths()
    assert memory(network)(widths) - frugal(widths) == 4 * 2 * 16 * 3


@pytest.mark.parametrize("name", NAMES)
def test_multiply_adds_are_half_the_flops_before_and_after(name):
    network = network_of(name)
    small, widths = half(network)
    for model, at in [(network.model, network.widths()), (small, widths)]:
        # Other kernels of attention are not counted.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            call(model, network.inputs)
        assert macs(network)(at) == counter.get_total_flops() / 2


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_model_before_and_after(name):
    network = network_of(name)
    small, widths = half(network)
    for model, at in [(network.model, network.widths()), (small, widths)]:
        assert parameters(network)(at) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_files_are_as_large_as_said(name):
    network = network_of(name)
    small, widths = half(network)
    said = file_size(network)
    assert said(network.widths()) == len(save(stored(network.model)))
    header = len(save(stored(network.model))) - contents(network.model)
    assert said(widths) == contents(small) + header


def stored(model):
    """What a file holds: every tensor once, under its first name."""
    first = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(id(tensor), (name, tensor.detach().clone().contiguous()))
    return dict(first.values())


def contents(model):
    return sum(t.numel() * t.element_size() for t in stored(model).values())


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's own
def test_recurrent_layers_with_projections_are_frozen_and_counted():
    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(7, 17, proj_size=5, batch_first=True)
            self.hidden, self.out = nn.Linear(5, 11), nn.Linear(11, 3)

        def forward(self, x):
            return self.out(self.hidden(self.layer(x)[0][:, -1]).relu())

    model, x = Projected(), torch.rand(2, 9, 7)
    each_step = 4 * 17 * (7 + 5) + 17 * 5
    assert find_groups(model, x).macs() == 2 * (9 * each_step + 5 * 11 + 11 * 3)


def test_headers_of_files_know_every_type():
    exotic = {"float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"}
    assert {str(dtype).removeprefix("torch.") for dtype in _CODES} >= exotic
    tensors = {
        f"{number} {code}": torch.zeros(10**number, dtype=dtype)
        for number in (0, 1, 2)
        for dtype, code in _CODES.items()
    }
    content = sum(tensor.nbytes for tensor in tensors.values())
    assert header_bytes(tensors) == len(save(tensors)) - content
