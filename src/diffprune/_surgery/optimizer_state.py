"""Let an optimizer follow parameters that were cut.

Whatever an optimizer remembers per element of a parameter has the parameter's shape, or
that shape with some dimensions reduced to one; it is cut in the same places. Scalars
stay. Anything else cannot be followed: it is refused before anything is touched, or
forgotten where the user allows that.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from diffprune._surgery.apply import select
from diffprune._surgery.plan import Indices
from diffprune.errors import ArgumentError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

NAMES: Final = "param_names"
"""Key of the names in the groups of optimizers that were made of named parameters."""

_PLAIN: Final = (Tensor, nn.Parameter)


@dataclass(frozen=True)
class Move:
    """A parameter, what took its place, and which indices of it survived."""

    old: nn.Parameter
    new: nn.Parameter
    dims: Mapping[int, Indices]


@dataclass(frozen=True)
class Forgotten:
    """Parameters that an optimizer trains no more, and may train again.

    Attributes:
        optimizer: The optimizer; it has as many groups as before.
        groups: What each of its groups held: parameters, and names if it has any.
    """

    optimizer: Optimizer
    groups: Sequence[Mapping[str, list[Any]]]

    @classmethod
    def by_(
        cls, optimizer: Optimizer, parameters: Iterable[nn.Parameter]
    ) -> "Forgotten":
        """Let an optimizer forget some parameters, and all that it knows of them."""
        gone = set(parameters)
        before = cls(optimizer, [_entries(g) for g in optimizer.param_groups])
        for group in optimizer.param_groups:
            stays = [p not in gone for p in group["params"]]
            own = _entries(group)
            group.update({k: [*compress(v, stays)] for k, v in own.items()})
        for parameter in gone:
            optimizer.state.pop(parameter, None)
        return before

    def remember_(self) -> None:
        """Let the optimizer train them again, in the same places."""
        for group, held in zip(self.optimizer.param_groups, self.groups, strict=True):
            group.update(held)


def all_optimizers(given: Iterable[Any]) -> list[Optimizer]:
    """Optimizers, and those that they wrap: SAM, Lookahead, Accelerate.

    Raises:
        ArgumentError: If something is no optimizer, and wraps none.
    """
    found: dict[int, Optimizer] = {}
    for one in given:
        inner = [held for held in _attributes(one) if isinstance(held, Optimizer)]
        if not isinstance(one, Optimizer) and not inner:
            raise ArgumentError(
                f"got a {type(one).__name__} where an optimizer is needed.\n"
                "Pass the `torch.optim.Optimizer` that trains the model."
            )
        if isinstance(one, Optimizer) and id(one) not in found:
            found[id(one)] = one
        new = [held for held in inner if id(held) not in found]
        found |= {id(held): held for held in all_optimizers(new)}
    return list(found.values())


def held_by(optimizers: Iterable[Optimizer]) -> set[Tensor]:
    """All parameters that optimizers train."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return {parameter for group in groups for parameter in group["params"]}


def check_trains(optimizer: Optimizer, model: nn.Module) -> None:
    """Refuse an optimizer that has nothing to do with a model.

    Raises:
        ArgumentError: If it holds none of the parameters.
    """
    held = held_by([optimizer])
    if held and held.isdisjoint(model.parameters()):
        raise ArgumentError(
            "the optimizer holds no parameter of this model: it was made for another "
            "one, or before this one was cut.\nPass the one that trains the model."
        )


def check_can_follow(
    optimizers: Sequence[Optimizer],
    cut: Mapping[str, nn.Parameter],
    *,
    may_reset: bool = False,
) -> None:
    """Refuse, by name, what no optimizer holds, and what one remembers oddly.

    Args:
        optimizers: All that train the parameters; none if they are not trained.
        cut: The parameters to be cut, by name.
        may_reset: Whether what is remembered oddly may be forgotten.

    Raises:
        ArgumentError: If there is any.
    """
    held = held_by(optimizers)
    for name, parameter in cut.items():
        if optimizers and parameter.requires_grad and parameter not in held:
            raise ArgumentError(
                f"the optimizer does not hold `{name}`, which is about to be cut.\n"
                "Build it from all parameters: "
                "`torch.optim.Adam(pruner.parameter_groups(lr=...))`."
            )
    names: dict[Tensor, str] = {p: name for name, p in cut.items()}
    for optimizer in optimizers:
        check_keeps_nothing_beside(optimizer, names)
        if not may_reset:
            _check_state(optimizer, names)


def follow_(optimizer: Optimizer, moves: Sequence[Move]) -> None:
    """Put the new parameters in place of the old, with the state of what survived.

    State that cannot be cut is left out: the optimizer begins anew with the parameter.
    """
    by_old = {move.old: move for move in moves}
    for group in optimizer.param_groups:
        group["params"] = [by_old[p].new if p in by_old else p for p in group["params"]]
    for move in moves:
        if move.old in optimizer.state:
            state = optimizer.state.pop(move.old)
            if _odd_entry(state, move.old) is None:
                optimizer.state[move.new] = {
                    key: _cut(value, move) if isinstance(value, Tensor) else value
                    for key, value in state.items()
                }
    states = cast("dict[object, Any]", optimizer.state)
    by_name = {key: one for key, one in states.items() if not isinstance(key, Tensor)}
    for key, state in by_name.items() if moves else ():
        if _odd_entry(state, key) is not None:
            del states[key]


