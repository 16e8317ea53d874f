"""How a task is trained, as frozen data (`Recipe`).

A recipe is returned by a function, varied with `dataclasses.replace`, and printed,
compared and written as JSON.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from diffprune.errors import ArgumentError
from diffprune.gates import Gate


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """What the gates of a run have in common; see `Gate` for the meaning of each."""

    u: Literal["sigmoid", "softmax"] = "sigmoid"
    sigma: float = 1.0
    dropout: float | None = None

    def make(self, size: int) -> Gate:
        """A gate for so many units."""
        return Gate(size, u=self.u, sigma=self.sigma, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The numbers of a run.

    Attributes:
        name: What tables and folders call it.
        epochs: Passes over the training data.
        batch_size: Examples per step.
        lr: Learning rate at the start.
        gate_lr: That of the gates; by default `lr`.
        weight_decay: For everything but gates.
        decay: How learning rates fall: not at all, along a half cosine to zero, or by
            `decay_factor` after each of the epochs `decay_after`.
        clip_norm: Longer gradients are cut to this length.
        amp: Whether forward passes run in bfloat16 where that is safe; faster on
            devices made for it.
        gate: What the gates are like.
        strength: How hard open units are pushed to close, see `Pruner`; None trains the
            model as it is, without gates.
        budget: What the model may cost in the end, as arguments of `Budget`; it finds
            its own strengths and looks for closed units when it has to.
        remove_every: Steps between two looks for closed units; None keeps them all in
            the network until the end.
        reopen: Units that may open again with at least this probability stay.
        seed: Equal seeds give equal runs, on one machine and number of threads.

    Examples:
        >>> Recipe(name="short", epochs=2, decay="cosine").lr_factor(1)
        0.5
    """

    name: str
    epochs: int
    batch_size: int = 100
    lr: float = 1e-3
    gate_lr: float | None = None
    weight_decay: float = 0.0
    decay: Literal["constant", "cosine", "steps"] = "constant"
    decay_after: tuple[int, ...] = ()
    decay_factor: float = 0.2
    clip_norm: float | None = None
    amp: bool = False
    gate: GateSettings = field(default_factory=GateSettings)
    strength: float | Mapping[str, float] | None = 1e-5
    budget: Mapping[str, float | str] | None = None
    remove_every: int | None = 100
    reopen: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ArgumentError(
                f"training needs at least one epoch, got {self.epochs}.\n"
                "Type `--epochs 1` or more, or leave it out for the usual number."
            )
        if self.batch_size < 1:
            raise ArgumentError(
                f"batch_size must be at least 1, got {self.batch_size}."
            )

    @property
    def folder_name(self) -> str:
        """What the folder of a run is called by default."""
        return f"{self.name}-seed{self.seed}"

    def lr_factor(self, epoch: int) -> float:
        """What learning rates are multiplied by, `epoch` epochs after the start."""
        if self.decay == "cosine":
            return (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        if self.decay == "steps":
            drops = sum(epoch >= after for after in self.decay_after)
            return self.decay_factor**drops
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Recipe":
        """Read what `to_dict` wrote, also by way of JSON."""
        nested: dict[str, Any] = {
            "gate": GateSettings(**data["gate"]),
            "decay_after": tuple(data["decay_after"]),
        }
        return cls(**{**data, **nested})


MakeRecipe = Callable[[int], Recipe]
"""From a seed to a recipe."""
