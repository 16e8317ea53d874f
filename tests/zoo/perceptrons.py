"""Networks of linear layers: activations, per-unit parameters, gated units."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats

ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU,
    nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Hardshrink, nn.Softshrink,
    nn.Tanhshrink, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softplus, nn.Softsign,
    nn.RReLU, nn.Identity,
)  # fmt: skip


class MLP(nn.Sequential):
    """3 -> fc 11 -> ReLU -> fc 13 -> ReLU -> fc 5."""

    def __init__(self):
        super().__init__(
            nn.Linear(3, 11),
            nn.ReLU(),
            nn.Linear(11, 13),
            nn.ReLU(inplace=True),
            nn.Linear(13, 5),
        )


class AllActivations(nn.Module):
    """
    3 -> fc 11 -+-> act_1 -+-> fc 5
                +->  ...  -+ (+)
                +-> act_n -+
    """

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        self.activations = nn.ModuleList(act() for act in ACTIVATIONS)
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        hidden = self.fc1(x)
        return self.fc2(sum(act(hidden) for act in self.activations) / 22)


class Arithmetic(nn.Module):
    """3 -> fc 11 -> abs, sqrt, log1p, clamp, where, pow, exp, maximum -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        h = self.fc1(x)
        h = torch.where(h > 0, h.abs().sqrt(), -torch.log1p(h.clamp(min=0) + h.abs()))
        h = torch.maximum(h, h.pow(2)).masked_fill(h > 3, 3.0)
        return self.fc2((1 - h) / (1 + torch.exp(-h)) + h.square().rsqrt().clamp(max=2))


class PReLUs(nn.Module):
    """3 -> conv 11 -> PReLU(11) -> conv 13 -> PReLU(1) -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.act1 = nn.PReLU(11)
        self.conv2 = nn.Conv2d(11, 13, 3)
        self.act2 = nn.PReLU()
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = self.act2(self.conv2(self.act1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


class LayerScale(nn.Module):
    """
    3 -> fc 11 -+-> fc 13 -> GELU -> fc 11 -> * gamma(11) -(+)-> fc 5
                +------------------------------------------+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 11)
        self.mlp = nn.Sequential(nn.Linear(11, 13), nn.GELU(), nn.Linear(13, 11))
        self.gamma = nn.Parameter(torch.ones(11))
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.gamma * self.mlp(x))


class ResidualMLP(nn.Module):
    """
    3 -> fc 11 -+-> fc 13 -> tanh -> fc 11 -(+)-> fc 5
                +----------------------------+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 11)
        self.fc1, self.fc2 = nn.Linear(11, 13), nn.Linear(13, 11)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.fc2(self.fc1(x).tanh()))


class RawParameters(nn.Module):
    """3 -> x @ w(3 11) + b(11) -> tanh -> F.linear(w(13 11)) -> addmm(w(13 5)) -> 5."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.empty(3, 11))
        self.first_bias = nn.Parameter(torch.empty(11))
        self.second = nn.Parameter(torch.empty(13, 11))
        self.third = nn.Parameter(torch.empty(13, 5))
        self.third_bias = nn.Parameter(torch.empty(5))

    def forward(self, x):
        x = torch.tanh(x @ self.first + self.first_bias)
        x = F.silu(F.linear(x, self.second))
        return torch.addmm(self.third_bias, x, self.third)


