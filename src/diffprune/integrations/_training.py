"""What every trainer needs: the penalty's gradient, and gates that do not decay.

A trainer owns the loss and the optimizer. The penalty is added as a gradient, once per
optimizer step, however many batches it took. Gates are set apart only while an
optimizer steps, so that schedulers and checkpoints see it as the user made it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from diffprune._budget import Budget
from diffprune._core.door import check_given
from diffprune._pruner import Pruner
from diffprune._pruner.setup import REOPEN, check_options, check_reopen
from diffprune._pruner.trained_by import APART
from diffprune._surgery.optimizer_state import held_by
from diffprune.errors import ArgumentError

_OURS = "_diffprune_set_apart"


def check_pruner_options(options: Mapping[str, object]) -> None:
    """Refuse options that the pruner would refuse later, when training begins.

    Raises:
        UnknownNameError: If there is no such option.
        ArgumentError: If one cannot be meant, or the trainer gives it itself.
    """
    if "model" in options:
        raise ArgumentError("`model=` is no option here: the trainer has the model.")
    check_given(Pruner.__init__, options)
    given: dict[str, Any] = {n: v for n, v in options.items() if v is not None}
    asked = {name: given.get(name) for name in ("strength", "budget", "on_budget")}
    when = {name: given.get(name) for name in ("remove_every", "reopen", "patience")}
    check_options(**asked, steps=given.get("steps"), **when)
    check_reopen(given.get("reopen", REOPEN))


def check_processes(processes: int, kind: str, *, is_data_parallel: bool) -> None:
    """Refuse several processes that do not each have the whole model.

    Args:
        processes: How many train it.
        kind: What the trainer calls the way in which they share it.
        is_data_parallel: Whether that is `DistributedDataParallel`.

    Raises:
        ArgumentError: If it is another way.
    """
    if processes > 1 and not is_data_parallel:
        raise ArgumentError(
            f"{processes} processes train this model by {kind}, and removals follow "
            "`DistributedDataParallel` only.\nUse that, or prune with one process."
        )


def add_penalty_(
    pruner: Pruner[Any], optimizers: Iterable[Optimizer], scale: float = 1.0
) -> float:
    """Add the gradient of the penalty to the gates that some optimizers train.

    Args:
        pruner: The pruner.
        optimizers: Those that are about to step.
        scale: What gradients are multiplied by at this moment.

    Returns:
        The penalty.
    """
    held = held_by(optimizers)
    gates = [p for p in gate_parameters(pruner) if p in held]
    with torch.enable_grad():
        penalty = pruner.penalty()
    if gates and not penalty.is_leaf:  # one, if nothing is to be pushed
        found = torch.autograd.grad(penalty * scale, gates, materialize_grads=True)
        for parameter, gradient in zip(gates, found, strict=True):
            _accumulate_(parameter, gradient)
    return float(penalty.detach())


def gate_parameters(pruner: Pruner[Any]) -> list[nn.Parameter]:
    """What is trained of the gates in the model; nothing once they are folded away."""
    return pruner.parameter_groups()[1]["params"]


def shares_left(pruner: Pruner[Any]) -> dict[str, float]:
    """What is left of the model, as shares of the whole, by the names in a log."""
    now, dense = pruner.shape(), pruner.dense
    return {
        "diffprune/macs": now.macs / dense.macs,
        "diffprune/parameters": now.parameters / dense.parameters,
    }


def check_held(pruner: Pruner[Any], optimizers: Sequence[Optimizer]) -> None:
    """Refuse optimizers that do not train the gates.

    Raises:
        ArgumentError: If one does not.
    """
    held = held_by(optimizers)
    if any(p not in held for p in gate_parameters(pruner)):
        raise ArgumentError(
            "no optimizer trains the gates. Build it from all parameters of the model, "
            "after it got its gates: leave that to the trainer, or type "
            "`pruner.parameter_groups(lr=...)`."
        )


def set_gates_apart_(
    pruner: Pruner[Any], optimizer: Optimizer, lr_scale: float = 1.0
) -> None:
    """Let an optimizer train gates without decay, whatever groups they are in.

    While it steps, gates are a group of their own; afterwards its groups are as before.

    Args:
        pruner: The pruner; removals may replace its gates.
        optimizer: One that trains them.
        lr_scale: Their learning rate, as a multiple of that of the group they are in.
    """

    def before(optimizer: Optimizer, *_: object) -> None:
        _join_(optimizer)  # if the last step failed
        gates = set(gate_parameters(pruner))
        _split_(optimizer, gates, lr_scale)

    def after(optimizer: Optimizer, *_: object) -> None:
        _join_(optimizer)

    vars(optimizer)[APART] = True
    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def with_steps(budget: object, steps: float) -> Any:  # noqa: ANN401 - as it was given
    """Budgets that do not say how long training takes, and the trainer knows.

    Args:
        budget: What a user gave: a budget, several, or None.
        steps: Optimizer steps of the training; infinite if nobody knows.
    """
    if isinstance(budget, Budget):
        is_known = budget.steps is not None or steps in (float("inf"), -1)
        return budget if is_known else replace(budget, steps=int(steps))
    if isinstance(budget, Sequence):
        return [with_steps(one, steps / len(budget)) for one in budget]
    return budget


def _split_(optimizer: Optimizer, gates: set[nn.Parameter], lr_scale: float) -> None:
    for number, group in [*enumerate(optimizer.param_groups)]:
        apart = [p for p in group["params"] if p in gates]
        if apart:
            order = group["params"]
            group["params"] = [p for p in order if p not in gates]
            options = {**group, "params": apart, _OURS: (number, order)}
            options |= {"lr": group["lr"] * lr_scale} if "lr" in group else {}
            options |= {"weight_decay": 0.0} if "weight_decay" in group else {}
            optimizer.param_groups.append(options)


def _join_(optimizer: Optimizer) -> None:
    """Put gates back where they were, in the same order."""
    while _OURS in optimizer.param_groups[-1]:
        number, order = optimizer.param_groups.pop()[_OURS]
        optimizer.param_groups[number]["params"] = order


def _accumulate_(parameter: nn.Parameter, gradient: torch.Tensor) -> None:
    gradient = gradient.to(parameter.dtype)
    old = parameter.grad
    parameter.grad = gradient if old is None else old + gradient
