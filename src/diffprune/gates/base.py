"""`BaseGate`: what every gate that stands in a model has, whatever its mathematics.

Subclass it to place a gate of your own: `Gate` does, and so can the gates of any other
method. The pruner then cuts it, saves it and folds it away like one of diffprune's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffprune._core.arguments import check, count
from diffprune._core.parameter_hooks import hand_on_hooks_
from diffprune._core.types import Bool, Float, Int
from diffprune.gates import checks
from diffprune.gates.multiply import multiply


class BaseGate(nn.Module, ABC):
    """A module that multiplies the units of its input; a `GateLike` to be placed.

    Parameters and buffers of the gate itself whose first dimension is as long as the
    gate has units hold something per unit, and are cut with it; `shared` names
    exceptions. A gate that holds more per unit, such as a list of parameters, cuts that
    in a `keep_` of its own. It may know a layer of the model, and may not have it as a
    part: `self.layer = [layer]`.

    Args:
        dim: First dimension of the input that the gate covers.
        index: For each element the unit it belongs to; by default each is a unit.

    Attributes:
        per_example: Whether `draw` is asked for values of each example in training.
        listener: Called with the values of every forward pass, if anybody listens.
        stand_in: What `forward` multiplies by instead of `values()`, if there is any:
            while a model is traced, a gate is a constant.

    Examples:
        >>> class Scale(BaseGate):
        ...     def __init__(self, size):
        ...         super().__init__()
        ...         self.scale = nn.Parameter(torch.ones(size))
        ...     @property
        ...     def size(self):
        ...         return self.scale.numel()
        ...     def values(self):
        ...         return self.scale.relu()
        ...     def margin(self):
        ...         return self.scale
        ...     def penalty(self):
        ...         return self.scale.abs().sum()
        >>> gate = Scale(3)
        >>> gate.scale.data[1] = -0.5
        >>> gate(torch.ones(2, 3))[0].tolist(), gate.is_open().tolist()
        ([1.0, 0.0, 1.0], [True, False, True])
    """

    shared: ClassVar[frozenset[str]] = frozenset()
    per_example: ClassVar[bool] = False

    index: Int[Tensor, "..."] | None

    def __init__(
        self, *, dim: int = 1, index: Int[Tensor, "..."] | None = None
    ) -> None:
        super().__init__()
        self.dim = dim
        self.listener: Callable[[Tensor], None] | None = None
        self.stand_in: Float[Tensor, " units"] | None = None
        self.register_buffer("index", index)

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of units the gate decides about."""

    @abstractmethod
    def values(self) -> Float[Tensor, " units"]:
        """What each unit is multiplied by; in eval mode zero where it is closed."""

    @abstractmethod
    def margin(self) -> Float[Tensor, " units"]:
        """How far each unit is from closing; not positive if it is closed."""

    @abstractmethod
    def penalty(self) -> Float[Tensor, ""]:
        """What the units cost at a strength of one; differentiable."""

    def is_open(self) -> Bool[Tensor, " units"]:
        """Which units are open in eval mode."""
        return self.margin().detach() > 0

    def reopening(self) -> Float[Tensor, " units"]:
        """How likely each unit is open in the next step; by default, if it is now."""
        return self.is_open().to(self.margin().dtype)

    def draw(self, examples: int) -> Float[Tensor, "examples units"]:
        """Values for each example, in training, of a gate that is `per_example`."""
        count("examples", examples, least=0)
        return self.values().expand(examples, -1)

    def forward(self, x: Float[Tensor, "..."], /) -> Float[Tensor, "..."]:
        """Multiply the units of `x` by their values; the dtype of `x` is kept."""
        if self.per_example and self.training and not torch.compiler.is_exporting():
            check("x", Tensor, x)
            drawn = self.draw(len(x))
            self._tell(drawn)
            drawn = drawn if self.index is None else drawn[:, self.index]
            between = (1,) * (self.dim % x.ndim - 1)
            return multiply(x, drawn.reshape(len(x), *between, *drawn.shape[1:]), 0)
        values = self.values() if self.stand_in is None else self.stand_in
        self._tell(values)
        if self.index is not None:
            values = values.gather(0, self.index.flatten()).view(self.index.shape)
        if not torch.compiler.is_exporting():
            checks.check_input(x, values, self.dim)
        return multiply(x, values, self.dim)

    def _tell(self, values: Float[Tensor, "*examples units"]) -> None:
        if self.listener is not None:
            self.listener(values)

    @torch.no_grad()
    def keep_(self, mask: Bool[Tensor, " units"]) -> None:
        """Forget the units outside `mask`.

        With an `index` of one dimension the elements of removed units go as well.
        """
        checks.check_mask(mask, self.size, self.index)
        for name, tensor in self._per_unit().items():
            self._replace_(name, tensor[mask])
        if self.index is not None:
            renumbered, stays = mask.cumsum(0) - 1, mask[self.index]
            elements = self.index[stays] if self.index.ndim == 1 else self.index
            self.index = renumbered[elements]

    def _per_unit(self) -> dict[str, Tensor]:
        """What the gate holds per unit, by name."""
        size = self.size
        own = {**dict(self.named_parameters(recurse=False)), **self._own_buffers()}
        return {
            name: tensor
            for name, tensor in own.items()
            if tensor.ndim and len(tensor) == size and name not in self.shared
        }

    def _own_buffers(self) -> dict[str, Tensor]:
        buffers = dict(self.named_buffers(recurse=False))
        return {name: tensor for name, tensor in buffers.items() if name != "index"}

    def _replace_(self, name: str, value: Tensor) -> None:
        """Put another tensor in the place of a parameter or buffer."""
        old = getattr(self, name)
        new = value
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(value, old.requires_grad)
            hand_on_hooks_(old, new)
        setattr(self, name, new)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *args: Any,  # noqa: ANN401 - handed on to torch as they are
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Shrink to a state saved after units were removed; torch reports the rest."""
        for name, tensor in self._per_unit().items():
            saved = state_dict.get(prefix + name, tensor)
            if saved.ndim == tensor.ndim and len(saved) < len(tensor):
                self._replace_(name, tensor.detach()[: len(saved)].clone())
        index = state_dict.get(prefix + "index", self.index)
        if self.index is not None and index.numel() < self.index.numel():
            self.index = self.index.new_empty(index.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