def check_keeps_nothing_beside(
    optimizer: Optimizer, names: Mapping[Tensor, str]
) -> None:
    """Refuse what an optimizer has of its parameters outside of its state.

    A second list of them would be stale, and so would a copy of each, as some that
    average their steps have.

    Raises:
        ArgumentError: If it has anything.
    """
    by_shape = {p.shape: name for p, name in names.items() if p.numel() > 1}
    for where, value in _beside_state(optimizer):
        for leaf in filter(_is_tensor, pytree.tree_leaves(value)):
            if leaf in names:
                raise ArgumentError(
                    f"{type(optimizer).__name__} keeps a list of its own, "
                    f"`{where}`, with `{names[leaf]}` in it, and cannot follow a "
                    "removal.\nUse an optimizer that keeps its parameters in "
                    "`param_groups` alone."
                )
            if leaf.shape in by_shape:
                raise ArgumentError(
                    f"{type(optimizer).__name__} keeps a copy of every parameter, "
                    f"`{where}`, or something else of the shape of "
                    f"`{by_shape[leaf.shape]}`, and cannot follow a removal.\nUse an "
                    "optimizer that keeps all of its state in `state`."
                )


def _beside_state(optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    """What an optimizer has beside its state and its parameters, and where."""
    for attribute, value in vars(optimizer).items():
        is_known = attribute in {"param_groups", "state"}
        if not is_known and not isinstance(value, Optimizer):
            yield attribute, value
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key not in {"params", NAMES}:
                yield f"param_groups[{number}][{key!r}]", value


def _entries(group: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What a group has one of for every parameter."""
    return {key: group[key] for key in ("params", NAMES) if key in group}


def _check_state(optimizer: Optimizer, names: Mapping[Tensor, str]) -> None:
    """Refuse odd state of any parameter: it may be that of all of them together."""
    for owner, state in optimizer.state.items():
        if (entry := _odd_entry(state, owner)) is not None:
            key, value = entry
            first = next(t for t in pytree.tree_leaves(value) if _is_tensor(t))
            kind = type(first).__name__
            raise ArgumentError(
                f"{type(optimizer).__name__} keeps `{key}` of shape "
                f"{tuple(first.shape)} for {_owner(owner, names)}, as a {kind}"
                f"{'' if value is first else f' in a {type(value).__name__}'}: "
                "diffprune cannot tell how to cut it.\nIf it was loaded, load the "
                "state of the pruner first. If not, use an optimizer whose state has "
                "the shape of its parameters, or let it begin anew with every "
                'parameter that is cut: `Pruner(..., on_unknown_state="reset")`.'
            )


def _owner(key: object, names: Mapping[Tensor, str]) -> str:
    """What a state is of, in words."""
    if isinstance(key, Tensor):
        return f"`{names.get(key, '?')}` of shape {tuple(key.shape)}"
    return f"{key!r}, which is no parameter"


def _odd_entry(state: object, owner: object) -> tuple[object, Any] | None:
    """What is remembered in a form that cannot be cut, if anything is, by its key.

    Some optimizers remember things by a name, not by a parameter, or in no dict.
    """
    entries = state.items() if isinstance(state, Mapping) else [(owner, state)]
    for key, value in entries:
        if isinstance(value, Tensor):
            if not _follows(value, owner):
                return key, value
        elif any(map(_is_tensor, pytree.tree_leaves(value))):
            return key, value
    return None


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _attributes(one: object) -> list[Any]:
    return list(vars(one).values()) if hasattr(one, "__dict__") else []


def _follows(state: Tensor, owner: object) -> bool:
    if not _can_be_indexed(state):
        return False
    if state.numel() == 1 or not isinstance(owner, Tensor):
        return state.numel() == 1
    pairs = zip(state.shape, owner.shape, strict=False)
    return state.ndim == owner.ndim and all(n in (1, full) for n, full in pairs)


def _can_be_indexed(state: Tensor) -> bool:
    """Whether a tensor of another library, which may hold fewer bits, can be cut."""
    if type(state) in _PLAIN or state.ndim == 0 or _is_divided(state):
        return True
    try:
        state.index_select(0, torch.zeros(1, dtype=torch.long, device=state.device))
    except Exception:  # noqa: BLE001 - whatever it raises is a no
        return False
    return True


@torch.no_grad()
def _cut(state: Tensor, move: Move) -> Tensor:
    if state.numel() == 1 and state.shape != move.old.shape:
        return state
    dims = {
        dim: kept
        for dim, kept in move.dims.items()
        if state.shape[dim] == move.old.shape[dim]
    }
    if _is_divided(state):
        return _divided_like(state, select(state.full_tensor(), dims))
    return select(state, dims)


def _is_divided(state: Tensor) -> TypeGuard["DTensor"]:
    """Whether processes have a part of it each; who has none need not import them."""
    found = sys.modules.get("torch.distributed.tensor")
    return found is not None and isinstance(state, found.DTensor)


def _divided_like(state: "DTensor", whole: Tensor) -> Tensor:
    """A tensor that all processes have, divided among them as another one is."""
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - see above

    mesh, placements = state.device_mesh, state.placements
    return distribute_tensor(whole, mesh, placements, src_data_rank=None)
