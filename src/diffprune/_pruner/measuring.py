"""What the units of a gated model are worth, measured while it trains.

Two measurements: a running mean of squared gradients of gates, at every step; and, in
the few steps before units leave, what their readers see and the loss makes of it, which
also says what the other units could do in their place.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final, final

import torch
from torch import Tensor

from diffprune._choice.evidence import GroupEvidence
from diffprune._choice.observer import Observer
from diffprune._choice.worth import Leaving, order_units
from diffprune._core.types import Float, Int
from diffprune._core.user_warnings import warn
from diffprune._graph import ExampleInputs
from diffprune._pruner.gated_model import GatedModel
from diffprune._pruner.placement import Keep

CHOOSING: Final = 128
"""Examples that units are chosen by."""

FITTING: Final = 256
"""Examples whose inputs are held for a refit."""


@final
class Measuring:
    """Listens to a gated model, and says in which order its units should leave.

    Args:
        gated: The model.
    """

    def __init__(self, gated: GatedModel[Any]) -> None:
        self._gated = gated
        self._observer: Observer | None = None
        self._orders: dict[str, Leaving] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Measuring":
        """A measuring of the copied model, which knows what this one has heard."""
        copied = Measuring(copy.deepcopy(self._gated, memo))
        copied._orders = copy.deepcopy(self._orders, memo)
        copied.load_state_dict(copy.deepcopy(self.state_dict(), memo))
        return copied

    @property
    def is_ready(self) -> bool:
        """Whether the readers were listened to for long enough."""
        return self._observer is not None and self._observer.is_ready

    @property
    def inputs(self) -> list[ExampleInputs]:
        """Inputs of the steps that were listened to."""
        return [] if self._observer is None else self._observer.inputs

    def squares(self) -> dict[str, Float[Tensor, " units"]]:
        """By gate, the running mean squares; one is the mean over all units."""
        return self._gated.pooled.slopes.squares()

    def end_step(self) -> None:
        """After an optimizer step."""
        processes, slopes = self._gated.processes, self._gated.pooled.slopes
        is_alone = processes.count == 1 or self._gated.is_folded
        mean_square = slopes.end_step(None if is_alone else processes.sum_)
        if not processes.is_first:
            self.forget_()  # the first one listens for all
        if self._observer is not None:
            self._observer.end_step(None if mean_square is None else float(mean_square))

    def listen_(self, *, for_refit: bool) -> None:
        """Listen to the readers from now on, in the process that decides."""
        if self._observer is None and self._gated.processes.is_first:
            groups = [*self._gated.units().values()]
            fitting = FITTING if for_refit else 0
            self._observer = Observer(self._gated.model, groups, CHOOSING, fitting)

    def stop_(self) -> None:
        """Listen no more; what was heard is known until units have left."""
        if self._observer is not None:
            self._observer.detach_()

    def orders(self) -> dict[str, Leaving]:
        """By gate, the order in which its units should leave."""
        self.stop_()
        if self._observer is not None and self._observer.examples_per_pass:
            self._orders = self._heard(self._observer)
        elif self._orders is None:
            self._orders = {
                n: _by_squares(n, some) for n, some in self.squares().items()
            }
        return self._orders

    def warn_of_ignorance(self) -> None:
        """Say so if units have left and nothing was known of what they are worth."""
        orders = (self._orders or {}).values()
        if orders and not any(bool(order.worth.any()) for order in orders):
            warn(
                "nothing is known of what units are worth, so they leave in the order "
                "in which they stand: no gradient has come to their gates.\nTrain the "
                "model that the pruner was made with, with a loss that depends on it, "
                "and compile it once the budget is met.",
            )

    def after_removal_(self, keep: Mapping[str, Keep]) -> None:
        """Forget about the units that have left, and listen anew for the next."""
        if self._orders is not None:
            cut = {n: o.narrowed(keep[n].cpu()) for n, o in self._orders.items()}
            self._orders = cut
        self.forget_()

    def forget_(self) -> None:
        """Forget what the readers said."""
        self.stop_()
        self._observer = None

    def state_dict(self) -> dict[str, Any] | None:
        """What was heard of the readers in the steps up to now, if anything was."""
        return self._observer and self._observer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Listen as another run did, and know what it had heard."""
        self.forget_()
        if state is not None:
            self.listen_(for_refit=False)
            if self._observer is not None:
                self._observer.load_state_dict(state)

    def _heard(self, observer: Observer) -> dict[str, Leaving]:
        present, count = self._present(), observer.examples_per_pass
        squares = {name: some * count for name, some in self.squares().items()}
        found = observer.leaving({n: squares[n][present[n]] for n in squares})
        return {
            name: _for_gate(found[name], present[name], squares[name])
            for name in squares
        }

    def _present(self) -> dict[str, Int[Tensor, " width"]]:
        """By gate, its units in the order in which the data has them."""
        return self._gated.placement.present(self._gated.model)


def _by_squares(name: str, squares: Float[Tensor, " units"]) -> Leaving:
    return order_units(GroupEvidence(name, len(squares), (), squares))


def _for_gate(
    found: Leaving, present: Int[Tensor, " width"], squares: Float[Tensor, " units"]
) -> Leaving:
    """An order of the units of the data, as one of those of its gate."""
    is_whole = len(present.unique()) == len(present) == len(found.order)
    if not is_whole or not bool(found.worth.isfinite().all()):
        return _by_squares(found.name, squares)
    absent = torch.ones(len(squares), dtype=torch.bool).index_fill(
        0, present, value=False
    )
    order = torch.cat([absent.nonzero().flatten(), present[found.order]])
    worth = torch.cat([torch.zeros(len(order) - len(present)).double(), found.worth])
    return Leaving(found.name, order, worth, found.is_compensated)
