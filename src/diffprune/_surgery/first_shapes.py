"""The shapes that a model had before anything was removed, so that it can go back.

A run may load an earlier checkpoint of itself: the best one, or the last before a
crash. What that holds is larger than the model has become. Only shapes and integers are
remembered, no weights: those come with the checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class FirstShapes:
    """What removals change in a model, as it was at first, by path of the module.

    Attributes:
        parameters: Shapes, by name.
        buffers: Shapes, by name; the buffer itself where no `state_dict` holds it.
        numbers: Integers that layers were given, by attribute.
    """

    parameters: Mapping[str, Mapping[str, torch.Size]]
    buffers: Mapping[str, Mapping[str, torch.Size | Tensor | None]]
    numbers: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, model: nn.Module) -> "FirstShapes":
        """Note the shapes of a model; nothing is copied."""
        modules = dict(model.named_modules(remove_duplicate=False))
        return cls(
            {path: _parameters(module) for path, module in modules.items()},
            {path: _buffers(module) for path, module in modules.items()},
            {path: _numbers(module) for path, module in modules.items()},
        )

    @torch.no_grad()
    def restore_(self, model: nn.Module) -> dict[Tensor, nn.Parameter]:
        """Give a model, or what is left of it without gates, its first shapes.

        Tensors that had another shape hold zeros afterwards: load their values.

        Returns:
            The new parameter for every one that was replaced.
        """
        replaced: dict[Tensor, nn.Parameter] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            if path not in self.numbers:
                continue
            vars(module).update(self.numbers[path])
            for name, shape in self.parameters[path].items():
                # As it is registered: reading a parametrized tensor would compute it.
                old = module._parameters[name]  # noqa: SLF001
                if old is not None and old.shape != shape:
                    if old not in replaced:
                        replaced[old] = _zeros(old, shape)
                    setattr(module, name, replaced[old])
            for name, first in self.buffers[path].items():
                _restore_buffer_(module, name, first)
        return replaced


def point_to_(optimizer: Optimizer, replaced: Mapping[Tensor, nn.Parameter]) -> None:
    """Let an optimizer train the new parameters; what it knew of the old is gone."""
    for group in optimizer.param_groups:
        group["params"] = [replaced.get(p, p) for p in group["params"]]
    for old in replaced:
        optimizer.state.pop(old, None)


def _parameters(module: nn.Module) -> dict[str, torch.Size]:
    found = module._parameters.items()  # noqa: SLF001 - its own ones, as registered
    return {name: tensor.shape for name, tensor in found if tensor is not None}


def _buffers(module: nn.Module) -> dict[str, torch.Size | Tensor | None]:
    unsaved = module._non_persistent_buffers_set  # noqa: SLF001 - torch has no other way
    return {
        name: tensor if tensor is None or name in unsaved else tensor.shape
        for name, tensor in module._buffers.items()  # noqa: SLF001 - its own ones
    }


def _numbers(module: nn.Module) -> dict[str, int]:
    return {name: value for name, value in vars(module).items() if type(value) is int}


def _zeros(old: nn.Parameter, shape: torch.Size) -> nn.Parameter:
    new = nn.Parameter(old.new_zeros(shape), requires_grad=old.requires_grad)
    vars(new).update(vars(old))
    return new


def _restore_buffer_(
    module: nn.Module, name: str, first: torch.Size | Tensor | None
) -> None:
    buffers = module._buffers  # noqa: SLF001 - None is allowed here
    now = buffers[name]
    if isinstance(first, torch.Size):
        if now is not None and now.shape != first:
            buffers[name] = now.new_zeros(first)
    elif first is None or now is None or now.shape != first.shape:
        buffers[name] = first if first is None or now is None else first.to(now)
