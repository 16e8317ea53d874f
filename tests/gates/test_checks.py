from functools import partial

import pytest
import torch
from torch.distributions import Normal

from diffprune.errors import ArgumentError
from diffprune.gates import Gate

BASE = partial(Normal, scale=1.0)
WRONG = [
    ({"size": 0}, "size must be a whole number of at least 1, got 0"),
    ({"u": "tanh"}, "'sigmoid' or 'softmax' or a function of 1 argument"),
    (
        {"size": 1, "u": "softmax"},
        r"nothing to compete with.\nUse Gate\(1, u='sigmoid'\)",
    ),
    ({"min_open": -1}, "min_open must be a whole number of at least 0, got -1"),
    ({"index": torch.tensor([0.0])}, r"torch.float32 on cpu.\nPass index.long\(\)"),
    (
        {"index": torch.tensor([0, 3])},
        "units 0 to 3, but a gate of size 3 has units 0 to 2",
    ),
    ({"index": torch.tensor([-1, 2])}, "units -1 to 2"),
    ({"sigma": 0.0}, "sigma is a standard deviation and positive"),
    ({"dropout": 1.0}, "rate between 0 and 1, got 1.0; None turns it off"),
    ({"sharpness": -0.1}, "sharpness must be a number of at least 0"),
    ({"sharpness": float("nan")}, "sharpness must be a number of at least 0"),
    ({"start": "zero"}, "start must be 'one' or 'paper', got 'zero'"),
    ({"init_std": -1.0}, "init_std must be a finite number of at least 0"),
    ({"beta_margin": 1.0}, "at 1 the weakest unit would start closed"),
    ({"base": BASE, "dropout": 0.1}, "not from both"),
    ({"base": BASE, "u": torch.sigmoid}, "no closed form"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_arguments_that_cannot_be_right(options, message):
    with pytest.raises(ArgumentError, match=message):
        Gate(**{"size": 3, **options})


@pytest.mark.parametrize(
    ("dim", "shape"), [(1, (2, 4)), (2, (2, 3)), (-1, (3, 2)), (-3, (2, 3))]
)
def test_an_input_of_another_shape(dim, shape):
    with pytest.raises(
        ArgumentError, match=rf"shape \(3,\) cannot cover .* dimension {dim}"
    ):
        Gate(3, dim=dim)(torch.ones(shape))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3), "one bool per unit, of shape .*got a tensor of float32"),
        (torch.ones(4, dtype=torch.bool), r"got a tensor of bool of shape \(4,\)"),
        (torch.zeros(3, dtype=torch.bool), "keeps no unit"),
    ],
)
def test_a_mask_that_selects_no_units(mask, message):
    with pytest.raises(ArgumentError, match=message):
        Gate(3).keep_(mask)


def test_a_map_of_several_dimensions_cannot_have_holes():
    gate = Gate(3, index=torch.tensor([[0, 1], [2, 0]]))
    with pytest.raises(ArgumentError, match=r"shape \(2, 2\) would have holes"):
        gate.keep_(torch.tensor([True, True, False]))
