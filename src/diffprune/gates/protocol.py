"""The interface of a gate: what the pruner needs of it, whether it is ours or not."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from diffprune._core.types import Bool, Float


@runtime_checkable
class GateLike(Protocol):
    """Any `nn.Module` with these members can be the gate of a group.

    `Pruner(gate=make)` takes a function that makes one for a group; `Gate` is the one
    that diffprune comes with. Parameters that hold something per unit have the units as
    their first dimension, or `keep_` cuts them along another one. A class whose gates
    users place in a model by hand is a `BaseGate`.

    Examples:
        >>> from diffprune import Gate
        >>> isinstance(Gate(3), GateLike), isinstance(nn.Linear(3, 3), GateLike)
        (True, False)
    """

    @property
    def size(self) -> int:
        """Number of units the gate decides about."""
        ...

    def values(self) -> Float[Tensor, " units"]:
        """What each unit is multiplied by; differentiable, may be drawn in training.

        In eval mode it is exactly zero where the unit is closed.
        """
        ...

    def is_open(self) -> Bool[Tensor, " units"]:
        """Which units are open in eval mode."""
        ...

    def margin(self) -> Float[Tensor, " units"]:
        """How far each unit is from closing; of closed ones, how close to opening."""
        ...

    def penalty(self) -> Float[Tensor, ""]:
        """What the units cost at a strength of one; differentiable."""
        ...

    def reopening(self) -> Float[Tensor, " units"]:
        """How likely a closed unit is to be open in the next step; zero if never."""
        ...

    def keep_(self, mask: Bool[Tensor, " units"]) -> None:
        """Forget the closed units outside `mask`; the values of the others stay.

        Parameters that shrink become new `nn.Parameter` objects.
        """
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What is trained, as of any `nn.Module`."""
        ...
