"""What a system of Table 1 is, as frozen data: its gates, recipe, penalty and hooks.

A recipe is that of the publication. `Method.asked` makes a shorter one of it: what is
timed by the epoch keeps its share of the run, and what decides about units learns
faster, by as much as the run is shorter, within limits. Nothing else is scaled.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from diffprune.lab import Recipe
from diffprune.lab.training.no_pruning import Trainable

MOST_HURRY: Final = 10.0
"""Rates are raised tenfold at most, however short a run is."""
FASTEST: Final = 1e-2
"""And never above this one."""
NUM_IMAGES: Final = 60_000
"""To learn from; published penalties are divided by it."""


@final
@dataclass(frozen=True)
class Moment:
    """When a hook is called.

    Attributes:
        step: Number of the optimizer step that was taken last, counted from one.
        progress: How much of the training that is, from zero to one.
        lr: The learning rate of the weights.
    """

    step: int
    progress: float
    lr: float


Training = Callable[["MethodRun", nn.Module, Tensor], Trainable]
"""From a run of a method, its model and example inputs to what trains it."""


def always(progress: float) -> float:
    """The penalty as it is, from the first step to the last."""
    del progress
    return 1.0


def ramp(start: float, end: float) -> Callable[[float], float]:
    """A penalty that rises from nothing to the whole between two shares of the run."""
    return lambda progress: min(max((progress - start) / (end - start), 0.0), 1.0)


def until(end: float) -> Callable[[float], float]:
    """A penalty that is dropped at some share of the run."""
    return lambda progress: float(progress < end)


@final
@dataclass(frozen=True, kw_only=True)
class Method:
    """One system of Table 1, or one beside it.

    Attributes:
        label: What the table calls it.
        recipe: As published; its name is that of the method on the command line.
        model: LeNet-5 with the gates or layers of the method, from how much faster than
            published its units are decided about.
        training: What prunes it; None for a network that stays as it is.
        published: Its row in `published.json`, if it has one.
        shrinks: Whether units leave while it trains, or in the end alone.
        hurries: Whether its units are decided about faster in shorter runs. Gates whose
            logits start next to their thresholds would close before weights have learnt
            anything.
        starts_dense: Whether it continues from the dense network of the same seed.
        pressure: What the penalty is multiplied by, by how much of the run is done.
        loss: What is penalised beside the gates, at a strength.
        after_step: Called after every step of the optimizer.
        optimizer: From parameter groups to an optimizer.
        note: What a reader of its row has to know.
    """

    label: str
    recipe: Recipe
    model: Callable[[float], nn.Module]
    training: Training | None
    published: str | None = None
    shrinks: bool = False
    hurries: bool = True
    starts_dense: bool = False
    pressure: Callable[[float], float] = always
    loss: Callable[[nn.Module, float], Tensor] | None = None
    after_step: Callable[[nn.Module, Moment], None] | None = None
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] = Adam
    note: str = ""

    def hurry(self, epochs: int) -> float:
        """How much faster than published units are decided about."""
        if not self.hurries:
            return 1.0
        return min(max(self.recipe.epochs / epochs, 1.0), MOST_HURRY)

    def asked(self, seed: int, epochs: int | None = None) -> Recipe:
        """The recipe of a run, possibly shorter than the published one.

        Args:
            seed: Of the run.
            epochs: At most; by default the published number, which is also the most.
        """
        own = self.recipe
        epochs = own.epochs if epochs is None else min(epochs, own.epochs)
        gate_lr = own.lr if own.gate_lr is None else own.gate_lr
        hurried = max(gate_lr, min(gate_lr * self.hurry(epochs), FASTEST))
        after = tuple(round(a * epochs / own.epochs) for a in own.decay_after)
        return replace(
            own, epochs=epochs, seed=seed, gate_lr=hurried, decay_after=after
        )


@final
@dataclass(frozen=True)
class MethodRun:
    """What a method adds to the run it is in: a loss of its own, and a hook."""

    method: Method
    recipe: Recipe
    steps: int

    @property
    def strength(self) -> float:
        """That of the recipe, where it is one number."""
        assert isinstance(self.recipe.strength, float)  # noqa: S101 - our own recipes
        return self.recipe.strength

    def penalty(self, model: nn.Module, of_gates: Tensor, done: int) -> Tensor:
        """Add the method's own loss to the gates', at the pressure of the moment."""
        own = self.method.loss
        total = of_gates if own is None else of_gates + own(model, self.strength)
        return self.method.pressure(done / self.steps) * total

    def after_step_(
        self, model: nn.Module, optimizers: tuple[Optimizer, ...], done: int
    ) -> None:
        """Call the hook, if there is one."""
        if self.method.after_step is not None:
            lr = optimizers[0].param_groups[0]["lr"]
            moment = Moment(done + 1, (done + 1) / self.steps, lr)
            self.method.after_step(model, moment)
