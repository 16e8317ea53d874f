"""What modules hold, and must have before anything is done to them: values, a place."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from diffprune.errors import ArgumentError

MARK: Final = "_diffprune_has_pruner"
"""What a model has as long as a pruner is at work on it."""

GATES: Final = "_diffprune_gates"
"""What the gates that a pruner added are called in the layer that holds them."""

GATES_BY_HOOKS: Final = "_diffprune_gates_layers"
"""What an object has whose hooks gate layers."""


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers; a shared one under each of its names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def check_has_values(model: nn.Module) -> None:
    """Refuse a model with parameters or buffers that have no values, by their name.

    Raises:
        ArgumentError: If a layer is lazy, or a tensor is on the meta device.

    Examples:
        >>> check_has_values(nn.Linear(2, 3, device="meta"))
        Traceback (most recent call last):
        ...
        diffprune.errors.ArgumentError: `weight` of the model is on the meta device...
    """
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise ArgumentError(
                f"`{name}` of the model has no shape yet: its layer is lazy.\n"
                "Call the model once on example inputs first."
            )
        if tensor.is_meta:
            raise ArgumentError(
                f"`{name}` of the model is on the meta device and has no values to "
                "keep.\nFirst give it some: `model.to_empty(device=...)`, then load "
                "the weights."
            )


def check_can_change(model: nn.Module) -> None:
    """Refuse a model with tensors that torch will never change, by their name.

    Raises:
        ArgumentError: If one was made within `torch.inference_mode()`.

    Examples:
        >>> with torch.inference_mode():
        ...     layer = nn.Linear(2, 3)
        >>> check_can_change(layer)
        Traceback (most recent call last):
        ...
        diffprune.errors.ArgumentError: `weight` was made within `torch.inference_mod...
    """
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_inference():
            raise ArgumentError(
                f"`{name}` was made within `torch.inference_mode()` and can never be "
                "changed.\nBuild or load the model outside of it."
            )


def check_has_no_pruner(model: nn.Module) -> None:
    """Refuse a model that a pruner is at work on, whose units its gates hold.

    Raises:
        ArgumentError: If it is such a model, holds one, or shares a gated layer with
            one.
    """
    if any(MARK in vars(module) for module in model.modules()):
        raise ArgumentError(
            "this model already has a pruner. Call its `finalize()` first, or start "
            "again from a fresh model."
        )
    for name, module in model.named_modules():
        hooks = *module._forward_pre_hooks.values(), *module._forward_hooks.values()  # noqa: SLF001 - nothing public lists hooks
        owners = (getattr(hook, "__self__", None) for hook in hooks)
        if any(GATES_BY_HOOKS in getattr(owner, "__dict__", ()) for owner in owners):
            raise ArgumentError(
                f"`{name or 'this model'}` is a part of another model, whose pruner "
                "already has a gate on it. Call its `finalize()` first; or prune both "
                "models at once, as parts of one module that calls them."
            )


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, or this machine does not have.

    Raises:
        ArgumentError: If it is such a one.

    Examples:
        >>> check_device("cpu")
    """
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ArgumentError(
            f"the device `{name}` cannot be used here: {reason}\nType `cpu`, or `cuda` "
            "where there is one."
        ) from error
