"""A model with gates, and its removals: everything that is cut is cut here, together.

`GatedModel.keep_` is the whole of a removal, from top to bottom: gates, parameters,
copies and optimizers, checked on the example inputs, or nothing at all.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core.copying import copied
from diffprune._core.modules import GATES, MARK, named_tensors
from diffprune._core.snapshot import all_or_nothing
from diffprune._core.types import Float, Int
from diffprune._costs.network import Network
from diffprune._graph import Atom, ExampleInputs, Groups, PruneGroup, count
from diffprune._pruner.data_parallel import ignore_wrappers_, notice_wrappers_
from diffprune._pruner.gate_contract import check_cut, check_zeros, drawn_in_training
from diffprune._pruner.moving_inputs import MovingInputs
from diffprune._pruner.placement import Cut, GatePlacement, Keep, cut_dims
from diffprune._pruner.processes import Processes
from diffprune._pruner.removal_policy import are_finite
from diffprune._surgery.apply import apply_plan_
from diffprune._surgery.compare import Certificate
from diffprune._surgery.diagnose import layout
from diffprune._surgery.equivalence import OutputCheck
from diffprune._surgery.first_shapes import FirstShapes, point_to_
from diffprune._surgery.keep_masks import widen
from diffprune._surgery.optimizer_state import (
    Forgotten,
    Move,
    all_optimizers,
    check_can_follow,
    follow_,
)
from diffprune._surgery.plan import Plan, plan_removal
from diffprune.errors import ArgumentError, RemovalError
from diffprune.gates import GateLike
from diffprune.gates.penalty import gate_paths

ModuleT = TypeVar("ModuleT", bound=nn.Module)
AnyModuleT = TypeVar("AnyModuleT", bound=nn.Module)


@dataclass(frozen=True)
class RemovalRecord:
    """What is left of a model after a removal, and how exact the removal was.

    Attributes:
        step: Number of the training step after which it happened.
        units: Units of every gate that are left, by name.
        parameters: Parameters of the model that are left.
        macs: Multiply-adds that are left, for the example inputs.
        certificate: How far outputs before and after are apart; None before the first
            removal.
        worth: By gate that lost units, what these were worth on average: running
            squares of the gradients of gates, one being the mean over all units.
    """

    step: int
    units: Mapping[str, int]
    parameters: int
    macs: int
    certificate: Certificate | None = None
    worth: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RemovalRecord":
        """Read what `to_dict` wrote."""
        certificate = data["certificate"]
        return cls(
            int(data["step"]),
            dict(data["units"]),
            int(data["parameters"]),
            int(data["macs"]),
            None if certificate is None else Certificate(**certificate),
            dict(data.get("worth", {})),  # records of earlier versions have none
        )


class GatedModel(Generic[ModuleT]):
    """A model with gates, and everything that has to shrink with it.

    Args:
        model: The model, gates and all.
        example_inputs: What every removal is checked on; they follow the model when it
            moves to another device or type.
        groups: Its groups; a removal replaces them.
        placement: How the gates sit in it.
        round_to: Widths are cut to multiples of this.

    Attributes:
        resets_state: Whether an optimizer may forget what cannot be cut.
        gates: By name.
        kept: The units of each gate that are left, as they were numbered at first. What
            else is known about units is kept in these numbers.
        plan: All removals so far, as one.
        last_cut: The latest of them.
        copies: Models that are cut the same way.
        history: What was left after each removal.
        first_groups: The groups before the first removal.
        first_shapes: The shapes before the first removal.
        processes: Those that train the model.
        is_folded: Whether the gates are folded away: the model is plain, and `gates`
            are what they were then.
    """

    def __init__(
        self,
        model: ModuleT,
        example_inputs: ExampleInputs,
        groups: Groups,
        placement: GatePlacement,
        round_to: int = 1,
    ) -> None:
        self.model, self._inputs = model, MovingInputs(model, example_inputs)
        self.groups, self.placement, self._round_to = groups, placement, round_to
        self.gates: dict[str, GateLike] = placement.gates(model)
        self.pooled = placement.pooled(model)
        self.kept = {n: torch.arange(gate.size) for n, gate in self.gates.items()}
        self.plan = self.last_cut = Plan({}, {}, {})
        self.resets_state = False
        self.copies: list[nn.Module] = []
        self.history: list[RemovalRecord] = []
        self.first_groups, self.first_shapes = groups, FirstShapes.of(model)
        self.is_folded = False
        self._forgotten: list[Forgotten] = []
        self._present = placement.present(model)
        self.processes = Processes()
        notice_wrappers_(model, self.processes)
        vars(model)[MARK] = True

    @property
    def example_inputs(self) -> ExampleInputs:
        """What every removal is checked on, where the model is and of its type."""
        return self._inputs.like(self.model)

    @property
    def modes(self) -> tuple[bool, ...]:
        """Whether to compare outputs in train mode (True), in eval mode, or in both."""
        # What a noisy gate draws in train mode depends on how many units it has.
        is_drawn = any(map(drawn_in_training, self.gates.values()))
        return (False,) if is_drawn else (False, True)

    def units(self) -> dict[str, PruneGroup]:
        """What each gate decides about, by the name of the gate."""
        return self.placement.units(self.groups)

    def present(self) -> dict[str, Int[Tensor, " width"]]:
        """The units of each gate that the data still has."""
        if not self.is_folded:
            self._present = self.placement.present(self.model)
        return self._present

    def shape(self, step: int, found: Certificate | None = None) -> RemovalRecord:
        """What is left after so many steps."""
        of_gates = {p for g in self.gates.values() for _, p in g.named_parameters()}
        own = [p for p in self.model.parameters() if p not in of_gates]
        return RemovalRecord(
            step,
            {name: len(units) for name, units in self.present().items()},
            sum(parameter.numel() for parameter in own),
            self.groups.macs(),
            found,
        )

    def cut(self, keep: Mapping[str, Keep]) -> Cut:
        """What a removal has to keep, everywhere, when each gate keeps these units.

        Changes nothing. Widths that have to be multiples keep their best closed units,
        and a gate whose units are all closed keeps one: no layer runs without any.

        Raises:
            RemovalError: If a gate lets through what it says is closed.
        """
        wide = {name: self._round_up(name, units.cpu()) for name, units in keep.items()}
        for name, units in wide.items():
            check_zeros(name, self.gates[name], units)
        return self.placement.cut(self.model, self.groups, wide)

    def keep_(
        self, cut: Cut, optimizers: Sequence[Optimizer], step: int | None
    ) -> RemovalRecord | None:
        """Keep what a cut keeps, in everything that has it, or change nothing.

        Args:
            cut: What stays.
            optimizers: All that train the parameters.
            step: Number of the training step, for the record; None if the cut was
                checked and recorded in another run.

        Returns:
            What is left; None if nothing had to go.

        Raises:
            RemovalError: If outputs would change.
            ArgumentError: If the model was changed or an optimizer cannot follow.
        """
        if cut.keeps_all():
            return None
        plan = plan_removal(self.groups, keep=cut.by_group())
        check_unchanged(self.model, self.groups)
        tensors, of_gates = named_tensors(self.model), _parameters_of(self.gates)
        optimizers = all_optimizers(optimizers)
        to_be_cut = _to_be_cut(plan, tensors, cut, of_gates)
        check_can_follow(optimizers, to_be_cut, may_reset=self.resets_state)

        inputs = self.example_inputs
        modes = self.modes
        check = None if step is None else OutputCheck(self.model, inputs, modes=modes)
        models = [self.model, *self.copies]
        try:
            with all_or_nothing(self, *optimizers):
                for model in models:
                    cut_(model, self.placement, cut, plan)
                found = check and check.certify()

                moves = _moves(plan, tensors, named_tensors(self.model))
                moves += _gate_moves(of_gates, _parameters_of(self.gates), cut)
                for optimizer in optimizers:
                    follow_(optimizer, moves)

                self.groups = cut.groups
                self.plan = replace(self.plan.then(plan), certificate=found)
                self.last_cut = plan
                self.kept.update({n: self.kept[n][u] for n, u in cut.gates.items()})
                lost = _worth_of_lost(self.pooled.slopes.squares(), cut)
                self.pooled.slopes.keep_(cut.gates)
                if step is not None:
                    left = replace(self.shape(step, found), worth=lost)
                    self.history.append(left)
        except RemovalError as error:
            if check is None:
                raise
            raise self._explained(error, check, cut.by_group()) from error
        return self.history[-1] if step is not None else None

    def keep_only_(
        self,
        keep: Mapping[str, Keep],
        atoms: Mapping[Atom, Keep],
        optimizers: Sequence[Optimizer],
    ) -> None:
        """Keep what another moment of the run had, be it more or less.

        Weights are to be loaded afterwards: units that come back are zeros.

        Args:
            keep: By gate, which of the units that there were at first.
            atoms: The units of the model, likewise.
            optimizers: All that train the parameters.

        Raises:
            ArgumentError: If an optimizer cannot follow, or gates that the user placed
                were folded away. Things may have changed by then.
        """
        optimizers = all_optimizers(optimizers)
        if self.is_folded:
            self._unfold_(optimizers)
        for model in [self.model, *self.copies]:
            replaced = self.first_shapes.restore_(model)
            for optimizer in optimizers:
                point_to_(optimizer, replaced)
        self.groups, self.plan = self.first_groups, Plan({}, {}, {})
        self.kept.update({n: torch.arange(g.size) for n, g in self.gates.items()})
        self.history.clear()
        nothing = {n: torch.zeros(len(units)) for n, units in self.kept.items()}
        self.pooled.slopes.load_(nothing)
        cut = self.placement.cut(self.model, self.groups, keep, atoms)
        self.keep_(cut, optimizers, step=None)

    def _unfold_(self, optimizers: Sequence[Optimizer]) -> None:
        """Put gates back where they were, for other values to be loaded."""
        for model in self.copies:
            gates = copy.deepcopy(self.gates)
            self.placement.unfold_(model, self.first_groups, gates)
        self.placement.unfold_(self.model, self.first_groups, self.gates)
        self.pooled = self.placement.pooled(self.model)
        for held in reversed(self._forgotten):  # a wrapper has the groups of its inner
            if any(held.optimizer is optimizer for optimizer in optimizers):
                held.remember_()
        self.is_folded = False

    def read(self, keep: Mapping[str, Keep]) -> dict[str, Keep]:
        """Which units of each gate the data still has when these are kept."""
        cut = self.placement.cut(self.model, self.groups, keep)
        found = dict(keep)
        for name, placed in cut.layouts.items():
            units = cut.gates[name].nonzero().flatten()
            units = units if placed.units is None else units[placed.units]
            found[name] = torch.zeros_like(keep[name]).index_fill(0, units, value=True)
        return found

    def without_gates(self, keep: Mapping[str, Keep] | None = None) -> ModuleT:
        """A plain copy of the model, its gates folded into it.

        Args:
            keep: By gate, which units the copy has; all that are left if omitted.
        """
        if keep is None or self.is_folded:
            return self.plain(self.model)
        return self.plain(self.model, self.placement.cut(self.model, self.groups, keep))

    def plain(self, model: AnyModuleT, cut: Cut | None = None) -> AnyModuleT:
        """A copy of this model, or of one like it: cut, its gates folded into it."""
        plain, groups = copied(model), self.groups
        if cut is not None:
            plan = plan_removal(groups, keep=cut.by_group())
            cut_(plain, self.placement, cut, plan)
            groups = cut.groups
        if not self.is_folded:
            self.placement.fold_(plain, groups)
        release_(plain)
        return plain

    def network(self) -> Network:
        """What costs are about: the model as it will be in use, without gates."""
        found = self.placement.network(self.model, self.example_inputs, self.groups)
        return replace(found, cut=self.without_gates)

    def fold_(
        self, optimizers: Sequence[Optimizer] = (), *, is_checked: bool = True
    ) -> None:
        """Fold the gates into the models and take them out, if outputs stay.

        Args:
            optimizers: They forget the parameters of the gates, as one that is made
                for the folded model knows nothing of them; their groups stay.
            is_checked: Whether to compare outputs; another run may have done it.

        Raises:
            RemovalError: If outputs would change; nothing has changed.
        """
        if self.is_folded:
            return
        if is_checked:
            # Gates may have noise in train mode; the folded model has none.
            check = OutputCheck(self.model, self.example_inputs, modes=(False,))
            try:
                check.certify(self.without_gates())
            except RemovalError as error:
                raise self._explained(error, check, {}) from error
        self._present = self.present()
        for model in [self.model, *self.copies]:
            self.placement.fold_(model, self.groups)
        left = set(self.model.parameters())  # a number that gates share may be in it
        held = [p for g in self.gates.values() for _, p in g.named_parameters()]
        gates = [p for p in held if p not in left]
        for parameter in gates:
            parameter.grad = None
        found = all_optimizers(optimizers)
        self._forgotten = [Forgotten.by_(optimizer, gates) for optimizer in found]
        self.is_folded = True

    def release_(self) -> None:
        """The model and its copies are nobody's any more; another pruner may come."""
        for model in [self.model, *self.copies]:
            release_(model)

    def is_finite(self) -> bool:
        """Whether all numbers can be trusted, as the first process has them."""
        parameters = dict(self.model.named_parameters())
        return self.processes.decide(lambda: are_finite(parameters))

    def tensors(self) -> list[Tensor]:
        """All that the model and its copies hold, gates included."""
        models = [self.model, *self.copies]
        return [tensor for model in models for tensor in named_tensors(model).values()]

    def _round_up(self, name: str, keep: Keep) -> Keep:
        """Keep the most promising closed units, where too few are open."""
        width = -(-max(1, int(keep.sum())) // self._round_to) * self._round_to
        return widen(keep, width, self.gates[name].margin().detach().cpu())

    def _explained(
        self, error: RemovalError, check: OutputCheck, keep: Mapping[str, Keep]
    ) -> RemovalError:
        """The error with the first layer that differs, once everything is restored."""
        where = check.first_difference(layout(self.groups, keep))
        return RemovalError(
            f"a removal was undone: {error}{where}\nModel, gates and optimizer are as "
            "they were before it."
        )


def cut_(model: nn.Module, placement: GatePlacement, cut: Cut, plan: Plan) -> None:
    """Cut the gates and the parameters of a model, or of a copy of it.

    Raises:
        RemovalError: If a gate does not fit what it was told to keep.
    """
    # Gates first: parametrized layers are evaluated when they are cut.
    placement.keep_(model, cut)
    apply_plan_(model, plan)
    check_cut(placement.gates(model), cut.gates)


def release_(model: nn.Module) -> None:
    """A model has no pruner any more; another may come."""
    vars(model).pop(MARK, None)
    ignore_wrappers_(model)


def _worth_of_lost(
    squares: Mapping[str, Float[Tensor, " units"]], cut: Cut
) -> dict[str, float]:
    """By gate that loses units, what these are worth on average, if that is known."""
    if not any(bool(some.any()) for some in squares.values()):
        return {}
    gone = {name: ~keep.cpu() for name, keep in cut.gates.items()}
    return {
        name: float(squares[name][units].mean())
        for name, units in gone.items()
        if bool(units.any())
    }


def check_unchanged(model: nn.Module, groups: Groups) -> None:
    """Refuse a model whose tensors are not those the groups were found in."""
    gates = tuple(f"{name}." for name in gate_paths(model))
    found = {
        name: tuple(tensor.shape)
        for name, tensor in named_tensors(model).items()
        if not name.startswith(gates) and GATES not in name
    }
    expected = {
        name: tuple(count(axis, {}) for axis in axes)
        for name, axes in groups.tensors.items()
        if not name.startswith(gates)
    }
    for name in dict.fromkeys((*expected, *found)):
        if found.get(name) != expected.get(name):
            raise ArgumentError(
                f"`{name}` had shape {expected.get(name, 'none')} when the pruner last "
                f"saw it and has {found.get(name, 'none')} now.\n"
                "Change the model before making the pruner, not after."
            )


def find_copy(model: nn.Module, other: nn.Module) -> nn.Module:
    """The copy of a model in what may be a wrapper around it, its `module`.

    Raises:
        ArgumentError: If a tensor is missing, or has another shape.
    """
    inside: object = getattr(other, "module", None)
    different = _first_difference(model, other)
    if different is None:
        return other
    if isinstance(inside, nn.Module):
        return find_copy(model, inside)
    raise ArgumentError(
        f"this is no copy of the model as it is now: `{different}` differs.\n"
        "Copy it after making the pruner: `copy.deepcopy(pruner.model)`."
    )


def _first_difference(model: nn.Module, other: nn.Module) -> str | None:
    expected = {name: t.shape for name, t in named_tensors(model).items()}
    found = {name: t.shape for name, t in named_tensors(other).items()}
    names = dict.fromkeys((*expected, *found))
    return next((n for n in names if expected.get(n) != found.get(n)), None)


def _parameters_of(gates: Mapping[str, GateLike]) -> dict[str, dict[str, nn.Parameter]]:
    return {name: dict(gate.named_parameters()) for name, gate in gates.items()}


def _to_be_cut(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    cut: Cut,
    of_gates: Mapping[str, Mapping[str, nn.Parameter]],
) -> dict[str, nn.Parameter]:
    """Parameters that are about to be cut, by name."""
    own = {n: p for n in plan.tensors if isinstance(p := tensors[n], nn.Parameter)}
    gates = {
        f"{name} (its gate)": parameter
        for name, parameters in of_gates.items()
        for parameter in parameters.values()
        if len(cut.gates[name]) in parameter.shape
    }
    return {**own, **gates}


def _moves(
    plan: Plan, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> list[Move]:
    """What took the place of every parameter that a plan cut."""
    found: dict[Tensor, Move] = {}
    for name, dims in plan.tensors.items():
        old, new = before[name], after[name]
        if isinstance(old, nn.Parameter) and isinstance(new, nn.Parameter):
            found[old] = Move(old, new, dims)
    return list(found.values())


def _gate_moves(
    before: Mapping[str, Mapping[str, nn.Parameter]],
    after: Mapping[str, Mapping[str, nn.Parameter]],
    cut: Cut,
) -> list[Move]:
    """What took the place of every parameter of a gate that lost units."""
    moves = list[Move]()
    for name, parameters in after.items():
        for key, new in parameters.items():
            old = before[name][key]
            if new is not old:
                moves.append(Move(old, new, cut_dims(old, new, cut.gates[name])))
    return moves
