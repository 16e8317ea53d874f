import pytest
import torch
from torch import nn

BODIES = {
    "inverse": torch.linalg.inv,
    "determinant": lambda m: torch.linalg.det(m)[..., None, None] * m,
    "log of it": lambda m: torch.linalg.slogdet(m)[1][..., None, None] * m,
    "exponential": torch.matrix_exp,
    "solution": lambda m: torch.linalg.solve(m, m * m),
    "factors": lambda m: torch.linalg.qr(m)[1],
    "values": lambda m: torch.linalg.svdvals(m)[..., None] * m,
    "on a diagonal": lambda m: torch.diag_embed(m.sum(-1)) + m,
    "cross": lambda m: torch.linalg.cross(m[..., :3], m[..., 1:]),
    "turned": lambda m: torch.rot90(m, 1, (-2, -1)),
}


class Matrices(nn.Module):
    """3 channels -> 5 matrices of 4 by 4 -> body -> 2 channels."""

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.first, self.last = nn.Conv2d(3, 5, 1), nn.Conv2d(5, 2, 1)

    def forward(self, x):
        return self.last(self.body(self.first(x).tanh() + 3 * torch.eye(4).to(x)))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_channels_pass_by_functions_of_matrices(sizes, body):
    inputs = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert sizes(Matrices(body).double(), inputs) == {"first": 5}


class Transforms(nn.Module):
    """3 -> one matrix of 4 by 4, which is inverted -> 2."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 2)

    def forward(self, x):
        matrix = self.first(x).view(-1, 4, 4) + 3 * torch.eye(4).to(x)
        return self.last(torch.linalg.inv(matrix).flatten(1))


def test_elements_of_a_matrix_are_frozen(sizes):
    inputs = torch.randn(2, 3, dtype=torch.float64)
    assert sizes(Transforms().double(), inputs) == {}


def test_a_plane_of_channels_is_not_turned(sizes):
    inputs = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    model = Matrices(nn.Identity()).double()
    model.forward = lambda x: torch.rot90(model.first(x), 1, (1, 3))
    assert sizes(model, inputs) == {}


@pytest.mark.parametrize(
    "body",
    [
        torch.tril,
        lambda m: m.triu(1),
        lambda m: m * torch.diagonal(m, dim1=-2, dim2=-1)[..., None],
    ],
)
def test_channels_pass_by_parts_of_matrices(sizes, body):
    inputs = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert sizes(Matrices(body).double(), inputs) == {"first": 5}


def test_a_triangle_of_channels_stays_whole(sizes):
    inputs = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    model = Matrices(nn.Identity()).double()
    model.forward = lambda x: model.first(x).transpose(1, 3).tril()
    assert sizes(model, inputs) == {}


def test_factors_on_a_diagonal_go_with_what_they_scale(between, sizes):
    model = between(lambda m, h: m.last(h @ torch.diag(m.factors)))
    model.factors = nn.Parameter(torch.rand(8, dtype=torch.float64))
    assert sizes(model) == {"factors": 8}


def test_units_beside_a_diagonal_or_across_vectors_stay_whole(between, sizes):
    shifted = between(lambda m, h: m.last(torch.diag_embed(h, 1).sum(1)), read=9)
    assert sizes(shifted) == {}
    vectors = between(
        lambda m, h: m.last(
            torch.linalg.cross(h.unflatten(1, (-1, 3)), h.view(2, 3, 3)).flatten(1)
        ),
        width=9,
        read=9,
    )
    assert sizes(vectors) == {}
