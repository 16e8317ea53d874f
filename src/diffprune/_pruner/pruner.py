"""The pruner: gates on any model, and closed units removed while it trains.

The one place where gates, groups and surgery meet.
"""

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from diffprune._budget import Budget
from diffprune._core.door import door
from diffprune._core.modules import check_has_values
from diffprune._core.randomness import torch_forked
from diffprune._core.shown import Shown
from diffprune._core.snapshot import all_or_nothing
from diffprune._core.types import Amount, Count, Float, Int
from diffprune._graph import ExampleInputs, Groups, Heads, Op, PruneGroup, Rule
from diffprune._pruner.added_gates import put_back
from diffprune._pruner.budget_run import BudgetRun
from diffprune._pruner.compiled_code import forget_compiled_code
from diffprune._pruner.data_parallel import keep_up_to_date_
from diffprune._pruner.final_check import certify_end
from diffprune._pruner.gated_model import RemovalRecord, find_copy
from diffprune._pruner.known_torch_bugs import warn_of_broken_kernels
from diffprune._pruner.measuring import Measuring
from diffprune._pruner.norm_statistics import NormStatistics
from diffprune._pruner.pickling import check_pickles, first_model
from diffprune._pruner.placement import Keep
from diffprune._pruner.processes import Processes, fingerprints
from diffprune._pruner.removal_policy import RemovalPolicy
from diffprune._pruner.setup import (
    PATIENCE,
    REMOVE_EVERY,
    REOPEN,
    Budgets,
    Gates,
    Schedule,
    check_model,
    check_options,
    check_reopen,
    check_same_budget,
    default_gate,
    make_controller,
    make_gated_model_,
)
from diffprune._pruner.state import read_state
from diffprune._pruner.strengths import Scheduled, Strength, Strengths
from diffprune._pruner.summary import summarise
from diffprune._pruner.trained_by import (
    add_gates_,
    check_not_training,
    check_optimizers,
)
from diffprune._surgery.optimizer_state import check_trains
from diffprune._surgery.plan import Plan
from diffprune.errors import FinishedError
from diffprune.gates import GateLike
from diffprune.gates.penalty import named_gates, parameter_groups

