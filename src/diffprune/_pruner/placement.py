"""How gates sit in a model: one interface for gates that we add and that users place.

`cut` decides what a removal keeps and changes nothing; `keep_` does it, in the model or
in a copy of it; `fold_` takes the gates out again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from diffprune._core.types import Bool, Int
from diffprune._costs.network import Network
from diffprune._graph import Atom, ExampleInputs, Groups, PruneGroup
from diffprune._surgery.apply import select
from diffprune._surgery.plan import Indices
from diffprune.errors import RemovalError
from diffprune.gates import GateLike
from diffprune.gates.pooled import PooledGates

Keep: TypeAlias = Bool[Tensor, " units"]
"""One entry per unit: True if it stays."""


@dataclass(frozen=True)
class Layout:
    """Where the units of a placed gate are after a removal.

    Attributes:
        inputs: Which elements of its input the gate reads; all if None.
        units: The unit that each of these belongs to; one by one if None.
    """

    inputs: Int[Tensor, " width"] | None
    units: Int[Tensor, " width"] | None


@dataclass(frozen=True)
class Cut:
    """What a removal keeps.

    Attributes:
        gates: By gate, the units that it goes on deciding about.
        atoms: The units of the model that stay, by what they are units of.
        before: The groups of the model that is to be cut.
        layouts: By placed gate, where its units are then.
    """

    gates: Mapping[str, Keep]
    atoms: Mapping[Atom, Keep]
    before: Groups
    layouts: Mapping[str, Layout] = field(default_factory=dict[str, Layout])

    def keeps_all(self) -> bool:
        """Whether nothing goes from the model."""
        return all(bool(units.all()) for units in self.atoms.values())

    @cached_property
    def groups(self) -> Groups:
        """The groups of the smaller model."""
        sizes = {atom: int(units.sum()) for atom, units in self.atoms.items()}
        return self.before.narrowed(sizes)

    def by_group(self) -> dict[str, Keep]:
        """The units of each group that stay, by name."""
        known = [group for group in self.before if group.atom in self.atoms]
        return {group.name: self.atoms[group.atom] for group in known}


class GatePlacement(Protocol):
    """Where the gates of a model are, and what has to be done there."""

    def gates(self, model: nn.Module, /) -> dict[str, GateLike]:
        """The gates of the model, or of a copy of it, by name."""
        ...

    def pooled(self, model: nn.Module, /) -> PooledGates:
        """The gates of the model as they are evaluated together."""
        ...

    def units(self, groups: Groups, /) -> dict[str, PruneGroup]:
        """What each gate decides about, by the name of the gate."""
        ...

    def present(self, model: nn.Module, /) -> dict[str, Int[Tensor, " width"]]:
        """The units of each gate that the data still has."""
        ...

    def cut(
        self,
        model: nn.Module,
        groups: Groups,
        keep: Mapping[str, Keep],
        atoms: Mapping[Atom, Keep] | None = None,
        /,
    ) -> Cut:
        """What has to stay when each gate keeps these units; changes nothing.

        Args:
            model: The model.
            groups: Its groups.
            keep: By gate, which of its units stay.
            atoms: Which units of the model stay, if another run has found out.
        """
        ...

    def keep_(self, model: nn.Module, cut: Cut, /) -> None:
        """Cut the gates of the model, or of a copy, before its parameters are cut."""
        ...

    def fold_(self, model: nn.Module, groups: Groups, /) -> None:
        """Multiply the gates into the parameters, and take them out of the model."""
        ...

    def unfold_(
        self, model: nn.Module, groups: Groups, gates: Mapping[str, GateLike], /
    ) -> None:
        """Put gates back that were folded away, or refuse to."""
        ...

    def network(self, model: nn.Module, x: ExampleInputs, groups: Groups, /) -> Network:
        """The model as it will be in use, without gates: what costs are about."""
        ...


def keep_gates_(gates: Mapping[str, GateLike], keep: Mapping[str, Keep]) -> None:
    """Cut gates that lose units, with gradients that may be accumulating.

    Raises:
        RemovalError: If one cannot be cut, or if no optimizer could follow what becomes
            of its parameters.
    """
    for name, gate in gates.items():
        if not keep[name].all():
            _keep_gate_(name, gate, keep[name])


def _keep_gate_(name: str, gate: GateLike, keep: Keep) -> None:
    before = dict(gate.named_parameters())
    shapes = {key: old.shape for key, old in before.items()}
    try:
        gate.keep_(keep.to(gate.is_open().device))  # it may have no parameter
    except Exception as error:
        raise RemovalError(
            f"`keep_` of the gate of `{name}`, a {type(gate).__name__}, failed: "
            f"{type(error).__name__}: {error}\nA gate that holds another one cuts "
            "itself first: `super().keep_(mask)`, then `self.gate.keep_(mask)`."
        ) from error
    for key, new in gate.named_parameters():
        old = before.get(key)
        if new is old and new.shape == shapes[key]:
            continue
        if old is None or new is old or not _is_cut(old.shape, new.shape, keep):
            raise RemovalError(
                f"`keep_` of the gate of `{name}`, a {type(gate).__name__}, left "
                f"`{key}` neither the parameter that it was nor a new one of the units "
                "that stay, and no optimizer can follow that.\nType "
                f"`self.{key} = nn.Parameter(self.{key}.detach()[mask])`."
            )
        if old.grad is not None:
            new.grad = select(old.grad, cut_dims(old, new, keep))


def cut_dims(old: Tensor, new: Tensor, keep: Keep) -> dict[int, Indices]:
    """Along which dimensions a parameter of a gate has lost its units, and which stay.

    Examples:
        >>> import torch
        >>> keep = torch.tensor([True, False, True])
        >>> cut_dims(torch.ones(2, 3), torch.ones(2, 2), keep)
        {1: (0, 2)}
    """
    numbers = tuple(keep.nonzero().flatten().tolist())
    sizes = zip(old.shape, new.shape, strict=True)
    return {dim: numbers for dim, (was, now) in enumerate(sizes) if was != now}


def _is_cut(before: torch.Size, after: torch.Size, keep: Keep) -> bool:
    """Whether a shape is what it was, but for units that have left."""
    pairs = {(a, b) for a, b in zip(before, after, strict=False) if a != b}
    return len(before) == len(after) and pairs <= {(len(keep), int(keep.sum()))}
