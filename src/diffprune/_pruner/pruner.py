"""The pruner: gates on any model, and closed units removed while it trains.

The one place where gates, groups and surgery meet.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from diffprune._budget import Budget, Controller
from diffprune._core.types import Bool, Float
from diffprune._graph import Groups, PruneGroup
from diffprune._graph.axes import Atom
from diffprune._graph.ops import Op, Rule
from diffprune._graph.trace import ExampleInputs
from diffprune._pruner import user_gates as placed
from diffprune._pruner.history import Shrinkage
from diffprune._pruner.known_torch_bugs import warn_of_broken_kernels
from diffprune._pruner.options import Gates, Schedule, check_options, default_gate
from diffprune._pruner.removal_policy import Patience, are_finite
from diffprune._pruner.setup import begin_
from diffprune._pruner.state import read_state
from diffprune._pruner.steering import Budgets, check_same_budget, make_controller
from diffprune._pruner.strengths import DEFAULT_STRENGTH, Strength, strength_of
from diffprune._pruner.summary import summarise
from diffprune._pruner.transaction import check_same
from diffprune._surgery.compare import Certificate
from diffprune._surgery.keep_masks import widen
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError, FinishedError
from diffprune.gates import Gate
from diffprune.gates.penalty import parameter_groups
from diffprune.gates.pooled import Bank

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
            no pattern matches are left whole. By default 1e-5.
        budget: What the model may cost in the end, instead of a strength; several are
            met in turn, from the largest to the smallest.
        gate: Makes the gate of a group; one function, or one per name pattern.
        schedule: Look for closed units every so many steps, or when a function of the
            step number says so. A budget has a schedule of its own.
        reopen: Units of gates with noise or competition may open again. They are
            removed once the probability that they do in the next step is below this.
            Without noise a closed sigmoid gate cannot open, and its unit goes at once.
        patience: Or once they were found closed so many times in a row.
        round_to: Widths are cut to multiples of this.
        freeze: Names or patterns of layers to leave as they are.
        heads: Whether attention loses `"whole"` heads, units `"inside"`, or `"both"`.
        rules: Rules for ops that have none.
        on_removal: Called with every `Shrinkage`.
        on_budget: Called with every budget once the model has met it and recovered, and
            with a plain copy of the model as it then is.

    Examples:
        >>> import torch
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
        strength: Strength | None = None,
        budget: Budgets | None = None,
        gate: Gates = default_gate,
        schedule: Schedule = 100,
        reopen: float = 0.05,
        patience: int = 30,
        round_to: int = 1,
        freeze: Sequence[str] = (),
        heads: Literal["both", "whole", "inside"] = "both",
        rules: Mapping[Op, Rule] | None = None,
        on_removal: Callable[[Shrinkage], None] | None = None,
        on_budget: Callable[[Budget, ModuleT], None] | None = None,
    ) -> None:
        check_options(model, schedule, reopen, patience, round_to)
        self.example_inputs = example_inputs
        self.history: list[Shrinkage] = []
        self.steps = 0
        self._schedule, self._round_to = schedule, round_to
        self._strength = DEFAULT_STRENGTH if strength is None else strength
        self._on_removal, self._on_budget = on_removal, on_budget
        self._is_finished = False
        self._body = begin_(
            model,
            example_inputs,
            strength=self._strength,
            gate=gate,
            freeze=freeze,
            heads=heads,
            rules=rules,
        )
        self._bank = Bank(self.gates)
        self._patience = Patience(self.gates, reopen, patience)
        self.dense = self.shape()
        self.controller = (
            None
            if budget is None
            else make_controller(budget, self._body, strength, round_to)
        )
        self._strengths = self._compute_strengths()

    @property
    def model(self) -> ModuleT:
        """The model, as small as it is by now."""
        return self._body.model

    @property
    def gates(self) -> dict[str, Gate]:
        """The gates, by name."""
        return self._body.gates

    @property
    def groups(self) -> Groups:
        """What can be removed, at its present size."""
        return self._body.groups

    @property
    def plan(self) -> Plan:
        """All removals so far, as one."""
        return self._body.plan

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
        check_same(self.model, copied)
        self._body.copies.append(copied)

    def step(self, *optimizers: Optimizer) -> Shrinkage | None:
        """Call after every optimizer step: now and then, removes closed units."""
        self._check_running()
        self.steps += 1
        if self.controller is not None:
            return self._follow_(self.controller, optimizers)
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
        return self._remove_(self._patience.look(), optimizers)

    def finalize(self, *optimizers: Optimizer) -> ModuleT:
        """Remove all closed units, fold the gates away, and hand the model back.

        The model is the user's own object, of its own class, with its own names, plain
        and small; in eval mode it computes what it did before.

        Args:
            *optimizers: Give them to train the model further.
        """
        self._check_running()
        if are_finite(dict(self.model.named_parameters())):
            if self.controller is not None:
                self._meet_(self.controller, optimizers)
            closed = {name: ~gate.is_open() for name, gate in self.gates.items()}
            self._remove_(closed, optimizers)
        self._body.finish_()
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
                name: (self._body.kept[name], placed.present_units(gate).tolist())
                for name, gate in self.gates.items()
            },
            "looks": {n: looks.tolist() for n, looks in self._patience.looks.items()},
            "steps": self.steps,
            "history": [record.to_dict() for record in self.history],
            "budget": self.controller and self.controller.state_dict(),
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
        saved = read_state(
            state, self.groups, {unit.name: unit for unit in self.units()}
        )
        check_same_budget(state.get("budget"), self.controller)
        self._cut_(saved.needed, saved.closed, optimizers, verify=False)
        self._patience.looks.update(saved.looks)
        self.steps, self.history = saved.steps, list(saved.history)
        if self.controller is not None:
            self.controller.load_state_dict(state["budget"])
            self._strengths = self._compute_strengths()

    def _follow_(
        self, controller: Controller, optimizers: Sequence[Optimizer]
    ) -> Shrinkage | None:
        """Take the next step on the way to a budget."""
        if not controller.is_due(self.steps):
            return None
        if not are_finite(dict(self.model.named_parameters())):
            return None
        look, record = controller.look(self.steps), None
        if look.closed is not None:
            record = self._remove_(look.closed, optimizers)
            controller.settle_()
            self._strengths = self._compute_strengths()
        if look.met is not None and self._on_budget is not None:
            self._on_budget(look.met, self._body.plain_copy())
        return record

    def _meet_(self, controller: Controller, optimizers: Sequence[Optimizer]) -> None:
        """Meet a budget at the end of a run that was too short for it."""
        closed = controller.finish()
        if closed is None:
            return
        self._remove_(closed, optimizers)
        controller.settle_()
        warnings.warn(
            f"the budget was met only now, after {self.steps} steps, and nothing has "
            "recovered from it. Give it the number of steps that you train for: "
            f"`Budget(..., steps={max(1, self.steps)})`.",
            stacklevel=3,
        )

    def _remove_(
        self, closed: Mapping[str, Units], optimizers: Sequence[Optimizer]
    ) -> Shrinkage | None:
        wide = {n: self._round_up(n, units.cpu()) for n, units in closed.items()}
        needed = self._body.needed(wide)
        if all(bool(units.all()) for units in needed.values()):
            return None
        found = self._cut_(needed, wide, optimizers)
        warn_of_broken_kernels(self.model)
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
        kept, found = self._body.cut_(needed, closed, optimizers, verify=verify)
        for name, units in kept.items():
            self._patience.keep_(name, units)
            if self.controller is not None:
                self.controller.keep_(name, units)
        self._strengths = self._compute_strengths()
        return found

    def shape(self, found: Certificate | None = None) -> Shrinkage:
        """What is left of the model now."""
        return self._body.shape(self.steps, found)

    def _round_up(self, name: str, closed: Units) -> Units:
        """Keep the most promising closed units, where widths have to be multiples."""
        open_units = int((~closed).sum())
        width = -(-open_units // self._round_to) * self._round_to
        score = self.gates[name].prob_open().detach().cpu()
        return ~widen(~closed, width, score)

    def units(self) -> list[PruneGroup]:
        """What each gate can remove, by the name of the gate, at its present size."""
        return self._body.units()

    def _compute_strengths(self) -> dict[str, float]:
        if self.controller is not None:
            return self.controller.strengths
        units = self.units()
        return {u.name: strength_of(self._strength, u) or 0.0 for u in units}

    def _check_running(self) -> None:
        if self._is_finished:
            raise FinishedError(
                "this pruner was finalized: its model is plain and has no gates.\n"
                "To prune it further, make a new `Pruner` for it."
            )
