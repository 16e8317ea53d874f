import pytest
import torch

from diffprune._export.dynamic_batch import batch_size, resized
from diffprune.errors import ArgumentError


def test_nested_inputs_are_resized_and_the_rest_is_left():
    inputs = ({"a": torch.arange(3), "b": [torch.arange(6).view(3, 2), None, 7]},)
    (found,) = resized(inputs, 0, 5)
    assert found["a"].tolist() == [0, 1, 2, 0, 1]
    assert found["b"][0].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert found["b"][1:] == [None, 7]
    assert batch_size(inputs, 0) == 3


@pytest.mark.parametrize(
    ("inputs", "dim"),
    [
        ((torch.ones(3, 2), torch.ones(4, 2)), 0),
        (torch.ones(3), 1),
        ((torch.ones(3), torch.tensor(1.0)), 0),
        (torch.ones(0, 3), 0),
        ((), 0),
    ],
)
def test_inputs_without_a_common_batch_are_refused(inputs, dim):
    with pytest.raises(ArgumentError, match=f"batch dimension {dim} in common"):
        batch_size(inputs, dim)
