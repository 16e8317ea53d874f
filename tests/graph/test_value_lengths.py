"""A length that only values tell is the one that it has for the example."""

import pytest
import torch
from torch import nn

from diffprune import find_groups


class Picked(nn.Module):
    """4 -> fc 7, and those rows through fc 3 that are picked."""

    def __init__(self, pick):
        super().__init__()
        self.first, self.last, self.pick = nn.Linear(4, 7), nn.Linear(7, 3), pick
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.last(self.pick(self.first(x), x[:, 0] > 0))


def without_gradients(h, mask):
    with torch.no_grad():
        return h[mask]


PICKS = {
    "mask": lambda h, mask: h[mask],
    "numbers": lambda h, mask: h[torch.where(mask)[0]],
    "nonzero": lambda h, mask: h.index_select(0, mask.nonzero().squeeze(-1)),
    "argwhere": lambda h, mask: h[torch.argwhere(mask)[:, 0]],
    "without gradients": without_gradients,
    "noisy": lambda h, mask: (h + torch.rand_like(h))[mask],
}


def rows(positive):
    """Five rows, the first of them positive."""
    x = torch.rand(5, 4) + 0.1
    x[positive:] *= -1
    return x


@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
@pytest.mark.parametrize("positive", [0, 1, 2, 5])
def test_costs_are_those_of_the_rows_that_the_example_picks(pick, positive):
    groups = find_groups(Picked(pick), rows(positive))
    assert groups.sizes == {"first": 7}
    assert groups.macs() == 5 * 4 * 7 + positive * 7 * 3


def test_looking_changes_neither_buffers_nor_random_numbers():
    model, x, before = Picked(PICKS["noisy"]), rows(2), torch.get_rng_state()
    find_groups(model, x)
    assert model.calls == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_runs_twice_where_all_lengths_are_known(monkeypatch):
    monkeypatch.setattr(torch.fx.Interpreter, "run", None)
    find_groups(Picked(lambda h, _: h), rows(2))


def test_a_mask_over_units_keeps_them_whole():
    mask = torch.tensor([True] * 7)
    groups = find_groups(Picked(lambda h, _: h[:, mask]), rows(2))
    reasons = {str(axis.reason) for axis in groups.frozen if axis.size == 7}
    assert all("picked by their position" in reason for reason in reasons)
    assert reasons


def test_a_number_made_of_values_is_said_to_be_one():
    def pick(h, mask):
        return h[: int(mask.sum())]

    with pytest.raises(Exception, match="computed from the values of a tensor"):
        find_groups(Picked(pick), rows(2))
