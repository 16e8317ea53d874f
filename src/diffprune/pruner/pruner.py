"""The pruner: gates on any model, and closed units removed while it trains.

The one place where gates, groups and surgery meet.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from diffprune._typing import Bool, Float
from diffprune.errors import ArgumentError, FinishedError
from diffprune.gates import Gate
from diffprune.gates.bank import Bank
from diffprune.graph import Groups, PruneGroup, find_groups
from diffprune.graph.axes import Atom
from diffprune.graph.rules import Op, Rule
from diffprune.graph.trace import ExampleInputs
from diffprune.penalty import named_gates, parameter_groups
from diffprune.pruner import cut, placed
from diffprune.pruner.attach import Attached
from diffprune.pruner.history import Shrinkage
from diffprune.pruner.options import (
    MARK,
    Gates,
    Schedule,
    check_options,
    check_placed,
    default_gate,
    make_gates,
)
from diffprune.pruner.resume import read_state
from diffprune.pruner.safety import are_finite, closed_for_good, looked
from diffprune.pruner.strengths import Strength, strength_of
from diffprune.pruner.summary import summarise
from diffprune.surgery.apply import apply_plan_, named_tensors
from diffprune.surgery.compare import outputs
from diffprune.surgery.masks import widen
from diffprune.surgery.optimizer import Move, follow_
from diffprune.surgery.plan import Certificate, Plan, plan_removal

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Units: TypeAlias = Bool[Tensor, " units"]


class Pruner(Generic[ModuleT]):
    """Makes a model smaller while it trains.

    Finds what can be removed, gates it, and removes what the gates have closed from the
    model, the gates and the optimizer. Gates that the model already holds (`dp.Gate`
    layers) are used as they are; then none are added.

    Args:
        model: Any module that `torch.export` can trace. It is changed in place and
            stays the object it is.
        example_inputs: A tensor, a tuple, or a dict of keyword arguments.
        strength: How hard open units are pushed to close: one number, a function of the
            group (`by_macs`, `by_parameters`), or either by name pattern; groups that
            no pattern matches are left whole.
        gate: Makes the gate of a group; one function, or one per name pattern.
        schedule: Look for closed units every so many steps, or when a function of the
            step number says so.
        reopen: Units of gates with noise or competition may open again. They are
            removed once the probability that they do in the next step is below this.
            Without noise a closed sigmoid gate cannot open, and its unit goes at once.
        patience: Or once they were found closed so many times in a row.
        round_to: Widths are cut to multiples of this.
        freeze: Names or patterns of layers to leave as they are.
        heads: Whether attention loses `"whole"` heads, units `"inside"`, or `"both"`.
        rules: Rules for ops that have none.
        on_removal: Called with every `Shrinkage`.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> pruner = Pruner(model, torch.rand(4, 3), strength=1e-3)
        >>> optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-3))
        >>> loss = model(torch.rand(4, 3)).square().mean() + pruner.penalty()
        >>> loss.backward(); optimizer.step(); pruner.step(optimizer)
        >>> type(pruner.finalize())
        <class 'torch.nn.modules.container.Sequential'>
    """

    def __init__(  # noqa: PLR0913 - every default works
        self,
        model: ModuleT,
        example_inputs: ExampleInputs,
        *,
        strength: Strength = 1e-5,
        gate: Gates = default_gate,
        schedule: Schedule = 100,
        reopen: float = 0.05,
        patience: int = 30,
        round_to: int = 1,
        freeze: Sequence[str] = (),
        heads: Literal["both", "whole", "inside"] = "both",
        rules: Mapping[Op, Rule] | None = None,
        on_removal: Callable[[Shrinkage], None] | None = None,
    ) -> None:
        check_options(model, schedule, reopen, patience, round_to)
        self.model = model
        self.example_inputs = example_inputs
        self.history: list[Shrinkage] = []
        self.steps = 0
        self.plan = Plan({}, {}, {})
        self._schedule, self._reopen, self._round_to = schedule, reopen, round_to
        self._patience = patience
        self._strength, self._on_removal = strength, on_removal
        self._copies: list[nn.Module] = []
        self._is_finished = False
        own = bool(named_gates(model))
        rule = placed.GateRule()
        known = {**(rules or {}), **({torch.ops.diffprune.gate: rule} if own else {})}
        self.groups: Groups = find_groups(
            model, example_inputs, freeze=freeze, heads=heads, rules=known
        )
        if own:
            self._gated = placed.Placed(model, self.groups, rule)
            check_placed(gate, strength, self._gated.units)
        else:
            made = make_gates(model, self.groups, strength, gate)
            self._gated = Attached(model, self.groups, made)
        vars(model)[MARK] = True
        self.gates: dict[str, Gate] = self._gated.gates(model)
        self._bank = Bank(self.gates)
        self._kept = {n: list(range(gate.size)) for n, gate in self.gates.items()}
        self._looks = {
            name: torch.zeros(gate.size, dtype=torch.long)
            for name, gate in self.gates.items()
        }
        self.dense = self.shape()
        self._strengths = self._compute_strengths()

    def parameter_groups(
        self,
        *,
        lr: float | None = None,
        gate_lr: float | None = None,
        weight_decay: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Optimizer groups in which gates are never decayed."""
        return parameter_groups(
            self.model, lr=lr, gate_lr=gate_lr, weight_decay=weight_decay
        )

    def penalty(self) -> Float[Tensor, ""]:
        """What open units cost: the expected number of them, by strength."""
        self._check_running()
        return self._bank.penalty(self._strengths)

    def add_copy(self, model: nn.Module) -> None:
        """Cut this copy of the model too: a moving average, a teacher.

        Args:
            model: Made with `copy.deepcopy(pruner.model)` or an `AveragedModel` of it.

        Raises:
            ArgumentError: If it is not a copy of the model as it is now.
        """
        copied = model.module if isinstance(model, AveragedModel) else model
        cut.check_same(self.model, copied)
        self._copies.append(copied)

    def step(self, *optimizers: Optimizer) -> Shrinkage | None:
        """Call after every optimizer step: now and then, removes closed units."""
        self._check_running()
        self.steps += 1
        every = self._schedule
        is_due = every(self.steps) if callable(every) else self.steps % every == 0
        return self.remove_closed_(*optimizers) if is_due else None

    def remove_closed_(self, *optimizers: Optimizer) -> Shrinkage | None:
        """Remove what is closed for good, now; nothing if nothing is.

        Raises:
            RemovalError: If outputs would change; everything is as it was before.
            ArgumentError: If an optimizer cannot follow; nothing has changed.
        """
        self._check_running()
        if not are_finite(dict(self.model.named_parameters())):
            return None
        closed = dict[str, Units]()
        for name, gate in self.gates.items():
            self._looks[name] = looked(gate, self._looks[name])
            looks = self._looks[name]
            closed[name] = closed_for_good(gate, self._reopen, looks, self._patience)
        return self._remove_(closed, optimizers)

    def finalize(self, *optimizers: Optimizer) -> ModuleT:
        """Remove all closed units, fold the gates away, and hand the model back.

        The model is the user's own object, of its own class, with its own names, plain
        and small; in eval mode it computes what it did before.

        Args:
            *optimizers: Give them to train the model further.
        """
        self._check_running()
        if are_finite(dict(self.model.named_parameters())):
            closed = {name: ~gate.is_open() for name, gate in self.gates.items()}
            self._remove_(closed, optimizers)
        before = outputs(self.model, self.example_inputs)
        trial = copy.deepcopy(self.model)
        self._gated.finish_(trial, self.groups)
        cut.certificate(before, outputs(trial, self.example_inputs))
        for model in [self.model, *self._copies]:
            self._gated.finish_(model, self.groups)
            vars(model).pop(MARK)
        self._is_finished = True
        return self.model

    def summary(self) -> str:
        """Per group what is left of it, and what that costs, as a table."""
        return summarise(self)

    def state_dict(self) -> dict[str, Any]:
        """What a pruner of a fresh model needs to continue; without the tensors.

        Those are in the model's own `state_dict`, gates included.
        """
        return {
            "plan": self.plan.to_json(),
            "units": dict(self.dense.units),
            "gates": {
                name: (self._kept[name], placed.present_units(gate).tolist())
                for name, gate in self.gates.items()
            },
            "looks": {name: looks.tolist() for name, looks in self._looks.items()},
            "steps": self.steps,
            "history": [record.to_dict() for record in self.history],
        }

    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Cut a freshly gated model, and optimizers for it, to the shapes of a run.

        Then load the model's and the optimizers' own states.

        Raises:
            ArgumentError: If the state is that of another model; nothing has changed.
        """
        self._check_running()
        if self.history:
            raise ArgumentError(
                "this pruner has already removed units; load the state into a new one."
            )
        saved = read_state(state, self.groups, self._gated.units)
        self._cut_(saved.needed, saved.closed, optimizers, verify=False)
        self._looks = {name: looks.clone() for name, looks in saved.looks.items()}
        self.steps, self.history = saved.steps, list(saved.history)

    def _remove_(
        self, closed: Mapping[str, Units], optimizers: Sequence[Optimizer]
    ) -> Shrinkage | None:
        wide = {n: self._round_up(n, units.cpu()) for n, units in closed.items()}
        needed = self._gated.needed(self.model, self.groups, wide)
        if all(bool(units.all()) for units in needed.values()):
            return None
        found = self._cut_(needed, wide, optimizers)
        record = self.shape(found)
        self.history.append(record)
        if self._on_removal is not None:
            self._on_removal(record)
        return record

    def _cut_(
        self,
        needed: Mapping[Atom, Units],
        closed: Mapping[str, Units],
        optimizers: Sequence[Optimizer],
        *,
        verify: bool = True,
    ) -> Certificate | None:
        """Cut model, copies, gates and optimizers, or nothing at all."""
        masks = {g.name: needed[g.atom] for g in self.groups if g.atom in needed}
        plan = plan_removal(self.groups, masks)
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
            self._kept[name] = [self._kept[name][i] for i in _numbers(units)]
            self._looks[name] = self._looks[name][units]
        self._strengths = self._compute_strengths()
        return found

    def _shrink_(
        self,
        plan: Plan,
        needed: Mapping[Atom, Units],
        closed: Mapping[str, Units],
        *,
        verify: bool,
    ) -> tuple[dict[str, Units], Certificate | None]:
        """Cut the models and their gates, and verify; undo it if that fails."""
        models, groups = [self.model, *self._copies], self.groups
        before = outputs(self.model, self.example_inputs) if verify else []
        snapshot = cut.Snapshot.of(models, needed)
        try:
            # Gates first: parametrized layers are evaluated when they are cut.
            kept, *_ = [self._gated.cut_(m, groups, needed, closed) for m in models]
            self.groups = cut.resize_(groups, needed)
            for model in models:
                self._gated.refresh_(model, self.groups)
                apply_plan_(model, plan)
            if not verify:
                return kept, None
            return kept, cut.certificate(
                before, outputs(self.model, self.example_inputs)
            )
        except BaseException:
            snapshot.restore_()
            self.groups = groups
            raise

    def shape(self, found: Certificate | None = None) -> Shrinkage:
        """What is left of the model now."""
        of_gates = {p for g in self.gates.values() for p in g.parameters()}
        own = [p for p in self.model.parameters() if p not in of_gates]
        return Shrinkage(
            self.steps,
            {name: gate.width for name, gate in self.gates.items()},
            sum(parameter.numel() for parameter in own),
            self.groups.macs(),
            found,
        )

    def _round_up(self, name: str, closed: Units) -> Units:
        """Keep the most promising closed units, where widths have to be multiples."""
        open_units = int((~closed).sum())
        width = -(-open_units // self._round_to) * self._round_to
        score = self.gates[name].prob_open().detach().cpu()
        return ~widen(~closed, width, score)

    def units(self) -> list[PruneGroup]:
        """What each gate can remove, by the name of the gate, at its present size."""
        current = {group.atom: group for group in self.groups}
        known = self._gated.units.items()
        return [replace(current.get(u.atom, u), name=name) for name, u in known]

    def _compute_strengths(self) -> dict[str, float]:
        units = self.units()
        return {u.name: strength_of(self._strength, u) or 0.0 for u in units}

    def _check_running(self) -> None:
        if self._is_finished:
            raise FinishedError(
                "this pruner was finalized: its model is plain and has no gates.\n"
                "To prune it further, make a new `Pruner` for it."
            )


def _numbers(units: Units) -> tuple[int, ...]:
    return tuple(units.nonzero().flatten().tolist())
