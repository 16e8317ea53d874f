import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune._surgery.same_draws import same_draws, seeded

DRAWS = {
    "dropout": lambda n: F.dropout(torch.ones(2, n), 0.5),
    "dropout2d": lambda n: F.dropout2d(torch.ones(2, n, 2, 2), 0.5)[:, :, 0, 0],
    "randn": lambda n: torch.randn(2, n),
    "rand": lambda n: torch.rand(2, n),
    "like": lambda n: torch.randn_like(torch.ones(2, n)),
    "bernoulli": lambda n: torch.bernoulli(torch.full((2, n), 0.5)),
    "normal": lambda n: torch.empty(2, n).normal_(1, 2),
    "whole": lambda n: torch.randint(9, (2, n)),
    "gumbel": lambda n: -torch.empty(2, n).exponential_().log(),
    "rrelu": lambda n: F.rrelu(-torch.ones(2, n), training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_narrow_draw_is_part_of_a_wide_one(name):
    with same_draws(0):
        wide, narrow = DRAWS[name](7), DRAWS[name](4)
    assert torch.equal(wide[:, :4], narrow)
    assert wide.isfinite().all()


def test_noise_is_not_nothing():
    with same_draws(0):
        assert torch.randn(3).all()
        assert nn.Dropout(0.5)(torch.ones(3)).all()


def test_generators_stay_as_they_were():
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(2), random.getrandbits(32)
    torch.manual_seed(3)
    random.seed(3)
    with seeded(0):
        torch.rand(5)
        random.getrandbits(32)
    assert torch.equal(torch.rand(2), expected[0])
    assert random.getrandbits(32) == expected[1]
