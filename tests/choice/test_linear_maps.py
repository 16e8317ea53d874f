from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune._choice.linear_maps import linear_map
from diffprune._choice.watch import Watch

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
OPTIONS = [
    {"groups": g, "stride": s, "padding": p, "dilation": d}
    for g, s, p, d in product((1, 2, 6), (1, 2), (0, 1, "same"), (1, 2))
    if not (p == "same" and s > 1)
]


def seen(run):
    """The only linear map of a run, and its result."""
    found = []

    def watch(call):
        result = call.run()
        if linear_map(call) is not None:
            found.append((linear_map(call), result))
        return result

    with Watch(watch):
        run()
    (only,) = found
    return only


def check(run):
    """Rows times matrices are the outputs, and matrices can be taken back."""
    found, y = seen(run)
    rows = torch.randperm(y.numel() // found.channels)[:37]
    inputs, matrix = found.inputs(y, rows), found.matrix(found.weight)
    expected = torch.einsum("rgf,gfo->rgo", inputs, matrix)
    if found.bias is not None:
        expected = expected + found.bias.view(inputs.shape[1], -1)
    torch.testing.assert_close(found.outputs(y, rows), expected)
    assert torch.equal(found.unmatrix(matrix, found.weight.shape), found.weight)


@pytest.fixture(autouse=True)
def _in_double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("space", [1, 2, 3])
def test_convolutions(space, options):
    layer = CONVS[space - 1](6, 12, 3, **options)
    check(lambda: layer(torch.rand(2, 6, *(9, 8, 7)[:space])))
    check(lambda: layer(torch.rand(6, *(9, 8, 7)[:space])))


@pytest.mark.parametrize(
    "options", [o for o in OPTIONS if o["padding"] != "same"], ids=str
)
@pytest.mark.parametrize("space", [1, 2, 3])
def test_transposed_convolutions(space, options):
    more = int(max(options["stride"], options["dilation"]) > 1)
    layer = TRANSPOSED[space - 1](6, 12, 3, output_padding=more, **options)
    check(lambda: layer(torch.rand(2, 6, *(5, 4, 3)[:space])))


def test_matrix_products():
    x, weight, bias = torch.rand(2, 3, 4), torch.rand(5, 4), torch.rand(5)
    check(lambda: F.linear(x, weight, bias))
    check(lambda: F.linear(x, weight=weight))
    check(lambda: x @ weight.T.contiguous())
    check(lambda: torch.mm(x[0], weight.T.contiguous()))
    check(lambda: torch.addmm(bias, x[0], weight.T.contiguous()))


def test_what_is_no_linear_map():
    for run in (
        lambda: torch.rand(2, 3, 4) @ torch.rand(2, 4, 5),
        lambda: torch.addmm(torch.rand(3, 5), torch.rand(3, 4), torch.rand(4, 5)),
        lambda: torch.rand(4, 5).__rmatmul__(torch.rand(3, 4)),  # the weight first
        lambda: torch.rand(3).relu(),
    ):
        with pytest.raises(ValueError, match="unpack"):
            seen(run)


@pytest.mark.parametrize("groups", [1, 3])
def test_outputs_that_a_transposed_convolution_keeps(groups):
    layer = nn.ConvTranspose1d(6, 4 * groups, 3, groups=groups)
    found, _ = seen(lambda: layer(torch.rand(2, 6, 5)))
    assert found.kept_outputs({}) is None
    kept = found.kept_outputs({1: [0, 3]})
    assert list(kept) == [4 * g + o for g in range(groups) for o in (0, 3)]
    if groups == 3:
        assert list(found.kept_outputs({0: [0, 1, 4, 5]})) == [0, 1, 2, 3, 8, 9, 10, 11]
