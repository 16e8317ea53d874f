import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Biased(nn.Module):
    """9 -> q, k, v (5 heads x 7) -> softmax(q k^T + bias per head) v -> 9, as in T5."""

    def __init__(self):
        super().__init__()
        self.heads = 5
        self.q, self.k, self.v = (nn.Linear(9, 35) for _ in range(3))
        self.bias, self.out = nn.Embedding(5, 5), nn.Linear(35, 9)

    def forward(self, x):
        n = torch.arange(x.shape[1])
        bias = self.bias(n[:, None] - n + 2).permute(2, 0, 1)
        q, k, v = (
            layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = torch.softmax(q @ k.mT + bias, dim=-1)
        return self.out((scores @ v).transpose(1, 2).flatten(2))


@pytest.fixture
def sequence():
    return torch.randn(2, 3, 9, dtype=torch.float64)


def test_a_bias_per_head_goes_with_its_head(sizes, sequence):
    found = sizes(Biased().double(), sequence)
    assert sorted(found.values()) == [5, 7, 7]


@pytest.mark.parametrize(("scale", "inside"), [(None, False), (0.3, True)])
def test_the_scale_decides_whether_heads_can_be_narrowed(
    sizes, sequence, scale, inside
):
    class Fused(Biased):
        def forward(self, x):
            q, k, v = (
                layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
                for layer in (self.q, self.k, self.v)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, scale=scale)
            return self.out(mixed.transpose(1, 2).flatten(2))

    found = sizes(Fused().double(), sequence)
    assert sorted(found.values()) == ([5, 7, 7] if inside else [5, 7])
