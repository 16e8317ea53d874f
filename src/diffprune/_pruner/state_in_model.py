"""Let the state of a pruner travel in the `state_dict` of its model.

Trainers save and load models by their `state_dict` alone, and load weights before
anything else. So what a pruner knows is one more tensor of it, of bytes; when a
`state_dict` is loaded, the model is cut to its shapes first.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from diffprune._core.modules import MARK, named_tensors
from diffprune._graph import mode
from diffprune._io.checkpoint import HasState
from diffprune._io.gated_state import (
    KEY,
    PLACED,
    SCALES,
    Scale,
    as_tensor,
    take_state,
)
from diffprune._pruner.added_gates import gating_of
from diffprune._pruner.gate_sites import Gating
from diffprune.errors import ArgumentError


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
        self._is_placed = not _is_gated(pruner.model)
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
        if MARK not in vars(model):
            return  # it is nobody's any more
        layout, scales = _scales(model)
        if self._is_placed:
            layout = PLACED
        state = self.pruner.state_dict() | {"scales": layout}
        # Averages of models expect tensors of one shape: numbers are not in the text.
        state_dict[prefix + KEY] = as_tensor(state)
        state_dict[prefix + SCALES] = scales

    def load(self, model: nn.Module, state_dict: dict[str, Any], prefix: str) -> None:
        """Take the pruner's state out again, and cut the model to it."""
        if MARK not in vars(model):
            return
        found = take_state(state_dict, prefix)
        if found is None:
            return
        state, _ = found
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
        self, model: nn.Module, state_dict: dict[str, Any], prefix: str, *_: object
    ) -> None:
        self.link.load(model, state_dict, prefix)


class _Nothing:
    def __call__(self, *_args: object) -> None:
        return


@torch.no_grad()
def _scales(model: nn.Module) -> tuple[list[Scale] | str, Tensor]:
    """What folding would multiply parameters by, end to end, and what is where."""
    if not _is_gated(model):
        return [], torch.empty(0)
    gating, tensors = gating_of(model), named_tensors(model)
    layout, found = list[Scale](), list[Tensor]()
    with mode(gating, training=False):  # noise must not become a weight
        for name, factors in gating.sites().items():
            whole = tensors[name]
            same = [alias for alias, tensor in tensors.items() if tensor is whole]
            for dim, along in groupby(factors, attrgetter("dim")):
                scale = gating.scale(along, whole.ndim, whole.dtype).flatten()
                layout.append((same, dim, len(scale)))
                found.append(scale.double())
    return layout, torch.cat(found)


def _is_gated(model: nn.Module) -> bool:
    """Whether diffprune has added gates, and they are not folded away."""
    return any(isinstance(module, Gating) for module in model.modules())
