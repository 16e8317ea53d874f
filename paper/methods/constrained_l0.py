"""Constrained L0 (Gallego-Posada et al., 2022): a density per layer, not a strength.

The gates are hard concrete ones. The expected share of open units of every gate is
constrained; cooper's multipliers turn the constraints into prices, which rise while a
constraint is violated and restart from zero once it holds.
"""

from typing import Final, final

import torch
from cooper.cmp import CMPState
from cooper.constraints.constraint import Constraint
from cooper.constraints.constraint_state import ConstraintState
from cooper.multipliers.multipliers import DenseMultiplier
from cooper.utils.annotations import ConstraintType
from torch import Tensor, nn

from diffprune._core.types import Float
from diffprune.gates import BaseGate, named_gates
from paper.methods.hard_concrete import HardConcrete

DUAL_LR: Final = 1e-4


@final
class ConstrainedGate(BaseGate):
    """A hard concrete gate with a limit on the share of its units that are open.

    Args:
        size: Number of units.
        density: That share, in expectation.
        dual_lr: How fast the price of a violation rises.
    """

    shared = frozenset({"units_at_first"})

    def __init__(self, size: int, *, density: float, dual_lr: float = DUAL_LR) -> None:
        super().__init__()
        self.gate = HardConcrete(size)
        self.density, self.dual_lr = density, dual_lr
        self.register_buffer("units_at_first", torch.tensor([float(size)]))
        self.multiplier = DenseMultiplier(num_constraints=1)
        self.multiplier.weight.requires_grad = False

    units_at_first: Float[Tensor, " 1"]

    @property
    def size(self) -> int:
        """Number of units."""
        return self.gate.size

    def values(self) -> Float[Tensor, " units"]:
        """What units are multiplied by: drawn in training, fixed in use."""
        return self.gate.values()

    def margin(self) -> Float[Tensor, " units"]:
        """How far each logit is above the one at which the gate in use is zero."""
        return self.gate.margin()

    def reopening(self) -> Float[Tensor, " units"]:
        """The probability that a unit is drawn open in the next step."""
        return self.gate.reopening()

    def keep_(self, mask: Tensor) -> None:
        """Forget the units outside `mask`; they go on counting as closed."""
        super().keep_(mask)  # while the gate within still has all that it counts
        self.gate.keep_(mask)

    def violation(self) -> Float[Tensor, " 1"]:
        """How far the expected share of open units is above the limit."""
        return self.gate.penalty() / self.units_at_first - self.density

    def penalty(self) -> Float[Tensor, ""]:
        """The price of the violation, at a strength of one."""
        lagrangian = self._problem().compute_primal_lagrangian().lagrangian
        assert lagrangian is not None  # noqa: S101 - there is a constraint
        return lagrangian

    def ascend_(self) -> None:
        """Raise the price by the violation, or restart it once the constraint holds."""
        weight = self.multiplier.weight
        weight.requires_grad = True
        lagrangian = self._problem().compute_dual_lagrangian().lagrangian
        assert lagrangian is not None  # noqa: S101 - there is a constraint
        (slope,) = torch.autograd.grad(lagrangian, [weight])
        weight.requires_grad = False
        weight.add_(slope, alpha=self.dual_lr)
        self.multiplier.post_step_()
        if float(slope) <= 0:
            weight.zero_()

    def _problem(self) -> CMPState:
        constraint = Constraint(ConstraintType.INEQUALITY, multiplier=self.multiplier)
        return CMPState(None, {constraint: ConstraintState(self.violation())})


def ascend_(model: nn.Module) -> None:
    """Call after every optimizer step."""
    for gate in named_gates(model, ConstrainedGate).values():
        gate.ascend_()