class Buffers(nn.Module):
    """3 -> (x - mean(3)) / std(3) -> conv 11 -> * scale(11 1 1) -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3]))
        self.register_buffer("std", torch.tensor([0.7, 0.8, 0.9]))
        self.conv = nn.Conv2d(3, 11, 3)
        self.register_buffer("scale", torch.linspace(0.5, 2.0, 11).view(11, 1, 1))
        self.fc = nn.Linear(11, 5)

    def forward(self, x):
        x = (x - self.mean.view(1, -1, 1, 1)) / self.std.view(1, -1, 1, 1)
        return self.fc(torch.relu(self.conv(x) * self.scale).amax((-2, -1)))


class GLU(nn.Module):
    """3 -> fc 22 -> glu 11 -> conv1d 26 -> glu 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 22)
        self.conv = nn.Conv1d(11, 26, 3)
        self.glu = nn.GLU(dim=1)
        self.head = nn.Linear(13, 5)

    def forward(self, x):
        x = F.glu(self.fc(x))
        x = self.glu(self.conv(x.transpose(1, 2)))
        return self.head(x.transpose(1, 2)).mean(1)


class PackedSwiGLU(nn.Module):
    """3 -> fc 26 -> chunk -> silu(gate 13) * value 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.w12 = nn.Linear(3, 26, bias=False)
        self.w3 = nn.Linear(13, 5, bias=False)

    def forward(self, x):
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)


class Maxout(nn.Module):
    """3 -> fc 44 -> (11 units, 4 pieces) -> max over pieces -> fc 5."""

    def __init__(self, units=11, pieces=4):
        super().__init__()
        self.pieces = pieces
        self.fc1 = nn.Linear(3, units * pieces)
        self.fc2 = nn.Linear(units, 5)

    def forward(self, x):
        pieces = self.fc1(x).view(x.shape[0], -1, self.pieces)
        return self.fc2(pieces.max(dim=-1).values)


class Bilinear(nn.Module):
    """
    3 -+-> fc 11 -+-> bilinear 17 -> fc 5
       +-> fc 13 -+
    """

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(3, 11)
        self.right = nn.Linear(3, 13)
        self.bilinear = nn.Bilinear(11, 13, 17)
        self.head = nn.Linear(17, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.bilinear(self.left(x), self.right(x))))


class Dropouts(nn.Module):
    """3 -> conv 11 -> dropout2d -> conv 13 -> alpha dropout -> dropout -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.drop1 = nn.Dropout2d(0.2)
        self.conv2 = nn.Conv2d(11, 13, 3)
        self.drop2 = nn.AlphaDropout(0.2)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.drop1(self.conv1(x)))
        x = F.selu(self.drop2(self.conv2(x))).mean((2, 3))
        return self.fc(F.dropout(x, 0.3, training=self.training))


