"""The mean loss of some batches, with words for whatever is wrong with it."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from diffprune._choice import Batch, Loss
from diffprune._choice.examples import batch_size
from diffprune._core.arguments import shown
from diffprune._core.recomputation import without_recomputing
from diffprune._graph import accepting, mode, own_arguments, unchanged
from diffprune.errors import ArgumentError


@final
class MeanLoss:
    """A loss that knows its mean over the examples it was asked for.

    Attributes:
        mean: The mean so far.
    """

    def __init__(self, loss: Loss, model: nn.Module) -> None:
        self._loss, self._total, self._count = loss, 0.0, 0
        self._batches, self._model = 0, model

    def __call__(self, outputs: object, targets: object) -> Tensor:
        value = _checked_loss(self._loss, outputs, targets, self._batches)
        if not value.numel() or not bool(value.isfinite().all()):
            raise ArgumentError(
                f"the loss of batch {self._batches} of data is "
                f"{float(value.detach().mean())}, where a finite number is expected.\n"
                f"{_cure(self._model)}"
            )
        size = max(1, batch_size(targets))  # a loss may need none
        self._total += float(value.detach().mean()) * size
        self._count += size
        self._batches += 1
        return value

    @property
    def mean(self) -> float:
        return self._total / self._count


def _checked_loss(loss: Loss, outputs: object, targets: object, number: int) -> Tensor:
    """The loss of a batch, or what is wrong with it in the words of this library."""
    try:
        value: Any = loss(outputs, targets)
    except Exception as error:
        raise ArgumentError(
            "the loss does not take what the model returns and the targets in batch "
            f"{number} of data: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ArgumentError(
            f"the loss must return a tensor of real numbers, got {shown(value)}."
        )
    return value


def _cure(model: nn.Module) -> str:
    """What may help where a loss is not finite."""
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and not parameter.isfinite().all():
            return (
                f"`{name}` holds numbers that are not finite, too: take the weights "
                "from before the training diverged."
            )
    return "Leave out examples that have none."


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Sequence[Batch], loss: Loss) -> float:
    """Loss per example, in eval mode."""
    found = MeanLoss(loss, model)
    with unchanged(model), mode(model, training=False), without_recomputing():
        for number, (inputs, targets) in enumerate(batches):
            args, kwargs = own_arguments(inputs)
            with accepting(f"batch {number} of data", "the smaller model"):
                outputs = model(*args, **kwargs)
            found(outputs, targets)
    return found.mean
