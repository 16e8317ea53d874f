from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import relu
from torch.utils.flop_counter import FlopCounterMode

from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from paper.models.wide_resnet import WideBlock, WideResNet


@pytest.fixture(scope="module")
def wrn_28_10():
    """Shapes without memory."""
    with torch.device("meta"):
        return WideResNet(28, 10).eval()


def test_the_paper_network_has_the_published_size(wrn_28_10):
    size = sum(parameter.numel() for parameter in wrn_28_10.parameters())
    assert size == 36_479_194


def test_the_paper_network_has_the_published_cost(wrn_28_10):
    with FlopCounterMode(display=False) as counter:
        wrn_28_10(torch.empty(1, 3, 32, 32, device="meta"))
    assert counter.get_total_flops() // 2 == 5_243_328_768


def test_there_are_two_gates_in_every_block():
    model = WideResNet(16, 1, Gate)
    sizes = [module.size for module in model.modules() if isinstance(module, Gate)]
    assert sizes == [16] * 4 + [32] * 4 + [64] * 4


def shrunk(*, gates_first):
    """How many units each gate has left, when half were closed and removed."""
    model = WideResNet(16, 1, Gate, gates_first=gates_first)
    pruner = Pruner(model, torch.rand(2, 3, 32, 32), strength=1e-4)
    with torch.no_grad():
        for gate in pruner.gates.values():
            gate.logits[: gate.size // 2] = -5.0
    removed = pruner.remove_closed_()
    return {
        name: removed.units[name] / gate for name, gate in pruner.dense.units.items()
    }


def test_units_that_a_sum_closes_leave_the_network():
    assert set(shrunk(gates_first=False).values()) == {1 / 2}


def test_gated_before_the_norm_they_stay_as_learned_constants():
    left = shrunk(gates_first=True)
    assert {share for name, share in left.items() if "hidden" in name} == {1 / 2}
    assert {share for name, share in left.items() if "sum" in name} == {1}


@pytest.mark.parametrize("gates_first", [False, True])
def test_a_closed_sum_silences_the_shortcut_too(gates_first):
    model = WideResNet(16, 1, Gate, gates_first=gates_first)
    with torch.no_grad():
        model.group3[0].gate_sum.logits[5] = -5.0
        model.group3[1].conv2.weight.zero_()
    seen = []
    model.bn.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(torch.rand(2, 3, 32, 32))
    silent = seen[0].abs().sum(dim=(0, 2, 3)) == 0
    assert silent.nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("gates_first", [False, True])
def test_open_gates_change_nothing_but_scale(gates_first):
    """All gates at one: the network is the plain one, wherever they sit."""
    plain = WideResNet(10, 1).eval()
    paper_gate = partial(Gate, start="paper")
    gated = WideResNet(10, 1, paper_gate, gates_first=gates_first).eval()
    plain.load_state_dict(gated.state_dict(), strict=False)
    with torch.no_grad():
        for name, parameter in gated.named_parameters():
            parameter.mul_(0.0 if name.endswith("logits") else 1.0)
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(gated(x), plain(x))


@pytest.mark.parametrize(("outputs", "stride"), [(4, 1), (8, 1), (8, 2)])
def test_a_block_that_computes_nothing_is_its_shortcut(outputs, stride):
    block = WideBlock(4, outputs, stride, nn.Identity).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 8, 8)
    shortcut = block.shortcut
    expected = x if shortcut is None else shortcut(relu(block.bn1(x)))
    assert (shortcut is None) == (outputs == 4)
    assert block(x, nn.Identity()).equal(expected)


@pytest.mark.parametrize("depth", [4, 12, 27])
def test_depths_that_do_not_divide_are_refused(depth):
    with pytest.raises(ArgumentError, match=rf"such as 16 or 28, got {depth}"):
        WideResNet(depth, 1)
