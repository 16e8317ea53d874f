"""How a task is trained, as frozen data (`Recipe`).

A recipe is returned by a function, varied with `dataclasses.replace`, and printed,
compared and written as JSON.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

import torch

from diffprune._budget import Budget
from diffprune._core.amounts import UNITS
from diffprune._core.door import check_fields, door
from diffprune._core.types import Amount, Count, Natural, Seed
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.gates import Gate
from diffprune.lab import defaults
from diffprune.lab.formatting import listed

_SOME_UNITS: Final = 8
_GIVEN_OTHERWISE: Final = {
    "model", "example_inputs", "strength", "budget", "gate", "rules", "on_removal",
    "on_budget",
}  # fmt: skip
"""Arguments of `Pruner` that the loop gives, or that JSON cannot hold."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The numbers of a run.

    With neither a strength nor a budget the model is trained as it is, without gates.

    Attributes:
        name: What tables and folders call it.
        epochs: Passes over the training data.
        batch_size: Examples per step.
        lr: Learning rate at the start.
        gate_lr: That of the gates; by default `lr`.
        weight_decay: For everything but gates.
        decay: How learning rates fall: not at all, along a half cosine to zero, along a
            line to zero from the first of the epochs `decay_after` (if there is one),
            or by `decay_factor` after each of them.
        decay_after: For `decay="linear"` and `decay="steps"`.
        decay_factor: For `decay="steps"`.
        clip_norm: Longer gradients are cut to this length.
        amp: Whether forward passes run in bfloat16 where that is safe; faster on
            devices made for it.
        strength: How hard open units are pushed to close, by name pattern or for all;
            see `Pruner`.
        budget: What the model may cost in the end, instead of a strength: arguments of
            `Budget` but for the steps, such as `{"macs": 0.3}`.
        gate: What the gates are like: arguments of `Gate`, such as `{"u": "softmax"}`.
        pruner: Any other arguments of `Pruner`, such as `{"round_to": 8}`.
        seed: Equal seeds give equal runs, on one machine and number of threads.

    Examples:
        >>> recipe = Recipe(name="a", epochs=2, decay="cosine", budget={"macs": 0.3})
        >>> recipe.lr_factor(1)
        0.5
        >>> recipe.as_dense().is_dense
        True
    """

    name: str
    epochs: int
    batch_size: Count = defaults.BATCH_SIZE
    lr: Amount = defaults.LR
    gate_lr: Amount | None = None
    weight_decay: Amount = 0.0
    decay: Literal["constant", "cosine", "linear", "steps"] = "constant"
    decay_after: tuple[int, ...] = ()
    decay_factor: Amount = 0.2
    clip_norm: Amount | None = None
    amp: bool = False
    strength: Amount | Mapping[str, Amount] | None = None
    budget: Mapping[str, float | str] | None = None
    gate: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pruner: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epochs < 1:
            raise ArgumentError(
                f"training needs at least one epoch, got {self.epochs}.\n"
                "Type `--epochs 1` or more, or leave it out for the usual number."
            )
        if self.clip_norm == 0:
            raise ArgumentError(
                "clip_norm must be more than 0: gradients of length 0 train nothing. "
                "Leave it out to keep gradients as they are."
            )
        if self.strength is not None and self.budget is not None:
            raise ArgumentError(
                "a budget finds its own strength: give a recipe `strength=` or "
                "`budget=`, not both."
            )

    @property
    def is_dense(self) -> bool:
        """Whether the model is trained as it is, without gates."""
        return self.strength is None and self.budget is None

    @property
    def folder_name(self) -> str:
        """What the folder of a run is called by default."""
        return f"{self.name}-seed{self.seed}"

    def as_dense(self) -> "Recipe":
        """The same without gates, to compare with."""
        return replace(self, strength=None, budget=None)

    @door
    def lr_factor(self, epoch: Natural) -> float:
        """What learning rates are multiplied by, `epoch` epochs after the start."""
        if self.decay == "cosine":
            return (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        if self.decay == "linear":
            (start,) = self.decay_after[:1] or (0,)
            if epoch <= start:  # also in a run that ends before
                return 1.0
            return (self.epochs - epoch) / (self.epochs - start)
        if self.decay == "steps":
            drops = sum(epoch >= after for after in self.decay_after)
            return self.decay_factor**drops
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    @door
    def from_dict(cls, data: Mapping[str, Any]) -> "Recipe":
        """Read what `to_dict` wrote, also by way of JSON.

        Raises:
            ArgumentError: If the data is not that of a recipe.
        """
        try:
            after: dict[str, Any] = {"decay_after": tuple(data.get("decay_after", ()))}
            return cls(**{**data, **after})
        except TypeError as error:
            raise ArgumentError(f"the data is not that of a recipe: {error}") from error


MakeRecipe = Callable[[int], Recipe]
"""From a seed to a recipe."""


def check_recipe(recipe: Recipe) -> None:
    """Refuse what `Budget` or `Pruner` would refuse, before anything is made.

    Reading a recipe does not check this: records outlive the names of options.

    Raises:
        ArgumentError: If an amount of the budget cannot be right.
        UnknownNameError: If there is no such cost or option; it lists those there are.
    """
    for name in recipe.budget or ():
        if name not in {*UNITS, "pretrained"}:
            raise UnknownNameError(
                f"a budget cannot limit `{name}`; there are {listed(UNITS)}."
            )
    if recipe.budget is not None:
        Budget(**dict[str, Any](recipe.budget))
    taken = inspect.signature(Gate).parameters
    for name in recipe.gate:
        if name not in taken or name == "size":
            raise UnknownNameError(
                f"a recipe's `gate` has no option `{name}`; there are {listed(taken)}."
            )
    with torch.random.fork_rng():
        Gate(_SOME_UNITS, **recipe.gate)  # raises where a value cannot be right
    known = [
        name
        for name in inspect.signature(Pruner).parameters
        if name not in _GIVEN_OTHERWISE
    ]
    for name in recipe.pruner:
        if name not in known:
            raise UnknownNameError(
                f"a recipe's `pruner` has no option `{name}`; there are "
                f"{listed(known)}."
            )
