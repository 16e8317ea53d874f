"""Strengths that fade while a network trains, and gates that then stay as they are.

A gate that closes late costs accuracy that the few steps left do not bring back, so
strengths fall to zero before the end. That alone does not end closing: a unit that has
closed cannot come back, and logits go on moving as long as they learn. `Holding` lets
them learn no more.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, final

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune import Pruner
from diffprune._pruner import RemovalRecord
from diffprune.gates import named_gates
from diffprune.lab import Recipe, Task


def faded(
    strength: float | Mapping[str, float], progress: float, *, start: float, end: float
) -> float | dict[str, float]:
    """What is left of strengths at some point of the training.

    Args:
        strength: At first.
        progress: How much of the training is done, from zero to one.
        start: When strengths begin to fade.
        end: When nothing is left of them.

    Examples:
        >>> [faded(8.0, at, start=0.25, end=0.75) for at in (0.25, 0.5, 0.75)]
        [8.0, 4.0, 0.0]
    """
    part = min(max((end - progress) / (end - start), 0.0), 1.0)
    if isinstance(strength, Mapping):
        return {pattern: part * value for pattern, value in strength.items()}
    return part * strength


def fading_task(
    task: Task, recipe: Recipe, *, start: float, end: float, hold: bool = False
) -> Task:
    """The same task with strengths that fade, if the recipe has any.

    Args:
        task: As it is trained with strengths that stay.
        recipe: Of the run.
        start: When strengths begin to fade, as a share of the training.
        end: When nothing is left of them.
        hold: Whether gates stay as they are from then on.
    """
    if recipe.strength is None:
        return task
    strength = partial(faded, recipe.strength, start=start, end=end)
    steps = recipe.epochs * len(task.train)
    make = partial(Holding, hold_after=end) if hold else Pruner[nn.Module]
    pruner = partial(make, strength=strength, steps=steps, **recipe.pruner)
    return replace(task, pruner=pruner)


@final
class Holding(Pruner[nn.Module]):
    """A pruner whose gates learn no more after some share of the training.

    Args:
        model: With gates of its own.
        examples: What removals are checked on.
        hold_after: That share.
        steps: Of the whole training.
        options: Other arguments of `Pruner`.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Tensor,
        *,
        hold_after: float,
        steps: int,
        **options: Any,  # noqa: ANN401 - those of a Pruner
    ) -> None:
        super().__init__(model, examples, steps=steps, **options)
        self._last_to_learn = hold_after * steps

    def step(self, *optimizers: Optimizer) -> RemovalRecord | None:
        """Remove what may go, and hold gates when it is time."""
        record = super().step(*optimizers)
        self._hold_()
        return record

    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Continue from there, with gates held if they were."""
        super().load_state_dict(state, *optimizers)
        self._hold_()

    def _hold_(self) -> None:
        if self.steps >= self._last_to_learn:
            for gate in named_gates(self.model).values():
                gate.requires_grad_(requires_grad=False)
