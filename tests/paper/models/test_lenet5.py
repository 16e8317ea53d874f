from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool2d
from torch.utils.flop_counter import FlopCounterMode

from diffprune.gates import Gate
from paper.models.lenet5 import LeNet5, Widths


@pytest.fixture(params=["sigmoid", "softmax"])
def gated(request):
    torch.manual_seed(0)
    return LeNet5(partial(Gate, u=request.param))


def close_(gate: Gate, *units: int) -> None:
    with torch.no_grad():
        gate.logits[list(units)] = -5.0


def test_one_seed_gives_equal_weights_with_and_without_gates(gated):
    torch.manual_seed(0)
    dense = LeNet5().state_dict()
    assert all(gated.state_dict()[name].equal(value) for name, value in dense.items())


def test_a_gate_commutes_with_the_pooling_it_follows(gated):
    close_(gated.gate_conv1, 0, 3, 7)
    x = torch.randn(4, 20, 24, 24)  # signs of both kinds: only the gate's matters
    pooled_first = gated.gate_conv1(max_pool2d(x, 2))
    torch.testing.assert_close(pooled_first, max_pool2d(gated.gate_conv1(x), 2))


@pytest.mark.parametrize(
    ("gate", "weight", "axis"),
    [
        ("gate_conv1", "conv2", 1),
        ("gate_flat", "fc1", 1),
        ("gate_fc1", "fc2", 1),
    ],
)
def test_a_closed_unit_is_not_read_by_the_next_layer(gated, gate, weight, axis):
    close_(gated.get_submodule(gate), 1, 4)
    images = torch.rand(3, 1, 28, 28)
    before = gated(images)
    consumer = gated.get_submodule(weight)
    with torch.no_grad():
        consumer.weight.index_fill_(axis, torch.tensor([1, 4]), 1e3)
    assert gated(images).equal(before)


def test_a_closed_channel_closes_its_sixteen_features(gated):
    close_(gated.gate_conv2, 2)
    seen = []
    gated.gate_flat.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    gated(torch.rand(3, 1, 28, 28))
    dead = seen[0].abs().sum(dim=0) == 0
    assert dead.view(50, 16)[2].all()
    assert not dead.all()


def test_layers_may_be_swapped_for_narrower_ones():
    model = LeNet5()
    model.conv2 = nn.Conv2d(20, 3, kernel_size=5)
    model.fc1 = nn.Linear(48, 500)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def narrow_lenet5(conv1: int, conv2: int, fc1: int) -> LeNet5:
    model = LeNet5()
    model.conv1 = nn.Conv2d(1, conv1, 5)
    model.conv2 = nn.Conv2d(conv1, conv2, 5)
    model.fc1 = nn.Linear(16 * conv2, fc1)
    model.fc2 = nn.Linear(fc1, 10)
    return model


@pytest.fixture(params=[(20, 50, 500), (3, 12, 54), (1, 1, 1)], ids=str)
def widths(request):
    return request.param


def test_parameters_are_those_of_a_network_built_that_narrow(widths):
    conv1, conv2, fc1 = widths
    actual = sum(p.numel() for p in narrow_lenet5(*widths).parameters())
    assert Widths(conv1, conv2, 16 * conv2, fc1).parameters == actual


def test_weights_leave_the_biases_out(widths):
    conv1, conv2, fc1 = widths
    actual = sum(p.numel() for p in narrow_lenet5(*widths).parameters() if p.ndim > 1)
    assert Widths(conv1, conv2, 16 * conv2, fc1).weights == actual


def test_macs_are_half_of_what_torch_counts_as_flops(widths):
    conv1, conv2, fc1 = widths
    with FlopCounterMode(display=False) as counter:
        narrow_lenet5(*widths)(torch.zeros(1, 1, 28, 28))
    macs = Widths(conv1, conv2, 16 * conv2, fc1).macs
    assert 2 * macs == counter.get_total_flops()
