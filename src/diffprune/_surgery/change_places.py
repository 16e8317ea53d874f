"""Let units of a model change places: outputs stay if groups hold all that belongs.

This is the one check of a group that needs no removal, so it also holds where removing
a unit changes what others do.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from diffprune._core.copying import copied
from diffprune._core.modules import named_tensors
from diffprune._graph import Groups, PruneGroup, rearranged

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def permuted(
    model: ModuleT, groups: Groups, chosen: Sequence[PruneGroup], seed: int = 0
) -> ModuleT:
    """Return a copy of the model in which units have changed places, by lot.

    Args:
        model: Left as it is.
        groups: Its groups.
        chosen: Those whose units change places.
        seed: Of the lot.
    """
    draw = torch.Generator().manual_seed(seed)
    orders = {g.atom: torch.randperm(g.size, generator=draw) for g in chosen}
    shuffled = copied(model)
    with torch.no_grad():
        for name, tensor in _once(shuffled).items():
            for dim, axis in enumerate(groups.tensors[name]):
                index = rearranged(axis, orders).to(tensor.device)
                tensor.copy_(tensor.clone().index_select(dim, index))
    return shuffled


def _once(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a model, a shared one under its first name only."""
    first = {id(t): name for name, t in reversed(named_tensors(model).items())}
    return {n: t for n, t in named_tensors(model).items() if first[id(t)] == n}