if TYPE_CHECKING:
    from diffprune._pruner.sharded import Sharding

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Pruner(Generic[ModuleT]):
    """Makes a model smaller while it trains.

    A pruner finds what can be removed from a model and puts a gate on it. It removes
    the units that gates close from the model, the gates and the optimizer. If the model
    already has gates (`dp.Gate` layers), the pruner uses these and adds none.

    Args:
        model: Any module that `torch.export` can trace. It is changed in place and
            stays the same object.
        example_inputs: A tensor, a tuple, or a dict of keyword arguments.
        strength: *How hard*: the price of an open unit. It is a number (start with
            1e-4), a function of the group (`by_macs`, `by_parameters`), or a dict of
            either by name pattern. Groups that no pattern matches are left whole.
        steps: If it is given, `strength` is a function of progress, such as `lambda
            progress: 1e-4 * progress`. Progress is 0 at first and 1 after so many
            steps. The function returns any of the above. What it returns at first
            decides which groups are left whole.
        budget: What the model may cost in the end. A list of budgets is met in turn,
            from the largest to the smallest. Give either a budget or a strength.
        freeze: *Where*: names or patterns of layers to leave as they are.
        heads: Whether attention loses `"whole"` heads, units of their `"head_dim"`, or
            `"both"`.
        rules: Rules for ops that have none.
        tie: Sets of groups that keep the same units. Each set is a list of names or
            patterns: `tie=[["layers.*.fc1"]]`.
        gate: A function that makes the gate of a group, any `diffprune.gates.GateLike`;
            or a dict of such functions by name pattern.
        remove_every: *When*: the pruner looks for closed units after every so many
            steps (by default 100), or when a function of the step number returns True.
        reopen: Closed units of gates with noise or competition may open again. They are
            removed once the probability that they open in the next step is below this
            (by default 0.05). A closed unit of a sigmoid gate without noise cannot open
            again, and is removed at once.
        patience: Such units are also removed once they were found closed so many times
            in a row (by default 30).
        round_to: Every width that is cut is a multiple of this.
        on_removal: A function that is called with every `RemovalRecord`.
        on_budget: A function that is called with every budget, once the model has met
            it and recovered, and with a copy of the model without gates.
        on_unknown_state: What to do about an optimizer that holds its state in a form
            that cannot be cut (8-bit, factorised, flattened): `"refuse"` the removal,
            or `"reset"` its state of the parameters that are cut.

    Raises:
        ArgumentError: If not exactly one of `strength` and `budget` is given, or if an
            option would be ignored: a budget decides itself when units leave, so
            `remove_every`, `reopen` and `patience` cannot be given with it. The model
            is as it was.

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

    @door
    def __init__(  # noqa: PLR0913 - every default works
        self,
        model: ModuleT,
        example_inputs: ExampleInputs,
        *,
        strength: Strength | Scheduled | None = None,
        steps: Count | None = None,
        budget: Budgets | None = None,
        freeze: Sequence[str] = (),
        heads: Heads = "both",
        rules: Mapping[Op, Rule] | None = None,
        tie: Sequence[Sequence[str]] = (),
        gate: Gates = default_gate,
        remove_every: Schedule | None = None,
        reopen: float | None = None,
        patience: Count | None = None,
        round_to: Count = 1,
        on_removal: Callable[[RemovalRecord], None] | None = None,
        on_budget: Callable[[Budget, ModuleT], None] | None = None,
        on_unknown_state: Literal["refuse", "reset"] = "refuse",
    ) -> None:
        when = {"remove_every": remove_every, "reopen": reopen, "patience": patience}
        check_options(strength, budget, on_budget, steps, **when)
        self._remove_every = REMOVE_EVERY if remove_every is None else remove_every
        reopen = REOPEN if reopen is None else reopen
        patience = PATIENCE if patience is None else patience
        check_reopen(reopen)
        check_model(model)
        self.steps = 0
        self._options = {
            "strength": strength,
            "steps": steps,
            "budget": budget,
            "freeze": freeze,
            "heads": heads,
            "rules": rules,
            "tie": tie,
            "gate": gate,
            **when,
            "round_to": round_to,
            "on_removal": on_removal,
            "on_budget": on_budget,
            "on_unknown_state": on_unknown_state,
        }
        self._asked = Strengths(strength, steps)
        self._on_removal = on_removal
        self._is_finished = False
        self._sharding: Sharding | None = None
        self._checked: tuple[int, ...] = ()
        placed = [t for gate in named_gates(model).values() for t in _tensors(gate)]
        with all_or_nothing(model, overwritten=placed):
            self._gated = make_gated_model_(
                model,
                example_inputs,
                strength=None if strength is None else self._asked.at(0),
                gate=gate,
                freeze=freeze,
                heads=heads,
                rules=rules,
                tie=tie,
                round_to=round_to,
            )
            self._gated.resets_state = on_unknown_state == "reset"
            self._policy = RemovalPolicy(self.gates, self.kept, reopen, patience)
            self._measuring = Measuring(self._gated)
            self._norms = NormStatistics(model)
            self.dense = self.shape()
            self.controller = (
                None
                if budget is None
                else make_controller(
                    budget, self._gated, self._measuring.orders, round_to
                )
            )
            self._units = self.units()
            self._asked.check(self._units, [*self.groups.sizes, *self.gates])
            self._strengths = self._compute_strengths()
            self._budget_run = self._make_budget_run(on_budget)
            if self._budget_run is not None:
                self._budget_run.listen_(self.steps)

    @property
    def model(self) -> ModuleT:
        """The model at its present size."""
        return self._gated.model

    @property
    def example_inputs(self) -> ExampleInputs:
        """The inputs that removals are checked on, on the device of the model."""
        return self._gated.example_inputs

    @property
    def gates(self) -> dict[str, GateLike]:
        """The gates, by name."""
        return self._gated.gates

    @property
    def kept(self) -> Mapping[str, Int[Tensor, " left"]]:
        """The units of each gate that are left, by their first numbers."""
        return self._gated.kept

    @property
    def history(self) -> list[RemovalRecord]:
        """A record of each removal, and of what it has left."""
        return self._gated.history

    @property
    def groups(self) -> Groups:
        """The groups of the model, at their present sizes."""
        return self._gated.groups

    @property
    def plan(self) -> Plan:
        """One plan that does what all removals so far have done."""
        return self._gated.plan

    @property
    def worth(self) -> dict[str, Float[Tensor, " units"]]:
        """What the units of each gate are worth: running squares of gate gradients.

        One is the mean over all units; zeros mean that nothing is known yet.
        """
        return self._measuring.squares()

    @door
    def parameter_groups(
        self,
        *,
        lr: Amount | Float[Tensor, ""] | None = None,
        gate_lr: Amount | Float[Tensor, ""] | None = None,
        weight_decay: Amount | None = None,
    ) -> list[dict[str, Any]]:
        """Make optimizer groups in which gates have no weight decay.

        Args:
            lr: Learning rate; by default that of the optimizer.
            gate_lr: Learning rate of the gates; by default `lr`.
            weight_decay: For everything but gates; by default that of the optimizer.
        """
        return parameter_groups(
            self.model, lr=lr, gate_lr=gate_lr, weight_decay=weight_decay
        )

    def penalty(self) -> Float[Tensor, ""]:
        """The expected number of open units, each times its strength.

        Add it to the loss. With a budget it is zero.
        """
        self._check_running()
        return self._gated.pooled.penalty(self._strengths)

    @door
    def add_copy(self, model: nn.Module) -> None:
        """Cut this copy of the model too: a moving average, a teacher.

        Args:
            model: Made with `copy.deepcopy(pruner.model)`, or a wrapper that holds such
                a copy as `module`: torch's `AveragedModel`, timm's `ModelEmaV3`.

        Raises:
            ArgumentError: If it is not a copy of the model as it is now.
        """
        check_has_values(model)
        self._gated.copies.append(find_copy(self.model, model))

    @door
    def add_wrapper(self, wrapper: DistributedDataParallel) -> None:
        """Let a wrapper follow changes of the model before the wrapper is first called.

        After its first call, a wrapper follows removals without this. Call it if the
        model was wrapped before a checkpoint is loaded.

        Args:
            wrapper: A wrapper around the model as it is now.

        Raises:
            ArgumentError: If it holds other parameters, or cannot follow.
        """
        keep_up_to_date_(wrapper, self._processes)

    @door
    def shard_(self, shard: Callable[[Any], object]) -> None:
        """Divide the model among all processes, and again after every removal.

        Gates are not divided. Make the optimizer after this.

        Args:
            shard: Divides the model it is given: `fully_shard`, or a function that
                calls it for some layers first.

        Raises:
            ArgumentError: If there are no processes, or the function does not divide
                the model among all of them.
        """
        from diffprune._pruner.sharded import Sharding  # noqa: PLC0415 - slow to import

        self._check_running()
        self._sharding = Sharding.of_(
            self.model, self._placed(), shard, self._processes
        )

    @door
    def add_to(
        self,
        optimizer: Optimizer,
        *schedulers: LRScheduler,
        lr: Amount | None = None,
    ) -> None:
        """Let an optimizer that was made before the pruner train the gates, too.

        The gates become a group of their own, without weight decay.

        Args:
            optimizer: An optimizer of the parameters of the model.
            *schedulers: The schedulers of the optimizer. They scale the learning rate
                of the gates, too.
            lr: Learning rate of the gates; by default that of the first group. It is
                that where the schedule of this group is at its highest, wherever the
                schedule is now.

        Raises:
            ArgumentError: If the optimizer already holds gates; nothing has changed.

        Examples:
            >>> import torch
            >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> pruner = Pruner(model, torch.rand(4, 3), strength=1e-3)
            >>> pruner.add_to(optimizer, lr=0.5)
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.5]
        """
        self._check_running()
        check_trains(optimizer, self.model)
        of_gates = self.parameter_groups()[1]["params"]
        names = {p: name for name, p in self.model.named_parameters()}
        gates = {names[parameter]: parameter for parameter in of_gates}
        with all_or_nothing(optimizer, *map(vars, schedulers)):
            add_gates_(optimizer, schedulers, gates, lr)

    def step(self, *optimizers: Optimizer) -> RemovalRecord | None:
        """Remove closed units if it is time to; call it after every optimizer step.

        Args:
            *optimizers: All optimizers that train the model, or wrappers around them.

        Returns:
            A record if units were removed, else None.

        Raises:
            RemovalError: If outputs would change; everything is as it was before.
            ArgumentError: If an optimizer is missing or cannot follow; nothing has
                changed.
            ProcessError: If another process that trains the model failed, has other
                parameters, or does not answer; nothing has changed.
        """
        self._check_running()
        self._check_optimizers(optimizers)
        now, checked = self.steps + 1, tuple(map(id, optimizers))
        self._measuring.end_step()
        if self._budget_run is not None:
            self._budget_run.listen_(now)
        if not self._is_due(now):
            self.steps, self._checked = now, checked
            self._norms.step_()
            if self._asked.is_scheduled:
                self._strengths = self._compute_strengths()
            return None
        # The last removal for a budget folds the gates into the weights.
        with self._removing(optimizers, may_fold=self._budget_run is not None):
            self.steps, self._checked = now, checked
            record = (
                self._remove_closed_(optimizers)
                if self._budget_run is None
                else self._budget_run.follow_(optimizers, now)
            )
        if record is None:
            self._norms.step_()
        return record

    def remove_closed_(self, *optimizers: Optimizer) -> RemovalRecord | None:
        """Remove now all units that are closed and cannot open again.

        Args:
            *optimizers: All optimizers that train the model; none if nothing does.

        Returns:
            A record if units were removed, else None.

        Raises:
            RemovalError: If outputs would change; everything is as it was before.
            ArgumentError: If an optimizer is missing or cannot follow; nothing has
                changed.
        """
        self._check_running()
        if not optimizers:
            check_not_training(self.model)
        with self._removing(optimizers, may_fold=False):
            return self._remove_closed_(optimizers)

    def finalize(self, *optimizers: Optimizer) -> ModuleT:
        """Remove all closed units, fold the gates into the weights, return the model.

        The model is the object that the pruner was made with. It has its own class and
        its own parameter names, and no gates. In eval mode it computes what it did
        before. That is checked first: on the example inputs and on other inputs, with
        these weights and with scrambled ones, in eval mode, and in train mode unless
        gates draw noise there.

        Args:
            *optimizers: The optimizers that train the model, to train it further.

        Raises:
            RemovalError: If outputs would change; everything is as it was before.
            ArgumentError: If an optimizer cannot follow; nothing has changed.
        """
        self._check_running()
        model = self.model  # asked for now: what is done last may not fail
        with self._removing(optimizers, may_fold=True):
            is_finite = self._gated.is_folded or self._gated.is_finite()
            if is_finite and self._budget_run is not None:
                self._budget_run.finish_(optimizers, self.steps)
            if is_finite and not self._gated.is_folded:
                cut = self._gated.cut(self._processes.decide(self._open))
                found = None if self._gated.is_folded else certify_end(self._gated, cut)
                self._after_removal_(self._gated.keep_(cut, optimizers, self.steps))
                self._gated.plan = replace(self._gated.plan, certificate=found)
            self._measuring.forget_()
            self._gated.fold_(optimizers)
            self._gated.release_()
            self._is_finished = True
        if self._sharding is not None:
            self._sharding.end_(model, optimizers)
        return model

    def __deepcopy__(self, memo: dict[int, Any]) -> "Pruner[ModuleT]":
        """Copy model and pruner together."""
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        for name, value in vars(self).items():
            vars(copied)[name] = copy.deepcopy(value, memo)
        return copied

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickle model and pruner together; an optimizer has a state of its own.

        Raises:
            ArgumentError: If some argument of the pruner cannot be pickled.
        """
        self._check_running()
        model = first_model(self._gated)
        parts = {
            **self._options,
            "model": model,
            "example_inputs": self._gated.example_inputs,
        }
        check_pickles(parts)
        return _unpickled, (parts, self.state_dict(), self.model.state_dict())

    def __repr__(self) -> str:
        now, dense = self.shape(), self.dense
        return (
            f"Pruner({type(self.model).__name__}: {now.parameters:,} of "
            f"{dense.parameters:,} parameters, {now.macs:,} of {dense.macs:,} MACs, "
            f"{len(self.gates)} gates, step {self.steps})"
        )

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>{self.summary()._repr_html_()}"

    def summary(self) -> Shown:
        """A table that says for each group what is left of it, and what that costs.

        The table is a string. A notebook shows it as an HTML table.
        """
        asked = [] if self.controller is None else self.controller.report()
        units = self._gated.units()
        now, dense = self.shape(), self.dense
        return summarise(self.gates, units, now, dense, asked, self.worth)

    def shape(self) -> RemovalRecord:
        """What is left of the model now."""
        return self._gated.shape(self.steps)

    def units(self) -> list[PruneGroup]:
        """What each gate can remove, by the name of the gate, at its present size."""
        return list(self._gated.units().values())

    def state_dict(self) -> dict[str, Any]:
        """The state that a pruner of a fresh model needs to continue.

        Parameters are not in it: they are in the `state_dict` of the model, gates
        included. Shortly before units leave for a budget, the state also holds what was
        measured to choose them.
        """
        return {
            "plan": self.plan.to_json(),
            "units": dict(self.dense.units),
            "kept": _copies(self.kept),
            "present": _copies(self._gated.present()),
            "folded": self._gated.is_folded,
            "looks": _copies(self._policy.looks),
            "squares": _copies(self._measuring.squares()),
            "measuring": self._measuring.state_dict(),
            "norms": self._norms.state_dict(),
            "steps": self.steps,
            "history": [record.to_dict() for record in self.history],
            "budget": self.controller and self.controller.state_dict(),
        }

    @door
    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Cut a gated model, and optimizers for it, to the shapes of a run.

        Then load the model's and the optimizers' own states. A state of an earlier
        moment of the same run brings units back.

        Args:
            state: What `state_dict` returned.
            *optimizers: All that train the model.

        Raises:
            ArgumentError: If the state is that of another model; nothing has changed.
        """
        self._check_running()
        gated = self._gated
        first = gated.first_groups
        saved = read_state(state, first, gated.placement.units(first))
        check_same_budget(state.get("budget"), self.controller)
        is_folded = bool(state.get("folded", False))
        is_unfolded = gated.is_folded and not is_folded
        is_other = is_unfolded or not self._has_units_of(state)
        # Weights are overwritten only where units change or gates are folded away.
        weights = gated.tensors() if is_other or is_folded != gated.is_folded else []
        with self._whole(optimizers), self._all_or_nothing(optimizers, weights):
            if is_other:
                self._measuring.forget_()  # of readers that had another shape
                gated.keep_only_(saved.gates, saved.atoms, optimizers)
            gated.plan = replace(gated.plan, certificate=saved.certificate)
            gated.history[:] = saved.history
            self._policy.looks.update(saved.looks)
            self.steps = saved.steps
            gated.pooled.slopes.load_(saved.squares)
            if self.controller is not None:
                self.controller.load_state_dict(state["budget"])
            self._units = self.units()
            self._strengths = self._compute_strengths()
            self._measuring.load_state_dict(state.get("measuring"))
            self._norms.load_state_dict(state.get("norms"))
            if is_folded:
                gated.fold_(optimizers, is_checked=False)
            if self._budget_run is not None:
                self._budget_run.listen_(self.steps)

    def _is_due(self, step: int) -> bool:
        """Whether there is something to do after so many steps."""
        if self._budget_run is not None:
            return self._budget_run.is_due(step)
        every = self._remove_every
        return bool(every(step)) if callable(every) else step % every == 0

    def _remove_closed_(self, optimizers: Sequence[Optimizer]) -> RemovalRecord | None:
        if self._gated.is_folded or not self._gated.is_finite():
            return None
        keep = self._policy.keep()  # on all processes, because it counts
        cut = self._gated.cut(self._processes.decide(lambda: keep))
        record = self._gated.keep_(cut, optimizers, self.steps)
        self._after_removal_(record)
        return record

    def _make_budget_run(
        self, on_budget: Callable[[Budget, ModuleT], None] | None
    ) -> BudgetRun | None:
        if self.controller is None:
            return None
        return BudgetRun(
            self._gated,
            self.controller,
            self._measuring,
            self._norms,
            self._after_removal_,
            on_budget,
        )

    def _has_units_of(self, state: Mapping[str, Any]) -> bool:
        """Whether exactly the units of a state are left."""
        if self.plan != Plan.from_json(state["plan"]):
            return False
        own = {"kept": self.kept, "present": self._gated.present()}
        return all(
            torch.equal(units.cpu(), torch.as_tensor(state[key][name]))
            for key, held in own.items()
            for name, units in held.items()
        )

    @property
    def _processes(self) -> Processes:
        return self._gated.processes

    def _agreeing(self) -> AbstractContextManager[None]:
        """Compare all processes at the end of a block."""
        return self._processes.agreeing(
            lambda: fingerprints(
                dict(self.model.named_parameters()),
                [self.steps, {n: units.tolist() for n, units in self.kept.items()}],
            )
        )

    def _open(self) -> dict[str, Keep]:
        return {name: gate.is_open().cpu() for name, gate in self.gates.items()}

    def _whole(self, optimizers: Sequence[Optimizer]) -> AbstractContextManager[None]:
        """Have the whole model in this process, though it may be divided."""
        if self._sharding is None:
            return nullcontext()
        return self._sharding.whole(self.model, self._placed, optimizers)

    def _placed(self) -> list[GateLike]:
        """The gates that the model has."""
        return [] if self._gated.is_folded else [*self.gates.values()]

    @contextmanager
    def _removing(
        self, optimizers: Sequence[Optimizer], *, may_fold: bool
    ) -> Generator[None]:
        """Remove units in all processes, or change nothing in any."""
        put_back(self.model)
        with self._whole(optimizers):
            folded = self._gated.tensors() if may_fold else []
            with self._all_or_nothing(optimizers, folded), self._agreeing():
                yield

    def _all_or_nothing(
        self, optimizers: Sequence[Optimizer], overwritten: Sequence[Tensor] = ()
    ) -> AbstractContextManager[object]:
        """Leave everything as it was if a removal fails, or a callback does.

        What closes units writes into the gates; everything else is replaced.
        """
        gates = [t for gate in self.gates.values() for t in _tensors(gate)]
        return all_or_nothing(self, *optimizers, overwritten=[*gates, *overwritten])

    def _check_optimizers(self, optimizers: Sequence[Optimizer]) -> None:
        """Look once at each set of optimizers."""
        if not optimizers or tuple(map(id, optimizers)) != self._checked:
            put_back(self.model)
            cut = {place.tensor for group in self.groups for place in group.axes}
            found = self.model.named_parameters(remove_duplicate=False)
            parameters = {name: p for name, p in found if name in cut}
            gates = {} if self._gated.is_folded else self.gates
            check_optimizers(optimizers, parameters, gates)

    def _after_removal_(self, record: RemovalRecord | None) -> None:
        """Push on what is left, and tell the user."""
        self._units = self.units()
        self._strengths = self._compute_strengths()
        if record is not None:
            forget_compiled_code()
            warn_of_broken_kernels(self.model)
            if self._on_removal is not None:
                self._on_removal(record)

    def _compute_strengths(self) -> dict[str, float]:
        return self._asked.of(self._units, self.steps)

    def _check_running(self) -> None:
        if self._is_finished:
            raise FinishedError(
                "this pruner was finalized: its model is plain and has no gates.\n"
                "To prune it further, make a new `Pruner` for it."
            )


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _tensors(gate: GateLike) -> list[Tensor]:
    assert isinstance(gate, nn.Module)  # noqa: S101 - checked when it was made
    return [*gate.parameters(), *gate.buffers()]


def _unpickled(
    parts: Mapping[str, Any], state: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> Pruner[Any]:
    """Trace the model again, and go on from there. Random numbers are as they were."""
    with torch_forked():
        pruner = Pruner[Any](**parts)
    pruner.load_state_dict(state)
    pruner.model.load_state_dict(weights)
    return pruner
