"""Let the state of a pruner travel in the `state_dict` of its model.

Trainers save and load models by their `state_dict` alone, and load weights before
anything else. So what a pruner knows is one more tensor of it, of bytes; when a
`state_dict` is loaded, the model is cut to its shapes first.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol, final

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from diffprune._graph import mode
from diffprune._io.gated_state import KEY, PLACED, as_tensor, take_state
from diffprune._pruner.added_gates import gating_of
from diffprune._pruner.gate_sites import Gating
from diffprune._surgery.apply import named_tensors
from diffprune.errors import ArgumentError


class HasState(Protocol):
    """What is saved with a model: a `Pruner`."""

    @property
    def model(self) -> nn.Module:
        """The model, gates included."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether the model is plain by now."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What is not in the model's own state."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Cut the model, and optimizers for it, to the shapes of a run."""
        ...


@final
class StateInModel:
    """The link between a `state_dict` and a pruner, while a model trains.

    Args:
        pruner: The pruner; its model gets two hooks. A copy of the model has them, too,
            and speaks for the same run.
        before_load: Called before a state is loaded. It returns the optimizers that
            have to follow; those that are made later need not.
    """

    def __init__(
        self,
        pruner: HasState,
        before_load: Callable[[], Sequence[Optimizer]] = tuple,
    ) -> None:
        self.pruner, self._before_load = pruner, before_load
        self._handles: list[RemovableHandle] = [
            pruner.model.register_state_dict_post_hook(_Save(self)),
            pruner.model.register_load_state_dict_pre_hook(_Load(self)),
        ]

    def remove_(self) -> None:
        """Leave the model without hooks."""
        for handle in self._handles:
            handle.remove()

    def save(self, model: nn.Module, state_dict: dict[str, Any], prefix: str) -> None:
        """Add the pruner's state to that of the model or of a copy of it."""
        if self.pruner.is_finished:
            return
        state = self.pruner.state_dict() | {"scales": _scales(model)}
        state_dict[prefix + KEY] = as_tensor(state)

    def load(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Take the pruner's state out again, and cut the model to it."""
        state = take_state(state_dict, prefix)
        if state is None:
            return
        if state["scales"] is None:
            raise ArgumentError(
                "this checkpoint is of a finished run: its model is small and plain.\n"
                "Load it with `load_from_checkpoint`, and train it without a pruner."
            )
        self.pruner.load_state_dict(state, *self._before_load())


class _Hook:
    """A hook of a model; a copy of the model has the same one."""

    def __init__(self, link: StateInModel) -> None:
        self.link = link

    def __deepcopy__(self, memo: object) -> "_Hook":
        return self

    def __reduce__(self) -> tuple[type["_Nothing"], tuple[()]]:
        return _Nothing, ()  # a model that is pickled leaves its pruner behind


class _Save(_Hook):
    def __call__(
        self, model: nn.Module, state_dict: dict[str, Any], prefix: str, _: object
    ) -> None:
        self.link.save(model, state_dict, prefix)


class _Load(_Hook):
    def __call__(
        self, _: nn.Module, state_dict: dict[str, Any], prefix: str, *_args: object
    ) -> None:
        self.link.load(state_dict, prefix)


class _Nothing:
    def __call__(self, *_args: object) -> None:
        return


@torch.no_grad()
def _scales(model: nn.Module) -> dict[str, dict[int, list[float]]] | str:
    """What folding would multiply each parameter by: by its names, by dimension."""
    if not any(isinstance(module, Gating) for module in model.modules()):
        return PLACED
    gating, tensors = gating_of(model), named_tensors(model)
    found: dict[str, dict[int, list[float]]] = {}
    with mode(gating, training=False):  # noise must not become a weight
        for name, factors in gating.sites().items():
            whole = tensors[name]
            scales = {
                dim: gating.scale(along, whole.ndim, whole.dtype).flatten().tolist()
                for dim, along in groupby(factors, attrgetter("dim"))
            }
            same = [alias for alias, tensor in tensors.items() if tensor is whole]
            found |= dict.fromkeys(same, scales)
    return found
