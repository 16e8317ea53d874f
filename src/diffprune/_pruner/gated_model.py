"""A gated model and all that is cut along with it. Knows no schedule."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeAlias, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core.types import Bool
from diffprune._costs.network import Network
from diffprune._graph import Groups, PruneGroup
from diffprune._graph.axes import Atom
from diffprune._graph.trace import ExampleInputs
from diffprune._pruner import transaction as cut
from diffprune._pruner.added_gates import Attached
from diffprune._pruner.history import Shrinkage
from diffprune._pruner.options import MARK
from diffprune._pruner.user_gates import Placed
from diffprune._surgery.apply import apply_plan_, named_tensors
from diffprune._surgery.compare import Certificate
from diffprune._surgery.diagnose import layout
from diffprune._surgery.equivalence import OutputCheck
from diffprune._surgery.optimizer_state import Move, follow_
from diffprune._surgery.plan import Plan, plan_removal
from diffprune.errors import RemovalError
from diffprune.gates import Gate

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Units: TypeAlias = Bool[Tensor, " units"]


class Body(Generic[ModuleT]):
    """What shrinks: a model, copies of it, its groups, its gates.

    Args:
        model: The model, gates and all.
        example_inputs: What every cut is verified on.
        groups: Its groups; a removal replaces them.
        gated: How the gates sit in it.

    Attributes:
        gates: By name.
        kept: The units that are left, by gate, as they were numbered at first.
        plan: All cuts so far, as one.
        copies: Models that are cut the same way.
    """

    def __init__(
        self,
        model: ModuleT,
        example_inputs: ExampleInputs,
        groups: Groups,
        gated: Attached | Placed,
    ) -> None:
        self.model, self.example_inputs = model, example_inputs
        self.groups, self.gated = groups, gated
        self.gates: dict[str, Gate] = gated.gates(model)
        self.kept = {n: list(range(gate.size)) for n, gate in self.gates.items()}
        self.plan = Plan({}, {}, {})
        self.copies: list[nn.Module] = []
        vars(model)[MARK] = True

    def units(self) -> list[PruneGroup]:
        """What each gate can remove, by the name of the gate, at its present size."""
        return list(self.gated.units(self.model, self.groups).values())

    def shape(self, step: int, found: Certificate | None = None) -> Shrinkage:
        """What is left after so many steps."""
        of_gates = {p for g in self.gates.values() for p in g.parameters()}
        own = [p for p in self.model.parameters() if p not in of_gates]
        return Shrinkage(
            step,
            {name: gate.width for name, gate in self.gates.items()},
            sum(parameter.numel() for parameter in own),
            self.groups.macs(),
            found,
        )

    def needed(self, closed: Mapping[str, Units]) -> dict[Atom, Units]:
        """Units that have to stay when these are closed for good."""
        return self.gated.needed(self.model, self.groups, closed)

    def unread(self, closed: Mapping[str, Units]) -> dict[str, Units]:
        """Units of gates that nobody reads when these are closed for good."""
        return self.gated.unread(self.model, self.groups, closed)

    def cut_(
        self,
        needed: Mapping[Atom, Units],
        closed: Mapping[str, Units],
        optimizers: Sequence[Optimizer],
        *,
        verify: bool = True,
    ) -> tuple[dict[str, Units], Certificate | None]:
        """Cut model, copies, gates and optimizers, or nothing at all.

        Returns:
            What the gates that lost units have kept, and the certificate.
        """
        plan = self._plan(needed)
        cut.check_unchanged(self.model, self.groups)
        tensors = named_tensors(self.model)
        logits = {name: gate.logits for name, gate in self.gates.items()}
        cut.check_optimizers(optimizers, tensors, [*plan.tensors], logits)
        kept, found = self._shrink_(plan, needed, closed, verify=verify)
        moved = cut.moves(tensors, self.model, plan) + [
            Move(logits[name], self.gates[name].logits, {0: _numbers(units)})
            for name, units in kept.items()
        ]
        for optimizer in optimizers:
            follow_(optimizer, moved)
        self.plan = replace(self.plan.then(plan), certificate=found)
        for name, units in kept.items():
            self.kept[name] = [self.kept[name][i] for i in _numbers(units)]
        return kept, found

    def without(self, closed: Mapping[str, Units]) -> ModuleT:
        """A plain copy of what would be left; in the end all is as it was."""
        needed, groups = self.needed(closed), self.groups
        snapshot = cut.Snapshot.of([self.model, *self.copies])
        try:
            self._shrink_(self._plan(needed), needed, closed, verify=False)
            return self.plain_copy()
        finally:
            snapshot.restore_()
            self.groups = groups

    def _plan(self, needed: Mapping[Atom, Units]) -> Plan:
        masks = {g.name: needed[g.atom] for g in self.groups if g.atom in needed}
        return plan_removal(self.groups, masks)

    def _shrink_(
        self,
        plan: Plan,
        needed: Mapping[Atom, Units],
        closed: Mapping[str, Units],
        *,
        verify: bool,
    ) -> tuple[dict[str, Units], Certificate | None]:
        """Cut the models and their gates, and verify; undo it if that fails."""
        models, groups = [self.model, *self.copies], self.groups
        check = OutputCheck(self.model, self.example_inputs) if verify else None
        snapshot = cut.Snapshot.of(models)
        try:
            # Gates first: parametrized layers are evaluated when they are cut.
            kept, *_ = [self.gated.cut_(m, groups, needed, closed) for m in models]
            sizes = {atom: int(units.sum()) for atom, units in needed.items()}
            self.groups = groups.narrowed(sizes)
            for model in models:
                self.gated.refresh_(model, self.groups)
                apply_plan_(model, plan)
            return kept, check and check.certify()
        except BaseException as error:
            snapshot.restore_()
            self.groups = groups
            if check is not None and isinstance(error, RemovalError):
                raise self._explained(error, check, needed) from error
            raise

    def _explained(
        self, error: RemovalError, check: OutputCheck, needed: Mapping[Atom, Units]
    ) -> RemovalError:
        """The error with the first layer that differs, once everything is restored."""
        masks = {g.name: needed[g.atom] for g in self.groups if g.atom in needed}
        where = check.first_difference(layout(self.groups, masks))
        return RemovalError(
            f"a removal was undone: {error}{where}\nModel, gates and optimizer are as "
            "they were before it."
        )

    def network(self) -> Network:
        """What costs are about: the model as it will be in use, without gates."""
        found = self.gated.network(self.model, self.example_inputs, self.groups)
        return replace(found, cut=self.without)

    def plain_copy(self) -> ModuleT:
        """A copy of the model as it is now, its gates folded into it."""
        copied = copy.deepcopy(self.model)
        self.gated.finish_(copied, self.groups)
        vars(copied).pop(MARK)
        return copied

    def finish_(self) -> None:
        """Fold the gates into the models and take them out, if outputs stay."""
        check = OutputCheck(self.model, self.example_inputs)
        try:
            check.certify(self.plain_copy())
        except RemovalError as error:
            raise self._explained(error, check, {}) from error
        for model in [self.model, *self.copies]:
            self.gated.finish_(model, self.groups)
            vars(model).pop(MARK)


def _numbers(units: Units) -> tuple[int, ...]:
    return tuple(units.nonzero().flatten().tolist())
