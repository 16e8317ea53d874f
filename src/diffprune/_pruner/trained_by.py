"""Whether the optimizers that a pruner is given train what it cuts, and train it well.

Whatever is wrong here would go on in silence: gates that nothing trains never close,
and parameters that no optimizer holds stop learning once they are cut.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from diffprune._core.user_warnings import warn
from diffprune._surgery.optimizer_state import (
    NAMES,
    all_optimizers,
    check_keeps_nothing_beside,
    held_by,
)
from diffprune.errors import ArgumentError
from diffprune.gates import GateLike

APART: Final = "_diffprune_sets_gates_apart"
"""Attribute of optimizers that do not decay gates, whatever group they are in."""

_ENTRIES: Final = ("params", NAMES)

_PER_GROUP: Final = re.compile(r"lrs?$|lambdas$|momentums?$")
"""Attributes of schedulers that have an entry for every group, if they are lists."""


def check_optimizers(
    given: Sequence[Any],
    parameters: Mapping[str, nn.Parameter],
    gates: Mapping[str, GateLike],
) -> None:
    """Refuse optimizers that do not train everything; warn where they decay gates.

    Args:
        given: The optimizers.
        parameters: What may be cut, by name.
        gates: By name.

    Raises:
        ArgumentError: If there is none, or a gate or a parameter is in none of them, or
            one has lists of its own that could not follow a removal.
    """
    if not given and any(p.requires_grad for p in parameters.values()):
        raise ArgumentError(
            "`step` needs the optimizer: what it cuts is cut in the optimizer too, or "
            "training would silently stop.\nType `pruner.step(optimizer)`; to remove "
            "units without training, `pruner.remove_closed_()`."
        )
    optimizers = all_optimizers(given)
    held = held_by(optimizers)
    for optimizer in optimizers:
        check_keeps_nothing_beside(optimizer, {p: n for n, p in parameters.items()})
    for name, gate in gates.items():
        if any(p.requires_grad and p not in held for _, p in gate.named_parameters()):
            raise ArgumentError(
                f"the gate of `{name}` is in no optimizer that `step` was given, so it "
                "would never close.\nMake the optimizer after the pruner, from "
                "`pruner.parameter_groups(lr=...)`; or type "
                "`pruner.add_to(optimizer)` for one that exists."
            )
    for name, parameter in parameters.items():
        if parameter.requires_grad and parameter not in held:
            raise ArgumentError(
                f"`{name}` may be cut, and is in no optimizer that `step` was given.\n"
                "Pass all that train the model: `pruner.step(first, second)`; for what "
                "is not to be trained, type `.requires_grad_(False)`."
            )
    _warn_of_decay(optimizers, gates)


def check_not_training(model: nn.Module) -> None:
    """Refuse to cut a model that is being trained, without its optimizer.

    Raises:
        ArgumentError: If a parameter has a gradient.
    """
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            raise ArgumentError(
                f"`{name}` has a gradient, so the model is being trained, and its "
                "optimizer would keep the old parameters.\nPass the optimizer; or, if "
                "training is over, call `model.zero_grad()` first."
            )


def _warn_of_decay(
    optimizers: Sequence[Optimizer], gates: Mapping[str, GateLike]
) -> None:
    of_gates = {p: name for name, g in gates.items() for _, p in g.named_parameters()}
    groups = [group for one in optimizers for group in one.param_groups]
    apart = [
        id(g) for one in optimizers if APART in vars(one) for g in one.param_groups
    ]
    for number, group in enumerate(groups):
        decayed = [
            p for p in group["params"] if p in of_gates and id(group) not in apart
        ]
        if decayed and group.get("weight_decay"):
            warn(
                f"group {number} of the optimizer has weight_decay="
                f"{group['weight_decay']} and holds the gate of "
                f"`{of_gates[decayed[0]]}`: decay pulls gates open. Build the "
                "optimizer from `pruner.parameter_groups(...)`.",
            )
            return


def add_gates_(
    optimizer: Optimizer,
    schedulers: Sequence[LRScheduler],
    gates: Mapping[str, nn.Parameter],
    lr: float | None,
) -> None:
    """Let an optimizer that exists train gates too, and its schedulers with it.

    Args:
        optimizer: The optimizer.
        schedulers: Its schedulers.
        gates: What to train, by name.
        lr: The rate of gates where its first group has its highest.

    Raises:
        ArgumentError: If it already holds one of them, or a scheduler is that of
            another optimizer.
    """
    _check_schedulers(optimizer, schedulers)
    held = held_by(all_optimizers([optimizer]))
    if any(parameter in held for parameter in gates.values()):
        raise ArgumentError(
            "the optimizer already holds gates: it was made after the pruner, and "
            "there is nothing to add."
        )
    first, count = optimizer.param_groups[0], len(optimizer.param_groups)
    highest = _highest_rate(first)
    ratio = 1.0 if lr is None or not highest else lr / highest
    own = {k: _scaled(k, v, ratio) for k, v in first.items() if k not in _ENTRIES}
    if lr is not None and not highest:
        own["lr"] = lr
    new = gates.items() if NAMES in first else gates.values()
    optimizer.add_param_group({**own, "params": [*new], "weight_decay": 0.0})
    for scheduler in _all_schedulers(schedulers):
        for name, value in vars(scheduler).items():
            is_per_group = isinstance(value, list) and len(value) == count
            if is_per_group and _PER_GROUP.search(name):
                value.append(_scaled(name, value[0], ratio))


def _check_schedulers(optimizer: Optimizer, given: Iterable[LRScheduler]) -> None:
    known = all_optimizers([optimizer])
    for scheduler in _all_schedulers(given):
        if not any(scheduler.optimizer is one for one in known):
            raise ArgumentError(
                f"{type(scheduler).__name__} schedules another optimizer.\nPass "
                "schedulers of this one: `pruner.add_to(optimizer, scheduler)`."
            )


def _highest_rate(group: Mapping[str, Any]) -> float:
    """What the learning rate of a group is multiplied with, or comes to in the end.

    A schedule may have it near zero now, as a warm-up has.
    """
    known = ("lr", "initial_lr", "max_lr")
    return max(float(group[key]) for key in known if key in group)


def _scaled(name: str, value: Any, ratio: float) -> Any:  # noqa: ANN401 - of any option
    """The same, in proportion where it is a learning rate."""
    if isinstance(value, Tensor):
        value = value.detach().clone()
    is_rate = re.search(r"(^|_)lrs?$", name) and isinstance(value, Tensor | float | int)
    return value * ratio if is_rate else value


def _all_schedulers(given: Iterable[LRScheduler]) -> list[LRScheduler]:
    """Schedulers, and those that they are made of."""
    found = list[LRScheduler]()
    for one in given:
        found.append(one)
        found += _all_schedulers(getattr(one, "_schedulers", ()))
    return found
