import pytest
import torch
from torch import nn

from diffprune import find_groups
from diffprune._surgery.change_places import permuted


class Tied(nn.Module):
    """An embedding that is also the last layer, and a norm between."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 7), nn.LayerNorm(7)
        self.mix, self.head = nn.Linear(7, 7), nn.Linear(7, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.norm(x + self.mix(x)))


def outputs(model):
    return model(torch.arange(11))


def test_outputs_stay_when_all_that_belongs_to_a_unit_moves():
    model = Tied().double()
    groups = find_groups(model, torch.arange(11), norms="narrow")
    moved = permuted(model, groups, groups)
    assert not torch.equal(moved.embed.weight, model.embed.weight)
    torch.testing.assert_close(outputs(moved), outputs(model), rtol=0, atol=1e-12)


def test_only_the_chosen_units_move():
    model = Tied()
    groups = find_groups(model, torch.arange(11), norms="narrow")
    untouched = permuted(model, groups, [])
    torch.testing.assert_close(untouched.state_dict(), model.state_dict())


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_decides(seed):
    model = Tied()
    groups = find_groups(model, torch.arange(11), norms="narrow")
    one, other = (permuted(model, groups, groups, s).norm.weight for s in (seed, seed))
    assert torch.equal(one, other)