class WeightNorm(nn.Sequential):
    """3 -> weight-normed conv 11 -> ReLU -> weight-normed conv 13 -> pool -> fc 5."""

    def __init__(self):
        weight_norm = nn.utils.parametrizations.weight_norm
        super().__init__(
            weight_norm(nn.Conv2d(3, 11, 3)),
            nn.ReLU(),
            weight_norm(nn.Conv2d(11, 13, 3)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(13, 5),
        )


class PlaceTable(nn.Module):
    """3 -> fc 11 + the first rows of a table (20 11) -> ReLU -> sum -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(3, 11), nn.Linear(11, 5)
        self.table = nn.Parameter(torch.empty(20, 11))

    def forward(self, x):
        places = self.table[: x.shape[1]]
        return self.head((self.fc(x) + places).relu().sum(1))


class WeightNormColumns(nn.Sequential):
    """3 -> fc 11 -> ReLU -> fc 5, whose columns have a length and a direction each."""

    def __init__(self):
        weight_norm = nn.utils.parametrizations.weight_norm
        last = weight_norm(nn.Linear(11, 5), dim=1)
        super().__init__(nn.Linear(3, 11), nn.ReLU(), last)


class WeightNormHooks(nn.Sequential):
    """3 -> conv 11 -> ReLU -> conv 13 -> pool -> fc 5, weights made by hooks."""

    def __init__(self):
        super().__init__(
            normed_by_hook(nn.Conv2d(3, 11, 3)),
            nn.ReLU(),
            normed_by_hook(nn.Conv2d(11, 13, 3)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(13, 5),
        )


def normed_by_hook(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the old way, still in use
        return nn.utils.weight_norm(layer)


class EinsumDots(nn.Module):
    """3 -> einsum w(11 3) -> ReLU -> einsum w(5 11), any dimensions before."""

    def __init__(self):
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(11, 3))
        self.weight2 = nn.Parameter(torch.empty(5, 11))

    def forward(self, x):
        hidden = torch.einsum("...i,oi->...o", x, self.weight1)
        return torch.einsum("... i, oi -> ... o", F.relu(hidden), self.weight2)


class KroneckerFactors(nn.Module):
    """6 -> a(5 2) x b(7 3), every product of two entries a weight -> fc 11 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.left = nn.Parameter(torch.empty(5, 2))
        self.right = nn.Parameter(torch.empty(7, 3))
        self.fc, self.head = nn.Linear(35, 11), nn.Linear(11, 5)

    def forward(self, x):
        hidden = F.relu(F.linear(x, torch.kron(self.left, self.right)))
        return self.head(F.relu(self.fc(hidden)))


class OtherNames(nn.Module):
    """3 -> fc 11 -> tensordot w(11 13) -> by names that torch has twice -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(13, 5)
        self.weight = nn.Parameter(torch.empty(11, 13))

    def forward(self, x):
        hidden = torch.tensordot(torch.special.expit(self.fc1(x)), self.weight, 1)
        hidden = torch.multiply(hidden.absolute(), hidden.greater(-1).to(hidden))
        hidden = torch.divide(hidden, 1 + torch.linalg.norm(hidden, dim=-1)[..., None])
        return self.fc2(torch.subtract(*torch.broadcast_tensors(hidden, hidden[:1])))


class Softplus(nn.Module):
    """A parametrization: the weight is the softplus of what is learned."""

    def forward(self, weight):
        return F.softplus(weight) / 7


class Parametrized(nn.Module):
    """3 -> fc 11 with softplus(weight) -> tanh -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        nn.utils.parametrize.register_parametrization(self.fc1, "weight", Softplus())
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


VECTOR, SEQUENCE, IMAGE = floats(2, 3), floats(2, 9, 3), floats(2, 3, 9, 10)

ENTRIES = {
    "mlp": Entry(MLP, VECTOR, expect=at_least(2)),
    "all_activations": Entry(AllActivations, VECTOR, expect=at_least(1)),
    "arithmetic": Entry(Arithmetic, VECTOR),
    "prelus": Entry(PReLUs, IMAGE, expect=at_least(2)),
    "layer_scale": Entry(LayerScale, VECTOR, expect=at_least(2)),
    "residual_mlp": Entry(ResidualMLP, VECTOR, expect=at_least(2)),
    "raw_parameters": Entry(RawParameters, VECTOR, expect=at_least(2)),
    "buffers": Entry(Buffers, IMAGE, expect=at_least(1)),
    "glu": Entry(GLU, SEQUENCE, expect=at_least(2)),
    "packed_swiglu": Entry(PackedSwiGLU, SEQUENCE, expect=at_least(1)),
    "maxout": Entry(Maxout, VECTOR, expect=at_least(1)),
    "bilinear": Entry(Bilinear, VECTOR),
    "dropouts": Entry(Dropouts, IMAGE, expect=at_least(2)),
    "weight_norm": Entry(WeightNorm, IMAGE),
    "place_table": Entry(PlaceTable, SEQUENCE, expect=at_least(1)),
    "weight_norm_columns": Entry(WeightNormColumns, VECTOR, expect=at_least(1)),
    "weight_norm_hooks": Entry(WeightNormHooks, IMAGE),
    "einsum_dots": Entry(EinsumDots, SEQUENCE, expect=at_least(1)),
    "kronecker_factors": Entry(KroneckerFactors, floats(2, 6), expect=at_least(3)),
    "other_names": Entry(OtherNames, SEQUENCE, expect=at_least(2)),
    "parametrized": Entry(Parametrized, VECTOR),
}
