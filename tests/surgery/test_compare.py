import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune._surgery.compare import (
    Gap,
    coarsest_arithmetic,
    doubled,
    gap,
    largest_gap,
    outputs,
    tolerance,
)

NAN, INF = torch.nan, torch.inf
FAR = Gap(INF, INF)


@pytest.mark.parametrize(
    ("expected", "actual", "result"),
    [
        ([1.0, -2.0], [1.0, -1.5], Gap(0.5, 0.25)),
        ([NAN, 2.0], [NAN, 2.0], Gap(0.0, 0.0)),
        ([INF, 1.0], [INF, 1.5], Gap(0.5, 0.5)),
        ([NAN, 2.0], [2.0, 2.0], FAR),
        ([1.0, 2.0], [1.0, NAN], FAR),
        ([1.0, 2.0], [1.0, INF], FAR),
        ([INF, 2.0], [-INF, 2.0], FAR),
        ([0.0, 0.0], [0.0, 1e-3], Gap(1e-3, 1e-3)),
        ([1, 2], [1, 2], Gap(0.0, 0.0)),
        ([1, 2], [1, 3], FAR),
        ([True], [False], FAR),
        ([1.0], [1], FAR),
        ([1.0], [1.0, 1.0], FAR),
        ([1 + 1j], [1 - 1j], Gap(2.0, 2**0.5)),
        ([], [], Gap(0.0, 0.0)),
    ],
)
def test_gap(expected, actual, result):
    found = gap(torch.tensor(expected), torch.tensor(actual))
    assert found == pytest.approx(result)


def test_the_largest_gap_counts_and_all_outputs_must_be_there():
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert largest_gap([one, one], [one, two]) == Gap(1.0, 1.0)
    assert largest_gap([one], [one, one]) == FAR
    assert largest_gap([], []) == Gap(0.0, 0.0)


class Nested(nn.Module):
    """Returns numbers, tensors and text, nested; draws a random number."""

    def forward(self, x, *, scale=1.0):
        return {"a": [x * scale, 3], "b": ("text", None, True), "c": torch.rand(1)}


def test_outputs_are_flattened_and_repeat_for_one_seed():
    model, inputs = Nested(), {"x": torch.ones(2), "scale": 2.0}
    state = torch.get_rng_state()
    first, again = outputs(model, inputs), outputs(model, inputs)
    assert [tuple(t.shape) for t in first] == [(2,), (), (), (1,)]
    assert largest_gap(first, again) == Gap(0.0, 0.0)
    assert largest_gap(first, outputs(model, inputs, seed=1)).absolute > 0
    assert torch.equal(torch.get_rng_state(), state)


def test_outputs_are_those_of_eval_mode_and_the_mode_is_restored():
    model = nn.Dropout(0.5).train()
    assert torch.equal(outputs(model, torch.ones(9))[0], torch.ones(9))
    assert model.training


class CastsInside(nn.Module):
    def forward(self, x):
        return F.softmax(x, -1, dtype=torch.float32).to(x.dtype)


@pytest.mark.parametrize(
    ("model", "dtype"), [(CastsInside(), torch.float32), (nn.ReLU(), torch.float64)]
)
def test_casts_inside_a_model_are_seen(model, dtype):
    x = torch.ones(3, dtype=torch.float64)
    assert coarsest_arithmetic(model, x) == dtype


def test_inputs_are_doubled_wherever_they_are_nested():
    tokens = torch.ones(2, dtype=torch.long)
    found = doubled({"x": [torch.ones(2), tokens], "flag": True})
    assert found["x"][0].dtype == torch.float64
    assert found["x"][1] is tokens
    assert found["flag"] is True


def test_coarser_arithmetic_tolerates_more():
    dtypes = [torch.float64, torch.float32, torch.bfloat16]
    assert [tolerance(dtype) for dtype in dtypes] == [1e-10, 1e-5, 1e-2]
