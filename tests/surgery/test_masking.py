import copy

import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.masking import mask

KEEP = {"fc1": torch.tensor([True, True, False, True, True])}


def test_masking_zeroes_the_slices_of_removed_units_in_a_copy():
    model = nn.Sequential()
    model.fc1, model.relu, model.fc2 = nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)
    before = copy.deepcopy(model.state_dict())
    masked = mask(model, find_groups(model, torch.rand(4, 3)), KEEP)
    assert masked.fc1.weight[2].count_nonzero() == 0
    assert masked.fc1.bias[2] == 0
    assert masked.fc2.weight[:, 2].count_nonzero() == 0
    kept = masked.fc1.weight[KEEP["fc1"]]
    assert torch.equal(kept, model.fc1.weight[KEEP["fc1"]])
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
