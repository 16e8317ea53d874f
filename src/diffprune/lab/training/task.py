"""What a user brings to be trained (`Task`): a model, data, a loss and an error."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam, Optimizer

from diffprune._core.arguments import shown
from diffprune._core.door import check_fields
from diffprune._core.types import Float, Int
from diffprune.errors import ArgumentError, DiffpruneError
from diffprune.gates import Gate
from diffprune.lab.training.no_pruning import Trainable
from diffprune.lab.training.recipe import Recipe

_ROUNDING: Final = 1e-4
"""How far from 0 and 1 an error may be, as half precision has it."""


class Loader(Protocol):
    """Batches of inputs and targets, over and over: `Batches`, or a `DataLoader`."""

    def __iter__(self) -> Iterator[Any]:
        """Start again from the beginning; a batch is a pair of tensors."""
        ...

    def __len__(self) -> int:
        """Count the batches."""
        ...


def is_wrong(
    scores: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """One where the highest score is not that of the label, else zero.

    Raises:
        ArgumentError: If these are no scores of classes and their labels.
    """
    found = scores.argmax(dim=1)
    if labels.is_floating_point() or found.shape != labels.shape:
        raise ArgumentError(
            "the usual error counts wrong classes; it takes scores of shape (batch, "
            "classes, ...) and whole numbers of shape (batch, ...), and cannot say how "
            f"wrong {shown(scores)} is for {shown(labels)}."
        )
    return (found != labels).float()


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that training needs apart from a recipe.

    Attributes:
        model: Gates are added to it, unless it has its own.
        train: What to learn from.
        test: What to report on after every epoch, and never to choose with.
        validation: What to choose with, if anything is chosen.
        loss: Mean loss of a batch, from what the model returns and targets.
        error: How wrong each output is, between 0 and 1, from the same.
        optimizer: From parameter groups to an optimizer.
        pruner: From the model and example inputs to what prunes it: a subclass of
            `Pruner`, or anything else that the loop can train. By default a `Pruner`
            with the strength, budget and options of the recipe.
    """

    model: nn.Module
    train: Loader
    test: Loader
    validation: Loader | None = None
    loss: Callable[[Any, Tensor], Tensor] = cross_entropy
    error: Callable[[Any, Tensor], Tensor] = is_wrong
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] = Adam
    pruner: Callable[[nn.Module, Tensor], Trainable] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


MakeTask = Callable[[Recipe], Task]
"""A task as users write it: a plain function, called once the seed is set."""


def check_task(made: object) -> None:
    """Refuse what is not a task, saying what is.

    Raises:
        ArgumentError: If a function that should make a task returned something else.
    """
    if not isinstance(made, Task):
        raise ArgumentError(
            f"the task is a {type(made).__name__}, where a `diffprune.lab.Task` is "
            "needed: "
            "`return lab.Task(model=..., train=..., test=...)`."
        )
    for name in ("train", "test", "validation"):
        loader: Loader | None = getattr(made, name)
        if loader is not None and not _num_batches(name, loader):
            raise ArgumentError(
                f"the task has nothing for `{name}`: there are no batches."
            )


def _num_batches(name: str, loader: Loader) -> int:
    try:
        return len(loader)
    except TypeError as error:
        raise ArgumentError(
            f"the task's `{name}` does not say how many batches it has: {error}.\n"
            "Give an `IterableDataset` a `__len__` that counts its examples."
        ) from error


def check_pair(batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - what data yields
    """Refuse a batch that is not what the loop can train on.

    Raises:
        ArgumentError: If it is no pair of tensors.
    """
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    if not is_pair or not all(isinstance(part, Tensor) for part in batch):
        raise ArgumentError(
            f"the task yields {shown(batch)} as a batch, where a pair of tensors is "
            "expected: inputs and targets.\nYield pairs; or write a loop of your own, "
            "with `diffprune.Pruner`, and `lab.record` it."
        )
    return batch[0], batch[1]


def outputs_of(model: nn.Module, inputs: Tensor) -> Any:  # noqa: ANN401 - whatever it returns
    """What a model returns for the inputs of a batch.

    Raises:
        ArgumentError: If it does not take them.
    """
    try:
        return model(inputs)
    except (DiffpruneError, torch.OutOfMemoryError):
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"the model fails on a batch, whose inputs are {shown(inputs)}: "
            f"{type(error).__name__}: {error}\nIf that is the last, smaller batch, "
            "leave it out: `DataLoader(..., drop_last=True)`."
        ) from error


def loss_of(task: Task, outputs: Any, targets: Tensor) -> Tensor:  # noqa: ANN401 - whatever a model returns
    """The loss of a batch.

    Raises:
        ArgumentError: If the loss of the task does not fit its model and data.
    """
    with _fitting("loss"):
        loss: Any = task.loss(outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ArgumentError(
            "the loss of the task must be a tensor with one number, the mean of a "
            f"batch, got {shown(loss)}."
        )
    return loss


def errors_of(task: Task, outputs: Any, targets: Tensor) -> Tensor:  # noqa: ANN401 - as above
    """How wrong each example of a batch is.

    Raises:
        ArgumentError: If the error of the task does not fit its model and data.
    """
    with _fitting("error"):
        errors: Any = task.error(outputs, targets)
    if not isinstance(errors, Tensor) or not errors.ndim:
        raise ArgumentError(
            "the error of the task must be a tensor with a number for each example, "
            f"got {shown(errors)}."
        )
    if not bool(((errors >= -_ROUNDING) & (errors <= 1 + _ROUNDING)).all()):
        raise ArgumentError(
            "the error of the task must be between 0 and 1 for each example, got "
            f"{shown(errors)} from {errors.min():g} to {errors.max():g}.\nReturn how "
            "wrong each output is, such as `((outputs - targets).abs() > 0.1).float()`."
        )
    return errors


@contextmanager
def _fitting(name: str) -> Generator[None]:
    """Say in this block whose function it was that failed."""
    try:
        yield
    except Exception as error:
        raise ArgumentError(
            f"the {name} of the task does not take what the model returns and the "
            f"targets of a batch: {type(error).__name__}: {error}\n"
            f"Pass a function that does: `lab.Task(..., {name}=...)`."
        ) from error


def gate_of(recipe: Recipe) -> Callable[[int], nn.Module]:
    """What makes the gates of a model that places them itself: none for dense runs."""
    return nn.Identity if recipe.is_dense else partial(Gate, **recipe.gate)
