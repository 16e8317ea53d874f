"""Measure what units are worth to a loss, from a few batches.

One backward pass per batch. What the readers of a group see, and what the loss makes of
it, say what removing a unit would do to the loss of each example, to first order, and
what the other units could do in its place. Where no reader can be listened to, the
gradients of gates say what a unit does.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from diffprune._choice.examples import batch_size, from_few
from diffprune._choice.forward import Compute, names_of, run_watched
from diffprune._choice.linear_maps import LinearMap
from diffprune._choice.listener import Listener, ReaderEvidence
from diffprune._core.recomputation import without_recomputing
from diffprune._core.types import Float
from diffprune._graph import (
    ExampleInputs,
    Groups,
    PruneGroup,
    TensorAxis,
    accepting,
    mode,
    unchanged,
    unit_numbers,
)
from diffprune.errors import ArgumentError

Batch: TypeAlias = tuple[ExampleInputs, Any]
"""Inputs of the model, and the targets of the loss."""

Loss: TypeAlias = Callable[[Any, Any], Tensor]
"""From what the model returns and the targets to the loss, a mean over examples."""


@dataclass(frozen=True)
class GroupEvidence:
    """What is known of the units of a group.

    Attributes:
        name: The group.
        size: How many units it has.
        readers: What its readers saw; none if no reader could be watched.
        squares: The mean square of the gradient of a gate on each unit, instead; it
            says what a unit does, not what the others could do in its place.
    """

    name: str
    size: int
    readers: tuple[ReaderEvidence, ...]
    squares: Float[Tensor, " units"]

    @property
    def is_telling(self) -> bool:
        """Whether the loss depends on the units at all, as far as its gradient says."""
        return any(bool(reader.gradients.any()) for reader in self.readers) or bool(
            self.squares.any()
        )


def measure(
    model: nn.Module, groups: Groups, batches: Iterable[Batch], loss: Loss
) -> tuple[GroupEvidence, ...]:
    """Run the model in eval mode and gather evidence on all units of all groups.

    Args:
        model: Left as it is, and without gradients.
        groups: Its groups.
        batches: Inputs and targets.
        loss: From outputs and targets to their loss.

    Raises:
        ArgumentError: If the model does not accept a batch, or the loss has no
            gradient.
    """
    held = [*batches]
    examples = sum(batch_size(inputs) for inputs, _ in held)
    with (
        unchanged(model),
        mode(model, training=False),
        without_recomputing(),
        torch.enable_grad(),
    ):
        seen = from_few(partial(_weights_of_maps, model), held[0][0])
        listener = Listener(model, [*groups], examples, seen)
        unheard = [group for group in groups if group.name not in listener.groups]
        slopes = _Slopes(model, unheard)
        with _only_these_learn(model, slopes.parameters):
            for number, (inputs, targets) in enumerate(held):
                with accepting(f"batch {number} of data"):
                    found = _run_watched(model, listener, inputs)
                _go_back(loss(found, targets), batch_size(inputs))
                listener.end_batch()
                slopes.end_batch(batch_size(inputs))
    return tuple(
        GroupEvidence(
            group.name, group.size, listener.heard(group.name), slopes.squares(group)
        )
        for group in groups
    )


def _weights_of_maps(model: nn.Module, inputs: ExampleInputs) -> set[str]:
    """The weights that are seen when the model runs."""
    names, seen = names_of(model), set[str]()

    def at_map(found: LinearMap, compute: Compute) -> Tensor:
        seen.add(names.get(id(found.weight), ""))
        return compute(found.x)

    with torch.no_grad():
        run_watched(model, inputs, at_map)
    return seen


def _run_watched(
    model: nn.Module, listener: "Listener", inputs: ExampleInputs
) -> object:
    names, count = names_of(model), batch_size(inputs)
    at_map = listener.at_map(lambda weight: names.get(id(weight), ""), count)
    return run_watched(model, inputs, at_map)


def _go_back(loss: Tensor, count: int) -> None:
    """Backward from the loss of so many examples."""
    # A mean over examples is what they contribute, over their number.
    total = loss * count if loss.ndim == 0 else loss.sum()
    if not total.requires_grad:
        raise ArgumentError(
            "the loss has no gradient, so it does not say what units are worth: it, or "
            "the model, runs within `torch.no_grad()`, detaches, or counts.\n"
            "Pass a loss that the model could be trained with."
        )
    try:
        total.backward()
    except RuntimeError as error:
        raise ArgumentError(
            f"the gradient of the loss cannot be computed: {error}\n"
            "Pass a model and a loss that could be trained as they are."
        ) from error


@contextmanager
def _only_these_learn(model: nn.Module, chosen: Sequence[Tensor]) -> Generator[None]:
    """No gradients but for these parameters; afterwards all is as it was."""
    before = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    try:
        for parameter, _, _ in before:
            parameter.grad = None
            parameter.requires_grad_(any(parameter is one for one in chosen))
        yield
    finally:
        for parameter, learned, gradient in before:
            parameter.requires_grad_(learned)
            parameter.grad = gradient


@final
class _Slopes:
    """Gradients of gates on units that no reader tells of: from their own parameters.

    The gate of a unit multiplies what makes the unit, so its gradient is the sum of
    parameters times their gradients. It comes for a whole batch at a time.
    """

    def __init__(self, model: nn.Module, groups: Sequence[PruneGroup]) -> None:
        self._named = dict(model.named_parameters(remove_duplicate=False))
        self._groups, self._batches = groups, 0
        self._total = {g.name: torch.zeros(g.size).double() for g in groups}

    @property
    def parameters(self) -> list[Tensor]:
        """What has to learn."""
        return [self._named[p.tensor] for g in self._groups for p in _makers(g)]

    def end_batch(self, count: int) -> None:
        """Square what has come, and forget it."""
        for group in self._groups:
            slope = torch.zeros(group.size).double()
            for place in _makers(group):
                slope += self._along(group, place)
            self._total[group.name] += slope.square() / count
        self._batches += 1
        for parameter in self.parameters:
            parameter.grad = None

    def _along(self, group: PruneGroup, place: TensorAxis) -> Float[Tensor, " units"]:
        parameter, found = self._named[place.tensor], torch.zeros(group.size).double()
        if parameter.grad is None:
            return found
        numbers = unit_numbers(place.axis, group.atom)
        product = (parameter.detach() * parameter.grad).double().cpu()
        each = product.movedim(place.dim, 0).reshape(len(numbers), -1).sum(1)
        has_unit = numbers >= 0
        return found.index_add(0, numbers[has_unit], each[has_unit])

    def squares(self, group: PruneGroup) -> Float[Tensor, " units"]:
        """Mean squares; zero for groups whose readers tell more."""
        total = self._total.get(group.name, torch.zeros(group.size).double())
        return total / max(1, self._batches)


def _makers(group: PruneGroup) -> list[TensorAxis]:
    """Where the parameters are that make the units."""
    made = [place for place in group.axes if place.is_parameter and not place.is_read]
    return made or [place for place in group.axes if place.is_parameter]
