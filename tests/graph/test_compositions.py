import pytest
import torch
from torch import nn

import diffprune as dp

aten = torch.ops.aten
OTHERS = {
    "another name": lambda x: torch.multiply(x, 2.0).negative(),
    "two of its own": lambda x: torch.special.expit(x).greater(0.1).to(x),
    "a norm": lambda x: x * torch.linalg.norm(x, dim=1, keepdim=True),
    "in place": lambda x: x.multiply_(3.0).absolute_(),
    "several results": lambda x: torch.cat(torch.dsplit(x, [1, 3])[::-1], 2),
}


class Around(nn.Module):
    """3 channels -> 5 -> body -> 2 channels."""

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.first, self.last = nn.Conv2d(3, 5, 1), nn.Conv2d(5, 2, 1)

    def forward(self, x):
        return self.last(self.body(self.first(x)))


def found(model, **options):
    images = torch.randn(2, 3, 4, 4)
    return {g.name: g.size for g in dp.find_groups(model, images, **options)}


@pytest.mark.parametrize("name", OTHERS)
def test_ops_made_of_others_are_followed(name):
    assert found(Around(OTHERS[name])) == {"first": 5}


def test_ops_that_are_others_in_place_are_followed():
    model, images = (
        Around(OTHERS["in place"]).double(),
        torch.randn(2, 3, 4, 4).double(),
    )
    keep = {"first": torch.arange(5) < 2}
    assert dp.remove(model, images, keep=keep).first.out_channels == 2


def test_a_rule_of_the_user_goes_first():
    rules = {aten.negative: lambda call, x: call.freeze(x.axes[1], "no") or x.axes}
    assert found(Around(OTHERS["another name"]), rules=rules) == {}


def test_an_op_whose_parts_have_fixed_lengths_is_left_alone():
    model = Around(lambda x: torch.linalg.vander(x, N=2).sum(-1))
    reason = str(dp.find_groups(model, torch.randn(2, 3, 4, 4)).frozen[0].reason)
    assert "this form of op maps channels: `aten.linalg_vander`" in reason


def test_an_integer_of_the_users_is_not_lost():
    class Repeated(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = 5
            self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.last(torch.hstack(torch.hsplit(self.first(x), self.parts)))

    groups = dp.find_groups(Repeated(), torch.randn(2, 3))
    assert len(groups) == 0
    assert "no rule says how this form of op maps channels" in str(groups)
