"""Rules for losses, which some models compute in their own forward."""

from collections.abc import Mapping
from typing import Final

import torch

from diffprune._graph.ops.indexing import PICKED
from diffprune._graph.rule_api import Anything, Axes, Call, Op, OpRule, Value

aten = torch.ops.aten
_NONE, _SUM = 0, 2  # what an op is told to do with the losses of all elements


def distance(
    call: Call, x: Value, target: Value, reduction: int = 1, *_form: Anything
) -> Axes:
    """|x - y|, squared or the like: zeros of both are no distance."""
    out = loss(call, x, target, reduction=_NONE)
    return out if reduction == _NONE else _reduced(call, x, target, reduction)


def loss(
    call: Call,
    x: Value,
    target: Value,
    *weights: Value | None,
    reduction: int = 1,
) -> Axes:
    """f(x, y) * w, which is not zero where x and y are; weights broadcast."""
    given = [value for value in (target, *weights) if value is not None]
    for value in given:
        for mine, theirs in zip(reversed(x.axes), reversed(value.axes), strict=False):
            if theirs:
                call.unify(mine, theirs)
    return x.axes if reduction == _NONE else _reduced(call, x, target, 1)


def binary(
    call: Call,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
) -> Axes:
    """Cross entropy of yes and no."""
    return loss(call, x, target, weight, reduction=reduction)


def binary_of_logits(
    call: Call,
    x: Value,
    target: Value,
    weight: Value | None = None,
    positive: Value | None = None,
    reduction: int = 1,
) -> Axes:
    """The same, of numbers that a sigmoid would map to probabilities."""
    return loss(call, x, target, weight, positive, reduction=reduction)


def _reduced(call: Call, x: Value, target: Value, reduction: int) -> Axes:
    """A sum is blind to what is zero in both; a mean counts it."""
    for value in (x, target):
        for dim, axis in enumerate(value.axes):
            if reduction == _SUM:
                call.reduce(value, dim)
            elif call.is_used:
                call.freeze(axis, "a statistic is taken over it")
    return ()


def of_classes(
    call: Call,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    *_ignored: Anything,
) -> list[Axes]:
    """-x[n, y[n], ...], and how much all of it weighs: classes are told by number."""
    classes = min(1, len(x.axes) - 1)
    call.freeze(x.axes[classes], PICKED)
    call.match(x.axes[classes], weight)
    others = [axis for dim, axis in enumerate(x.axes) if dim != classes]
    for axis, theirs in zip(others, target.axes, strict=True):
        call.unify(axis, theirs)
    if reduction == _NONE:
        return [tuple(others), ()]
    for axis in others if call.is_used else ():
        call.freeze(axis, "a statistic is taken over it")
    return [(), ()]


_DISTANCES: Final = (aten.mse_loss, aten.smooth_l1_loss, aten.huber_loss)
_OF_CLASSES: Final = (aten.nll_loss_forward, aten.nll_loss2d_forward)

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys(_DISTANCES, OpRule(distance)),
    aten.binary_cross_entropy: OpRule(binary),
    aten.binary_cross_entropy_with_logits: OpRule(binary_of_logits),
    **dict.fromkeys(_OF_CLASSES, OpRule(of_classes)),
}
