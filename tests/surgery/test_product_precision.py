import pytest
import torch
from torch import nn

from diffprune._surgery.compare import arithmetic
from diffprune._surgery.double_precision import in_double
from diffprune._surgery.product_precision import product_type

aten = torch.ops.aten
CUDA = torch.device("cuda")


@pytest.fixture
def told():
    """Tell torch how to round the factors of products on this processor."""
    places = {k: getattr(torch.backends.mkldnn, k) for k in ("matmul", "conv", "rnn")}
    before = {kind: place.fp32_precision for kind, place in places.items()}

    def tell(kind, precision):
        places[kind].fp32_precision = precision

    yield tell
    for kind, precision in before.items():
        tell(kind, precision)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("ieee", torch.float32), ("tf32", torch.float16), ("bf16", torch.bfloat16)],
)
@pytest.mark.parametrize(
    ("kind", "model", "shape"),
    [
        ("matmul", nn.Linear(3, 5), (2, 3)),
        ("matmul", nn.Bilinear(3, 3, 5), (2, 3)),
        ("conv", nn.Conv2d(3, 5, 3), (2, 3, 4, 4)),
        ("conv", nn.ConvTranspose1d(3, 5, 3), (2, 3, 4)),
        ("rnn", nn.LSTM(3, 5), (2, 3)),
    ],
)
def test_products_are_as_precise_as_torch_was_told(
    told, kind, model, shape, precision, dtype
):
    told(kind, precision)
    x = torch.rand(shape)
    inputs = (x, x) if isinstance(model, nn.Bilinear) else x
    assert set(arithmetic(model, inputs)) == {dtype}


def test_other_kinds_and_types_are_not_concerned(told):
    told("conv", "bf16")
    assert arithmetic(nn.Linear(3, 5), torch.rand(2, 3)) == [torch.float32]
    fine = nn.Conv1d(3, 5, 3).double()
    assert arithmetic(fine, torch.rand(2, 3, 4).double()) == [torch.float64]
    assert arithmetic(nn.ReLU(), torch.rand(2, 3)) == [torch.float32]


def test_gpus_round_convolutions_and_recurrent_layers_by_default():
    assert product_type(aten.convolution.default, CUDA) == torch.float16
    assert product_type(aten._cudnn_rnn.default, CUDA) == torch.float16
    assert product_type(aten.mm.default, CUDA) == torch.float32
    assert product_type(aten.relu.default, CUDA) == torch.float32


def test_matrices_follow_the_usual_switch():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert product_type(aten.addmm.default, CUDA) == torch.float16
        fused = aten._scaled_dot_product_efficient_attention.default
        assert product_type(fused, CUDA) == torch.float16
    finally:
        torch.set_float32_matmul_precision(before)


class OnlySingle(nn.Linear):
    """Stands on a device without double precision, as Apple's is."""

    def double(self):
        raise TypeError("this device has no float64")

    def __deepcopy__(self, memo):
        return OnlySingle(self.in_features, self.out_features)


def test_a_device_without_double_precision_is_checked_in_single():
    fine = in_double(OnlySingle(3, 5), torch.rand(2, 3))
    assert not fine.is_double
    assert fine.model.weight.dtype == torch.float32
