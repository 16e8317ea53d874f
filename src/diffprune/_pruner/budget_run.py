"""What a pruner with budgets does: units leave when it is time, and the rest recovers.

The controller says when and closes what has to go. Here that is removed, what read it
is refitted where that pays, and the gates are folded away in the end. The first of
several processes decides, and all others follow.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

from torch.optim import Optimizer

from diffprune._budget import Budget, Controller, Tick
from diffprune._core.user_warnings import warn
from diffprune._pruner.gated_model import GatedModel, RemovalRecord
from diffprune._pruner.measuring import Measuring
from diffprune._pruner.norm_statistics import NormStatistics
from diffprune._pruner.placement import Keep
from diffprune._pruner.refitting import BeforeCut, pays, refit_kept_

AfterRemoval: TypeAlias = Callable[[RemovalRecord | None], None]


@final
class BudgetRun:
    """A gated model on its way to its budgets.

    Args:
        gated: The model.
        controller: Steers its gates.
        measuring: Knows what units are worth.
        norms: The norms that learn their statistics anew once units have left.
        after_removal: Called with what is left, or with None if nothing had to go.
        on_budget: Called with every budget that is met, and with a plain copy.
    """

    def __init__(
        self,
        gated: GatedModel[Any],
        controller: Controller,
        measuring: Measuring,
        norms: NormStatistics,
        after_removal: AfterRemoval,
        on_budget: Callable[[Budget, Any], None] | None,
    ) -> None:
        self._gated, self._controller = gated, controller
        self._measuring, self._norms = measuring, norms
        self._after_removal, self._on_budget = after_removal, on_budget

    def listen_(self, step: int) -> None:
        """Measure what units are worth if some are about to leave after this step."""
        if self._controller.is_near(step):
            is_trained = self._controller.is_pretrained
            for_refit = pays(self._gated.model, is_trained=is_trained)
            self._measuring.listen_(for_refit=for_refit)

    def is_due(self, step: int) -> bool:
        """Whether there is something to do after so many steps."""
        is_measured = self._controller.may_be_early and self._gated.processes.decide(
            lambda: self._measuring.is_ready
        )
        return self._controller.is_due(step, is_measured=is_measured)

    def follow_(
        self, optimizers: Sequence[Optimizer], step: int
    ) -> RemovalRecord | None:
        """Do what is due; what is left if units were removed, else None."""
        controller = self._controller
        if controller.is_closing and not self._gated.is_finite():
            return None
        record, before = None, self._before_cut()
        tick = self._steer_(lambda: controller.tick(step))
        if tick.keep is not None:
            record = self._remove_(tick.keep, optimizers, step)
        self._after_removal(record)
        if record is not None:
            self._measuring.warn_of_ignorance()
            self._norms.forget_()
        if controller.is_settled and not self._gated.is_folded:
            self._gated.fold_(optimizers)  # nothing is decided any more
        if record is not None:
            self._refit_(before)
        self._tell_of_(tick.met)
        return record

    def finish_(self, optimizers: Sequence[Optimizer], step: int) -> None:
        """Meet the budgets that training has ended before, be there one or several."""
        is_late = False
        while (tick := self._steer_(self._controller.finish)) != Tick():
            self._tell_of_(tick.met)
            if tick.keep is None:
                continue
            record = self._remove_(tick.keep, optimizers, step)
            self._after_removal(record)
            is_late = True
            if record is None and self._controller.is_closing:
                break  # nothing is left that could go
        if is_late:
            self._warn_of_lateness(step)

    def _tell_of_(self, met: Budget | None) -> None:
        if met is not None and self._on_budget is not None:
            self._on_budget(met, self._gated.without_gates())

    def _warn_of_lateness(self, step: int) -> None:
        count = len(self._controller.budgets)
        advice = (
            f"Give {'it' if count == 1 else 'each of them'} the number of steps that "
            f"you train for: `Budget(..., steps={max(1, step // count)})`."
            if step
            else "Type `pruner.step(optimizer)` after every `optimizer.step()`."
        )
        warn(
            f"the {'' if count == 1 else 'last '}budget was met only now, after "
            f"{step} steps of the pruner, and nothing has recovered from it. {advice}"
        )

    def _steer_(self, decide: Callable[[], Tick]) -> Tick:
        """Let the first process take a step to a budget, and all others follow."""
        processes = self._gated.processes
        tick, state = processes.decide(
            lambda: (decide(), self._controller.state_dict())
        )
        if not processes.is_first:
            self._controller.follow_(state, tick.keep)
        return tick

    def _remove_(
        self, keep: Mapping[str, Keep], optimizers: Sequence[Optimizer], step: int
    ) -> RemovalRecord | None:
        """Remove what was closed."""
        cut = self._gated.cut(keep)
        record = self._gated.keep_(cut, optimizers, step)
        self._measuring.after_removal_(cut.gates)
        self._steer_(lambda: self._controller.after_removal_() or Tick())
        self.listen_(step)  # as a run does that is resumed from here
        return record

    def _before_cut(self) -> BeforeCut | None:
        """The model as it is before units leave, if it can be fitted afterwards."""
        inputs = self._measuring.inputs
        if not inputs or not self._controller.is_closing:
            return None
        whole = self._gated.without_gates()
        return BeforeCut(whole, inputs, self._controller.is_pretrained)

    def _refit_(self, before: BeforeCut | None) -> None:
        """Fit what stays to what it was, in the process that has seen inputs."""
        if before is not None and refit_kept_(self._gated, before) is not None:
            self._norms.trust_()
        self._gated.processes.copy_from_first_(self._gated.model.parameters())
