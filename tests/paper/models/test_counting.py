import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from paper.models.counting import OpenUnits, Widths
from paper.models.lenet5 import LeNet5


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


def units(conv1=(), conv2=(), flat=(), fc1=()) -> OpenUnits:
    """Open exactly these."""
    return OpenUnits(
        *(
            torch.zeros(size, dtype=torch.bool).index_fill(
                0, torch.tensor(chosen, dtype=torch.long), value=True
            )
            for size, chosen in ((20, conv1), (50, conv2), (800, flat), (500, fc1))
        )
    )


@pytest.mark.parametrize(
    ("open_units", "raw", "effective"),
    [
        pytest.param(
            units((0, 1), (0, 2), (0, 16, 33), (7,)), (2, 2, 3, 1), (2, 2, 2, 1),
            id="a feature of a closed channel",
        ),
        pytest.param(
            units((0, 1), (0, 2), (0, 15), (7,)), (2, 2, 2, 1), (2, 1, 2, 1),
            id="a channel without an open feature",
        ),
        pytest.param(
            units((0, 1), (0,), (16,), (7,)), (2, 1, 1, 1), (0, 0, 0, 1),
            id="channel and feature that miss each other",
        ),
        pytest.param(
            units(range(20), range(50), range(800), range(500)),
            (20, 50, 800, 500), (20, 50, 800, 500),
            id="everything open",
        ),
    ],
)  # fmt: skip
def test_effective_counts_leave_unconnected_units_out(open_units, raw, effective):
    assert open_units.raw() == raw
    assert open_units.effective() == effective
