"""Where gates multiply in a model that was written without them.

`W (a * z) = (W * z) a`: gating a unit is scaling what reads it, and a weight is usually
smaller than the activations it meets. So the gate of a group multiplies every parameter
that sums over the group. While a layer runs, its parameter is swapped for the gated one
and put back after: names, classes and `state_dict` stay the user's own.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter
from typing import Any, Final, cast, final

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from diffprune._core.modules import GATES_BY_HOOKS
from diffprune._core.types import Float
from diffprune._graph import Atom, Axis, atoms, size, unit_occurrences
from diffprune._pruner.compiled_code import note_compiling
from diffprune._pruner.forward_passes import (
    ForwardPasses,
    is_in_backward,
    unseen_by_checkpoints,
)
from diffprune.errors import ArgumentError
from diffprune.gates import GateLike
from diffprune.gates.pooled import PooledGates


@final
class Factor(nn.Module):
    """The values of one gate, spread along one dimension of a parameter.

    Args:
        gate: Name of the gate.
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
        # A row for each time that an element has units of the atom; rarely two.
        numbers = [] if is_product else unit_occurrences(axis, atom)
        self.numbers = torch.stack(numbers).to(device) if numbers else None

    def forward(
        self, values: Float[Tensor, " units"], ndim: int
    ) -> Float[Tensor, "..."]:
        """Return the factor, shaped to multiply a tensor of `ndim` dimensions."""
        if self.numbers is not None:
            spread = values[self.numbers.clamp(min=0)]
            values = spread.where(self.numbers >= 0, 1.0)
            values = values[0] if len(values) == 1 else values.prod(0)
        elif self.outer > 1 or self.inner > 1:
            values = values[None, :, None].expand(self.outer, -1, self.inner)
        return values.reshape(-1, *(1,) * (ndim - 1 - self.dim))


