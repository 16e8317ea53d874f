"""What recipes of LeNet-5 and of wide ResNets have in common."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from diffprune.gates import Gate
from diffprune.lab import Recipe
from diffprune.lab.image_batches import Split
from diffprune.lab.training.task import gate_of

MakeRecipe = Callable[[int], Recipe]
"""From a seed to a recipe."""


def without_test(data: Split) -> Split:
    """Held-out images where those of the test were, which nothing sees then."""
    assert data.validation is not None  # noqa: S101 - asked for, to choose with
    return Split(data.train, None, data.validation)


def papers_gate(recipe: Recipe) -> Callable[[int], nn.Module]:
    """What makes the gates of a recipe, with the paper's own start."""
    if recipe.is_dense:
        return gate_of(recipe)
    return partial(Gate, **{"start": "paper", **recipe.gate})


def scaled(strength: Mapping[str, float], factor: float) -> dict[str, float]:
    """The same proportions, so many times as strong.

    Examples:
        >>> scaled({"group1.*": 2e-5, "group3.*": 3e-4}, 2.0)
        {'group1.*': 4e-05, 'group3.*': 0.0006}
    """
    return {pattern: factor * value for pattern, value in strength.items()}
