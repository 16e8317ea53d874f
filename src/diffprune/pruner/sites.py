"""Where gates multiply in a model that was written without them.

`W (a * z) = (W * z) a`: gating a unit is scaling what reads it, and a weight is usually
smaller than the activations it meets. So the gate of a group multiplies every parameter
that sums over the group. While a layer runs, its parameter is swapped for the gated one
and put back after: names, classes and `state_dict` stay the user's own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from diffprune._typing import Float
from diffprune.gates import Gate
from diffprune.gates.bank import is_plain, pooled_values
from diffprune.graph.axes import Atom, Axis, atoms, size
from diffprune.graph.silence import unit_numbers

NAME = "_diffprune_gates"


@final
class Factor(nn.Module):
    """The values of one gate, spread along one dimension of a parameter.

    Args:
        gate: Key of the gate.
        dim: The dimension they multiply.
        axis: What the dimension is made of.
        atom: The factor of the axis whose units are gated.
    """

    numbers: Tensor | None

    def __init__(self, gate: str, dim: int, axis: Axis, atom: Atom) -> None:
        super().__init__()
        self.gate, self.dim = gate, dim
        self.register_buffer("numbers", None, persistent=False)
        self.spread_(axis, atom)

    def spread_(self, axis: Axis, atom: Atom) -> None:
        """Lay the values out along an axis of new widths."""
        is_product = atom in axis and list(atoms(axis)).count(atom) == 1
        place = axis.index(atom) if is_product else 0
        self.outer, self.inner = size(axis[:place]), size(axis[place + 1 :])
        device = None if self.numbers is None else self.numbers.device
        self.numbers = None if is_product else unit_numbers(axis, atom).to(device)

    def forward(
        self, values: Float[Tensor, " units"], ndim: int
    ) -> Float[Tensor, "..."]:
        """Return the factor, shaped to multiply a tensor of `ndim` dimensions."""
        if self.numbers is not None:
            spread = values[self.numbers.clamp(min=0)]
            values = spread.where(self.numbers >= 0, 1.0)
        elif self.outer > 1 or self.inner > 1:
            values = values[None, :, None].expand(self.outer, -1, self.inner)
        return values.reshape(-1, *(1,) * (ndim - 1 - self.dim))


@final
class Gating(nn.Module):
    """All gates of a model, what they multiply, and their values during one forward.

    A submodule of the model, so that gates move, copy, train and save with it.
    """

    def __init__(self, gates: Mapping[str, Gate]) -> None:
        super().__init__()
        self.gates = nn.ModuleDict(gates)
        self.factors = nn.ModuleDict()
        self.handles: list[RemovableHandle] = []
        self._values: dict[str, Tensor] | None = None

    def open_forward(self, *_args: object) -> None:
        """Begin a forward pass of the whole model: every gate is evaluated once."""
        self._values = {}

    def close_forward(self, *_args: object) -> None:
        """End it."""
        self._values = None

    def values(self, key: str) -> Float[Tensor, " units"]:
        """Values of a gate, the same at every place within one forward pass."""
        if self._values is None or torch.compiler.is_compiling():
            return self.gate(key).values()
        if not self._values:
            self._values = self._evaluate()
        return self._values[key]

    def _evaluate(self) -> dict[str, Float[Tensor, " units"]]:
        gates = {key: self.gate(key) for key in self.gates}
        plain = [key for key, gate in gates.items() if is_plain(gate)]
        pooled = pooled_values([gates[key] for key in plain]) if plain else []
        alone = {key: g.values() for key, g in gates.items() if key not in plain}
        return {**dict(zip(plain, pooled, strict=True)), **alone}

    def gate(self, key: str) -> Gate:
        """One of the gates."""
        gate = self.gates[key]
        assert isinstance(gate, Gate)  # noqa: S101 - by construction
        return gate

    def factors_of(self, site: str) -> list[Factor]:
        """What multiplies the parameter of a site."""
        return [factor for factor in self.factors[site] if isinstance(factor, Factor)]  # pyright: ignore[reportGeneralTypeIssues] - a ModuleList

    def gated(self, site: str, tensor: Tensor) -> Tensor:
        """Multiply a parameter by all factors of its site."""
        for factor in self.factors_of(site):
            tensor = tensor * factor(self.values(factor.gate), tensor.ndim).to(tensor)
        return tensor

    def columns(self, site: str, ndim: int) -> Float[Tensor, "..."]:
        """The product of all factors of a site, which multiply its columns only."""
        found = self.factors_of(site)
        return math.prod(factor(self.values(factor.gate), ndim) for factor in found)  # pyright: ignore[reportCallIssue, reportArgumentType, reportReturnType] - of tensors


@dataclass(frozen=True)
class Place:
    """Where the model keeps a gated parameter."""

    owner: nn.Module
    name: str
    site: str


class Swap:
    """Hooks around the forward of one module, inside which parameters are gated.

    A linear layer that meets fewer activations than it has weights gets gated
    activations instead: the same product, at the cheaper side.
    """

    def __init__(self, gating: Gating) -> None:
        self.gating = gating
        self.places: list[Place] = []
        self._originals: list[tuple[Place, Tensor]] = []

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Before the module runs: its parameters are gated."""
        if self._is_cheaper_outside(module, args):
            # Shaped as for the weight without its rows: channels, then the window.
            weight = module.get_parameter("weight")
            scale = self.gating.columns(self.places[0].site, weight.ndim)
            return (args[0] * scale.to(args[0]), *args[1:])
        for place in self.places:
            original = place.owner._parameters[place.name]  # noqa: SLF001 - swapped, not set
            assert original is not None  # noqa: S101 - only existing ones are gated
            self._originals.append((place, original))
            _put(place, self.gating.gated(place.site, original))
        return None

    def leave(self, *_args: object) -> None:
        """After the module ran, or failed: it has its own parameters again."""
        while self._originals:
            _put(*self._originals.pop())

    def _is_cheaper_outside(self, module: nn.Module, args: tuple[Any, ...]) -> bool:
        if [place.owner for place in self.places] != [module] or len(args) != 1:
            return False
        if not _scales_inputs(module):
            return False
        factors = self.gating.factors_of(self.places[0].site)
        reads = all(factor.dim == 1 for factor in factors)
        return reads and args[0].numel() < module.get_parameter("weight").numel()


def _scales_inputs(module: nn.Module) -> bool:
    """Whether scaling columns of the weight is scaling channels of the input."""
    if isinstance(module, _ConvNd):
        return module.groups == 1 and not module.transposed
    return isinstance(module, nn.Linear)


def _put(place: Place, tensor: Tensor) -> None:
    owner = place.owner
    owner._parameters[place.name] = tensor  # noqa: SLF001  # pyright: ignore[reportArgumentType] - a gated tensor is no Parameter, on purpose
    if isinstance(owner, nn.RNNBase):
        position = owner._flat_weights_names.index(place.name)  # noqa: SLF001
        owner._flat_weights[position] = tensor  # noqa: SLF001 - a second list of weights
