"""Example inputs that follow a model to other devices and types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._graph import ExampleInputs


@dataclass(frozen=True)
class _Kind:
    """Where the parameters of a model are, and the real type that goes with theirs."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, model: nn.Module) -> "_Kind":
        numbers = [p for p in model.parameters() if p.is_floating_point()]
        like = next(iter(numbers or model.parameters()))  # all of them may be complex
        return cls(like.device, like.dtype.to_real())


@final
class MovingInputs:
    """Inputs that were made for a model, wherever that is by now.

    Tensors on the device that the model was on go where it is. Those of its
    floating-point type take the type that it has; others keep theirs.

    Args:
        model: As it was when the inputs were made for it.
        inputs: A tensor, a tuple, or a dict of keyword arguments.

    Examples:
        >>> layer = nn.Linear(2, 1)
        >>> inputs = MovingInputs(layer, (torch.ones(1, 2), torch.tensor([3])))
        >>> [x.dtype for x in inputs.like(layer.double())]
        [torch.float64, torch.int64]
    """

    def __init__(self, model: nn.Module, inputs: ExampleInputs) -> None:
        self._inputs, self._kind = inputs, _Kind.of(model)

    def like(self, model: nn.Module) -> ExampleInputs:
        """The inputs for the model as it is now."""
        now = _Kind.of(model)
        if now == self._kind:
            return self._inputs
        given: Any = self._inputs
        inputs = dict(given) if isinstance(given, Mapping) else given
        return pytree.tree_map_only(Tensor, lambda x: self._moved(x, now), inputs)

    def _moved(self, x: Tensor, now: _Kind) -> Tensor:
        device = now.device if x.device == self._kind.device else x.device
        dtype = now.dtype if x.dtype == self._kind.dtype else x.dtype
        return x.to(device, dtype)
