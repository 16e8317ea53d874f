"""Let an optimizer follow parameters that were cut. Knows no optimizer by name.

Whatever an optimizer remembers per element of a parameter has the parameter's shape, or
that shape with some dimensions reduced to one; it is cut in the same places. Scalars
stay. Anything else cannot be followed, and is refused before anything is touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from diffprune._surgery.apply import select
from diffprune._surgery.plan import Indices
from diffprune.errors import ArgumentError


@dataclass(frozen=True)
class Move:
    """A parameter, what took its place, and which indices of it survived."""

    old: nn.Parameter
    new: nn.Parameter
    dims: Mapping[int, Indices]


def check_can_follow(
    optimizers: Sequence[Optimizer], cut: Mapping[str, nn.Parameter]
) -> None:
    """Refuse, by name, what no optimizer holds, and what one remembers oddly.

    Args:
        optimizers: All that train the parameters; none if they are not trained.
        cut: The parameters to be cut, by name.

    Raises:
        ArgumentError: If there is any.
    """
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    held = {parameter for group in groups for parameter in group["params"]}
    for name, parameter in cut.items():
        if optimizers and parameter.requires_grad and parameter not in held:
            raise ArgumentError(
                f"the optimizer does not hold `{name}`, which is about to be cut.\n"
                "Build it from all parameters: "
                "`torch.optim.Adam(pruner.parameter_groups(lr=...))`."
            )
    names: dict[Tensor, str] = {p: name for name, p in cut.items()}
    for optimizer in optimizers:
        _check_state(optimizer, names)


def _check_state(optimizer: Optimizer, names: Mapping[Tensor, str]) -> None:
    """Refuse odd state of any parameter: it may be that of all of them together."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            tensors = [v for v in pytree.tree_leaves(value) if isinstance(v, Tensor)]
            if isinstance(value, Tensor) and _follows(value, parameter):
                continue
            if tensors:
                raise ArgumentError(
                    f"{type(optimizer).__name__} keeps `{key}` of shape "
                    f"{tuple(tensors[0].shape)} for `{names.get(parameter, '?')}` of "
                    f"shape {tuple(parameter.shape)}: diffprune cannot tell how to cut "
                    "it.\nUse an optimizer whose state has the shape of its parameters."
                )


def follow_(optimizer: Optimizer, moves: Sequence[Move]) -> None:
    """Put the new parameters in place of the old, with the state of what survived."""
    by_old = {move.old: move for move in moves}
    for group in optimizer.param_groups:
        group["params"] = [by_old[p].new if p in by_old else p for p in group["params"]]
    for move in moves:
        if move.old in optimizer.state:
            state = optimizer.state.pop(move.old)
            optimizer.state[move.new] = {
                key: _cut(value, move) if isinstance(value, Tensor) else value
                for key, value in state.items()
            }


def _follows(state: Tensor, parameter: Tensor) -> bool:
    if state.numel() == 1:
        return True
    pairs = zip(state.shape, parameter.shape, strict=False)
    return state.ndim == parameter.ndim and all(n in (1, full) for n, full in pairs)


@torch.no_grad()
def _cut(state: Tensor, move: Move) -> Tensor:
    if state.numel() == 1 and state.shape != move.old.shape:
        return state
    dims = {
        dim: kept
        for dim, kept in move.dims.items()
        if state.shape[dim] == move.old.shape[dim]
    }
    return select(state, dims)