@final
class Gating(nn.Module):
    """All gates of a model, what they multiply, and their values during one forward.

    A submodule of the model, so that gates move, copy, train and save with it.
    """

    def __init__(self, gates: Mapping[str, GateLike]) -> None:
        super().__init__()
        self.gates = nn.ModuleDict()
        for name, gate in gates.items():
            assert isinstance(gate, nn.Module)  # noqa: S101 - checked when it was made
            self.gates[_key(name)] = gate
        self.factors = nn.ModuleDict()
        self.handles: list[RemovableHandle] = []
        self.swaps: list[Swap] = []
        self._passes = ForwardPasses(gates)

    @property
    def pooled(self) -> PooledGates:
        """The gates as a forward pass evaluates them."""
        return self._passes.pooled

    def add_factor(self, tensor: str, factor: Factor) -> None:
        """Let a factor multiply the parameter of this name."""
        if _key(tensor) not in self.factors:
            self.factors[_key(tensor)] = nn.ModuleList()
        cast("nn.ModuleList", self.factors[_key(tensor)]).append(factor)

    def sites(self) -> dict[str, list[Factor]]:
        """What multiplies each gated parameter, by its name, dimension by dimension."""
        return {
            _name(key): sorted(
                (factor for factor in factors.children() if isinstance(factor, Factor)),
                key=attrgetter("dim"),
            )
            for key, factors in self.factors.items()
        }

    def open_forward(self, *_args: object) -> None:
        """Begin a forward pass of the whole model: every gate is evaluated once."""
        if not torch.compiler.is_compiling():
            self.put_back()
            self._passes.begin()

    def close_forward(self, *_args: object) -> None:
        """End it."""
        if not torch.compiler.is_compiling():
            self._passes.end()

    def put_back(self, *_args: object) -> None:
        """Give layers their own parameters again, if a forward pass was interrupted.

        Torch runs the hooks behind a layer when its forward raises an error, and not
        when it is Ctrl-C.
        """
        for swap in self.swaps:
            if swap.is_inside and swap.turn.is_mine:
                swap.leave()

    def values(self, name: str) -> Float[Tensor, " units"]:
        """Values of a gate, the same at every place within one forward pass."""
        if torch.compiler.is_compiling():
            note_compiling()
            return self.gate(name).values()
        return self._passes.values(name)

    def gate(self, name: str) -> GateLike:
        """The gate of a group."""
        return cast("GateLike", self.gates[_key(name)])

    def gated(self, factors: Sequence[Factor], tensor: Tensor) -> Tensor:
        """Multiply a parameter by its factors, one dimension after the other."""
        # Not `groupby`: torch cannot compile it, and would run the model in pieces.
        for dim in dict.fromkeys(factor.dim for factor in factors):
            along = [factor for factor in factors if factor.dim == dim]
            tensor = tensor * self.scale(along, tensor.ndim, tensor.dtype)
        return tensor

    def scale(
        self, factors: Iterable[Factor], ndim: int, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """The product of factors that multiply the same dimension of a parameter."""
        found = (factor.forward(self.values(factor.gate), ndim) for factor in factors)
        product = reduce(torch.mul, found)
        return product if product.dtype == dtype else product.to(dtype)


_TAKEN: Final = frozenset(dir(nn.ModuleDict()))
"""Names that a `ModuleDict` has for itself, such as `keys` and `values`."""
_ESCAPED: Final = (("%", "%25"), ("/", "%2F"), (".", "/"))


def _key(name: str) -> str:
    """A name that a `ModuleDict` accepts.

    Examples:
        >>> _key("encoder.fc"), _key("values"), _key("a/b")
        ('encoder/fc', 'values/', 'a%2Fb')
    """
    for part, escaped in _ESCAPED:
        name = name.replace(part, escaped)
    return f"{name}/" if name in _TAKEN else name


def _name(key: str) -> str:
    """The name behind a key.

    Examples:
        >>> _name(_key("values")), _name(_key("a/b.100%"))
        ('values', 'a/b.100%')
    """
    name = key.removesuffix("/")
    for part, escaped in reversed(_ESCAPED):
        name = name.replace(escaped, part)
    return name


@dataclass(frozen=True)
class Place:
    """Where the model keeps a gated parameter, and what multiplies it."""

    owner: nn.Module
    name: str
    factors: Sequence[Factor]

    @property
    def tensor(self) -> Tensor:
        """The parameter; while it is swapped, the gated one."""
        held = self.owner._parameters  # noqa: SLF001 - as it is, not as a checkpoint reads it
        tensor = dict.get(held, self.name)
        if tensor is None:
            raise ArgumentError(
                f"a {type(self.owner).__name__} has no parameter `{self.name}` any "
                "more, and a gate multiplies it.\nChange the model, by a "
                "parametrization as well, before making the pruner."
            )
        return tensor


@final
class ReadAgain(dict[str, Any]):
    """The parameters of a module, gated for what runs again outside of its hooks.

    Checkpointing runs a part of the model once more during backward. A layer that is
    called there has its hooks; not so a parameter that the part reads itself, or that
    is swapped further outside because several layers share it.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.swaps: dict[str, Swap] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a parameter or nothing
        """The parameter; in backward, unless it is swapped already, a gated one."""
        found, swap = super().__getitem__(name), self.swaps.get(name)
        if swap is None or swap.is_inside or not is_in_backward():
            return found
        return swap.read_again(self, name)


class Swap:
    """Hooks around the forward of one module, inside which parameters are gated.

    A linear layer that meets fewer activations than it has weights gets gated
    activations instead: the same product, at the cheaper side.

    Args:
        gating: Knows the values.
        places: The parameters.
    """

    def __init__(self, gating: Gating, places: Sequence[Place]) -> None:
        vars(self)[GATES_BY_HOOKS] = True
        self.gating, self.places = gating, places
        self._originals: list[tuple[Place, Tensor]] = []
        self.turn = Turn()
        only = places[0]
        reads = len(places) == 1 and all(factor.dim == 1 for factor in only.factors)
        is_weight = only.name == "weight"  # not what a hook computes the weight from
        self.may_scale_inputs = reads and is_weight and _scales_inputs(only.owner)

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Before the module runs: its parameters are gated."""
        if self._is_cheaper_outside(module, args):
            # Shaped as for the weight without its rows: channels, then the window.
            only = self.places[0]
            scale = self.gating.scale(only.factors, only.tensor.ndim, args[0].dtype)
            return (args[0] * scale, *args[1:])
        self.turn.take()
        for place in self.places:
            self._originals.append((place, place.tensor))
            _put(place, as_parameter(self.gating.gated(place.factors, place.tensor)))
        return None

    @property
    def is_inside(self) -> bool:
        """Whether the parameters are swapped now."""
        return bool(self._originals)

    def read_again(self, held: "ReadAgain", name: str) -> Tensor:
        """A parameter as it was when this ran for the first time."""
        place = next(
            place
            for place in self.places
            if place.name == name and place.owner._parameters is held  # noqa: SLF001 - one of its own
        )
        with unseen_by_checkpoints():
            return as_parameter(self.gating.gated(place.factors, place.tensor))

    def leave(self, *_args: object) -> None:
        """After the module ran, or failed: it has its own parameters again."""
        while self._originals:
            _put(*self._originals.pop())
        self.turn.give_back()

    def _is_cheaper_outside(self, module: nn.Module, args: tuple[Any, ...]) -> bool:
        only = self.places[0]
        if not self.may_scale_inputs or module is not only.owner or len(args) != 1:
            return False
        return not args[0].is_nested and args[0].numel() < only.tensor.numel()


@final
class Turn:
    """Lets one thread at a time swap the parameters of a module.

    What is compiled runs without: it is swapped when it is traced, not when it runs.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holder: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether it is this thread's."""
        return self._holder == threading.get_ident()

    def take(self) -> None:
        """Wait for it."""
        if not torch.compiler.is_compiling():
            self._lock.acquire()
            self._holder = threading.get_ident()

    def give_back(self) -> None:
        """Let others have it; nothing happens if this thread does not."""
        if torch.compiler.is_compiling() or not self.is_mine:
            return
        self._holder = None
        self._lock.release()

    def __reduce__(self) -> tuple[type["Turn"], tuple[()]]:
        return Turn, ()  # a copy of a module has turns of its own


def _scales_inputs(module: nn.Module) -> bool:
    """Whether scaling columns of the weight is scaling channels of the input."""
    if not runs_as_torch_has_it(module):
        return False
    if isinstance(module, _ConvNd):
        return module.groups == 1 and not module.transposed
    return isinstance(module, nn.Linear)


def runs_as_torch_has_it(module: nn.Module) -> bool:
    """Whether the forward of a layer is torch's own, which checkpoints nothing."""
    return type(module).forward.__module__.startswith("torch.")


def as_parameter(tensor: Tensor) -> Tensor:
    """Let `isinstance(tensor, nn.Parameter)` be true, which `get_parameter` asks.

    Examples:
        >>> isinstance(as_parameter(torch.ones(2) * 3), nn.Parameter)
        True
    """
    tensor._is_param = True  # noqa: SLF001  # pyright: ignore[reportAttributeAccessIssue] - torch's own mark
    return tensor


def _put(place: Place, tensor: Tensor) -> None:
    owner = place.owner
    owner._parameters[place.name] = tensor  # noqa: SLF001  # pyright: ignore[reportArgumentType] - a gated tensor is no Parameter, on purpose
    if isinstance(owner, nn.RNNBase):
        position = owner._flat_weights_names.index(place.name)  # noqa: SLF001
        owner._flat_weights[position] = tensor  # noqa: SLF001 - a second list of weights
