"""Print what can be removed from a transformer encoder layer, and what not."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

import diffprune as dp


class Encoder(nn.Module):
    """Attention and a feed-forward part, each around a residual stream."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """From tokens of the residual width to such tokens."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(tokens)).chunk(3, dim=-1)
        )
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        tokens = tokens + self.out(mixed)
        return tokens + self.down(gelu(self.up(self.norm2(tokens))))


def main() -> None:
    """Look once at everything, and once at whole heads only."""
    tokens = torch.rand(2, 5, 32)
    print(dp.find_groups(Encoder(), tokens))
    for group in dp.find_groups(Encoder(), tokens, heads="whole"):
        places = ", ".join(f"{axis.tensor}[{axis.dim}]" for axis in group.axes)
        print(f"{group.name}: {group.size} units along {places}")


if __name__ == "__main__":
    main()
