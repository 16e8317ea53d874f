import pytest
import torch
from torch import nn

from diffprune._export.checked_export import batch_size, check_same, resized
from diffprune.errors import ArgumentError, ExportError


def doubles(x):
    return [2 * x]


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def test_several_batch_sizes_are_tried():
    sizes = []
    check_same(Double(), lambda x: sizes.append(len(x)) or doubles(x), torch.rand(3), 0)
    assert sizes == [3, 1, 4]


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (lambda x: [2 * x, x], "returns 2 tensors, the model 1"),
        (lambda x: [(2 * x).double()], "returns float64"),
        (lambda x: [2 * x[:1]], "shape"),
        (
            lambda x: [2 * x + 1e-3],
            r"computes something else on inputs of shape \(3,\)",
        ),
        (lambda x: [2 * x + torch.nan], "computes something else"),
        (lambda x: [2 * x[2:]][len(x)], "does not run on inputs of shape .3"),
        (lambda x: [2 * x if len(x) > 1 else x], r"on inputs of shape \(1,\)"),
    ],
)
def test_differences_are_refused(run, match):
    with pytest.raises(ExportError, match=match):
        check_same(Double(), run, torch.rand(3) + 1, 0)


@pytest.mark.parametrize(
    ("dtype", "noise"),
    [(torch.float32, 1e-5), (torch.float64, 1e-9), (torch.half, 0.01)],
)
def test_rounding_is_allowed(dtype, noise):
    x = torch.rand(3, dtype=dtype) + 1
    check_same(Double(), lambda x: [2 * x * (1 + noise)], x, 0)


def test_infinities_have_to_agree():
    x = torch.tensor([1.0, torch.inf, torch.nan])
    check_same(Double(), doubles, x, None)
    with pytest.raises(ExportError, match="computes something else"):
        check_same(Double(), lambda x: [(2 * x).nan_to_num(posinf=1.0)], x, None)


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def test_a_model_that_is_random_in_eval_mode_is_named_as_such():
    with pytest.raises(ExportError, match="random numbers in eval mode"):
        check_same(Noisy(), lambda x: [x + torch.rand_like(x)], torch.rand(3), 0)


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
