import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune._surgery.compare import (
    Gap,
    arithmetic,
    compare,
    gap,
    outputs,
    tensors,
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
    assert compare([one, one], [one, two]).gap == Gap(1.0, 1.0)
    assert compare([one], [one, one]).gap == FAR
    assert compare([], []).gap == Gap(0.0, 0.0)


@pytest.mark.parametrize(
    "first", [torch.tensor([3]), torch.tensor([1.0], dtype=torch.half)]
)
def test_the_first_output_does_not_decide_what_the_second_may_differ_by(first):
    one, other = torch.tensor([1.0]), torch.tensor([1.005])
    assert not compare([first, one], [first, other]).is_equal
    assert not compare([one, first], [other, first]).is_equal
    inside = compare([one], [other], computed_in=[torch.bfloat16])
    assert inside.is_equal
    assert inside.certificate.dtype == "bfloat16"


class Nested(nn.Module):
    """Returns numbers, tensors and text, nested; draws a random number."""

    def forward(self, x, *, scale=1.0):
        return {"a": [x * scale, 3], "b": ("text", None, True), "c": torch.rand(1)}


def test_outputs_are_flattened_and_repeat_for_one_seed():
    model, inputs = Nested(), {"x": torch.ones(2), "scale": 2.0}
    state = torch.get_rng_state()
    first, again = outputs(model, inputs), outputs(model, inputs)
    assert [tuple(t.shape) for t in first] == [(2,), (), (), (1,)]
    assert compare(first, again).gap == Gap(0.0, 0.0)
    assert compare(first, outputs(model, inputs, seed=1)).gap.absolute > 0
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
    assert arithmetic(model, x) == [dtype]


def test_coarser_arithmetic_tolerates_more():
    dtypes = [torch.float64, torch.float32, torch.bfloat16]
    assert [tolerance(dtype) for dtype in dtypes] == [1e-10, 1e-5, 1e-2]
    elsewhere = [tolerance(dtype, elsewhere=True) for dtype in dtypes]
    assert elsewhere == [1e-8, 1e-4, 2e-2]


class CastsASideBranch(nn.Module):
    def forward(self, x):
        rounded = x.bfloat16().double()
        return rounded + 1, x + 1, rounded.argmax(), rounded.clone().add_(x)


def test_only_what_was_computed_through_a_coarse_type_counts_as_coarse():
    found = arithmetic(CastsASideBranch(), torch.rand(3, dtype=torch.float64))
    coarse, fine = torch.bfloat16, torch.float64
    assert found == [coarse, fine, coarse, coarse]


def test_sparse_outputs_are_compared_as_dense_ones():
    one = torch.eye(3).to_sparse()
    assert compare(tensors(one), tensors([torch.eye(3)])).is_equal
    assert not compare(tensors(one), tensors([torch.ones(3, 3)])).is_equal


def test_outputs_of_a_model_that_asks_for_gradients_itself_have_none():
    class Asks(nn.Linear):
        def forward(self, x):
            with torch.enable_grad():
                return super().forward(x)

    assert not any(t.requires_grad for t in outputs(Asks(3, 2), torch.rand(4, 3)))
