import pytest
import torch
from torch import nn
from torch.library import opcheck

from diffprune.gates import Gate
from diffprune.gates.multiply import _gate, multiply

SHAPES = [
    ((2, 3), (3,), 1),
    ((2, 3, 4), (3,), -2),
    ((5, 3), (5, 3), 0),
    ((3,), (3,), 0),
]
CASES = pytest.mark.parametrize(("shape", "covered", "dim"), SHAPES)


@CASES
def test_the_operator_equals_the_plain_product(shape, covered, dim):
    x, values = torch.randn(shape), torch.randn(covered)
    torch.testing.assert_close(_gate(x, values, dim), multiply(x, values, dim))


@CASES
def test_the_operator_is_complete(shape, covered, dim):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    values = torch.randn(covered, dtype=torch.float64, requires_grad=True)
    opcheck(_gate, (x, values, dim))
    assert torch.autograd.gradcheck(lambda x, z: _gate(x, z, dim), (x, values))


@CASES
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (-1, -1)])
def test_the_operator_can_be_mapped(shape, covered, dim, in_dims):
    def batch(of, where):
        return (
            torch.randn(of) if where is None else torch.randn(4, *of).movedim(0, where)
        )

    x, values = batch(shape, in_dims[0]), batch(covered, in_dims[1])
    torch.testing.assert_close(
        torch.func.vmap(lambda x, z: _gate(x, z, dim), in_dims)(x, values),
        torch.func.vmap(lambda x, z: multiply(x, z, dim), in_dims)(x, values),
    )


@pytest.mark.parametrize("u", ["sigmoid", "softmax"])
def test_an_exported_gate_is_one_node_with_the_same_output(u):
    model = nn.Sequential(nn.Linear(4, 3), Gate(3, u=u), nn.ReLU()).eval()
    x = torch.randn(2, 4)
    exported = torch.export.export(model, (x,), strict=False)
    targets = [str(node.target) for node in exported.graph.nodes]
    assert targets.count("diffprune.gate.default") == 1
    torch.testing.assert_close(exported.module()(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_of_the_input_wins(dtype):
    assert multiply(torch.ones(2, 3, dtype=dtype), torch.rand(3), 1).dtype == dtype
