import pytest
import torch
from torch import nn

BODIES = {
    "einsum": lambda m, h: torch.einsum("ni,oi->no", h, m.last.weight),
    "einsum with dots": lambda m, h: torch.einsum("...i,oi->...o", h, m.last.weight),
    "einsum with long dots": lambda m, h: torch.einsum(
        "... i, ...i, oi -> ...o", h[:, None], h[None], m.last.weight
    ),
    "einsum with summed dots": lambda _, h: torch.einsum("ni,...i->n", h, h),
    "einsum with dots of two lengths": lambda m, h: m.last(
        torch.einsum("...,...->...", h[None], h)
    ),
    "einsum with units in dots": lambda m, h: m.last(
        torch.einsum("n...,...->n...", h, h[0])
    ),
    "einsum broadcast": lambda _, h: torch.einsum("ni,ni->n", h, h[:1]),
    "einsum summed": lambda _, h: torch.einsum("ni->n", h),
    "matmul": lambda m, h: h @ m.last.weight.T,
    "mv": lambda m, h: h @ m.last.weight[0],
    "addmm": lambda m, h: torch.addmm(m.last.bias, h, m.last.weight.t()),
    "vdot": lambda _, h: torch.vdot(h[0], h[1].tanh()),
    "outer": lambda _, h: torch.outer(h[0], h[1]).sum(),
    "kron": lambda _, h: torch.kron(h, h.new_ones(3)).sum(),
    "kron of matrices": lambda _, h: torch.kron(h.new_ones(1, 2), h).norm(dim=1),
    "bmm": lambda m, h: torch.bmm(h[None], m.last.weight.t()[None]),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_products_are_summed_over_units(between, sizes, body):
    assert sizes(between(body)) == {"first": 8}


@pytest.mark.parametrize("equation", ["ni,oi", "...i,oi"])
def test_einsum_in_shorthand_is_refused(between, reason, equation):
    model = between(lambda m, h: torch.einsum(equation, h, m.last.weight))
    text = reason(model)
    assert "this form of einsum is not followed" in text
    assert "Name each axis." in text


@pytest.mark.parametrize("groups", [1, 2])
def test_groups_of_transposed_convolutions(sizes, groups):
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 6, 1)
            self.up = nn.ConvTranspose2d(6, 4, 2, groups=groups)
            self.last = nn.Conv2d(4, 2, 1)

        def forward(self, x):
            return self.last(self.up(self.first(x)).relu())

    model = Transposed().double()
    found = sizes(model, torch.randn(2, 3, 4, 4, dtype=torch.float64))
    assert sorted(found.values()) == ([4, 6] if groups == 1 else [2, 2, 3])
