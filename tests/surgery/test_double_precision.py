import pytest
import torch
from torch import nn

from diffprune._surgery.double_precision import cast_like_, doubled, in_double


class Single(nn.Linear):
    """Insists on single precision."""

    def forward(self, x):
        return super().forward(x.float())


@pytest.mark.parametrize(("kind", "is_double"), [(nn.Linear, True), (Single, False)])
def test_a_copy_in_double_precision_where_it_runs_in_it(kind, is_double):
    model, x = kind(3, 2), torch.rand(4, 3)
    fine = in_double(model, x)
    dtype = torch.float64 if is_double else torch.float32
    assert fine.is_double == is_double
    assert {fine.model.weight.dtype, fine.inputs.dtype, fine.returned[0].dtype} == {
        dtype
    }
    assert model.weight.dtype == torch.float32
    torch.testing.assert_close(fine.returned[0].float(), model(x))


def test_tensors_get_the_types_of_their_namesakes():
    like = nn.Sequential(nn.Linear(3, 2).bfloat16(), nn.BatchNorm1d(2))
    model = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)).double()
    cast_like_(model, like)
    types = {name: tensor.dtype for name, tensor in like.state_dict().items()}
    assert {name: t.dtype for name, t in model.state_dict().items()} == types


def test_inputs_are_doubled_wherever_they_are_nested():
    tokens = torch.ones(2, dtype=torch.long)
    found = doubled({"x": [torch.ones(2), tokens], "flag": True})
    assert found["x"][0].dtype == torch.float64
    assert found["x"][1] is tokens
    assert found["flag"] is True
