"""What a group is: slices that must go together. Knows nothing of gates or traces."""

from dataclasses import dataclass, field

from diffprune._graph.axes import Atom, Axis
from diffprune._graph.rule_api import Frozen


@dataclass(frozen=True)
class TensorAxis:
    """One dimension of a parameter or buffer that a group runs along.

    Attributes:
        tensor: Name of the parameter or buffer in the model.
        dim: Which of its dimensions.
        axis: What that dimension is made of; the group is one of its atoms.
        is_read: Whether the model sums over it (the input side of a layer).
        is_parameter: False for buffers.
        is_direction: Whether only the direction of its slices matters, another tensor
            holding their length; such slices cannot be zero.
    """

    tensor: str
    dim: int
    axis: Axis = field(repr=False)
    is_read: bool
    is_parameter: bool
    is_direction: bool


@dataclass(frozen=True)
class PruneGroup:
    """Units that can be removed one by one, and everything that goes with each.

    Attributes:
        name: The layer that produces the units.
        size: How many units there are.
        axes: The tensor dimensions to index together.
        parameters: Parameters that go with one unit.
        macs: Multiply-adds that go with one unit, for the example inputs.
    """

    name: str
    size: int
    axes: tuple[TensorAxis, ...] = field(repr=False)
    parameters: int
    macs: int
    atom: Atom = field(repr=False, compare=False)


@dataclass(frozen=True)
class FrozenAxis:
    """Units that may not be cut, and why."""

    name: str
    size: int
    reason: Frozen

    def __str__(self) -> str:
        return f"{self.name} ({self.size} units): {self.reason}"
