import pytest
import torch
from torch import nn
from torch.nn.functional import relu
from torch.utils.flop_counter import FlopCounterMode

from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from diffprune.recipes.wide_resnets import WideBlock, WideResNet


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


def test_a_closed_sum_silences_the_shortcut_too():
    model = WideResNet(10, 1, Gate)
    with torch.no_grad():
        model.group3[0].gate_sum.logits[5] = -5.0
    seen = []
    model.bn.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(torch.rand(2, 3, 32, 32))
    silent = seen[0].abs().sum(dim=(0, 2, 3)) == 0
    assert silent.nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize(("outputs", "stride"), [(4, 1), (8, 1), (8, 2)])
def test_a_block_that_computes_nothing_is_its_shortcut(outputs, stride):
    block = WideBlock(4, outputs, stride, nn.Identity).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 8, 8)
    shortcut = block.shortcut
    expected = x if shortcut is None else shortcut(relu(block.bn1(x)))
    assert (shortcut is None) == (outputs == 4)
    assert block(x).equal(expected)


@pytest.mark.parametrize("depth", [4, 12, 27])
def test_depths_that_do_not_divide_are_refused(depth):
    with pytest.raises(ArgumentError, match=rf"such as 16 or 28, got {depth}"):
        WideResNet(depth, 1)
