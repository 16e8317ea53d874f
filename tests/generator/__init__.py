"""Random networks: a small typed grammar over shapes. Knows nothing of groups.

A network is a list of steps, each reading one or two earlier values: a block of the
value's kind (image, tokens, vector), a passage to another kind, or a join. What no
step has read is pooled into vectors, and a linear head reads them all.
"""

from random import Random

import torch
from torch import Tensor, nn

from zoo.values import randomise_

from .draft import Draft

__all__ = ["random_network"]


def random_network(seed: int, *, shares: bool = False) -> tuple[nn.Module, Tensor]:
    """A network of 4 to 12 steps in eval mode and float64, and a batch of 2 images.

    Args:
        seed: Equal seeds give equal networks.
        shares: Whether about half of its blocks use a layer twice, write through views,
            or do something else in training.
    """
    rng = Random(seed)  # noqa: S311 - a seeded test needs no cryptography
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        draft = Draft(
            rng, shape=(3, rng.randint(4, 8), rng.randint(4, 8)), shares=shares
        )
        for _ in range(rng.randint(2, 10)):
            draft.grow()
        network = randomise_(draft.finish().double().eval())
        return network, torch.randn(2, *draft.shapes[0], dtype=torch.float64)
