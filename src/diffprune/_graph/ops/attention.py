"""Rules for fused attention."""

from collections.abc import Mapping
from typing import Final

import torch

from diffprune._graph.axes import Atom, size
from diffprune._graph.ops.zero_rules import MaskT
from diffprune._graph.rule_api import (
    Anything,
    Axes,
    Call,
    Op,
    OpRule,
    Step,
    Value,
    Zeros,
)

aten = torch.ops.aten


def scaled_dot_product_attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    *_options: Anything,
    scale: float | None = None,
    **_more: Anything,
) -> Axes:
    """softmax(q[..., n, d] . k[..., m, d] * scale) @ v[..., m, e]."""
    if scale is None:
        call.freeze(
            query.axes[-1],
            "its length sets the scale of the attention",
            "Pass `scale=` to make it prunable.",
        )
    call.contract(query, -1, key, -1)
    call.unify(key.axes[-2], value.axes[-2])
    call.freeze(key.axes[-2], "a softmax is taken over it")
    heads = _share_heads(call, query, key, value)
    if mask is not None:
        scores = (*heads, query.axes[-2], key.axes[-2])
        for axis, theirs in zip(reversed(scores), reversed(mask.axes), strict=False):
            if theirs and size(theirs) == size(axis):
                call.unify(axis, theirs)
    call.multiply_adds(*heads, query.axes[-2], key.axes[-2], query.axes[-1])
    call.multiply_adds(*heads, query.axes[-2], key.axes[-2], value.axes[-1])
    call.facts.heads.extend(heads[1:])
    call.facts.inside_heads.append(query.axes[-1])
    call.facts.inside_values.append(value.axes[-1])
    return (*heads, query.axes[-2], value.axes[-1])


def _share_heads(call: Call, query: Value, key: Value, value: Value) -> Axes:
    """Tie the heads; with grouped queries a key serves several of them."""
    for other in (key, value):
        for mine, theirs in zip(query.axes[:-2], other.axes[:-2], strict=True):
            if size(mine) == size(theirs):
                call.unify(mine, theirs)
            elif theirs:
                shared, repeated = call.split(
                    mine, [size(theirs), size(mine) // size(theirs)]
                )
                call.unify(shared, theirs)
                del repeated
    return query.axes[:-2]


def _zero_if_value(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the value is: every output is a mean of it."""
    return zeros.of(step.args[2])


RULES: Final[Mapping[Op, OpRule]] = {
    aten.scaled_dot_product_attention: OpRule(
        scaled_dot_product_attention, zeros=_zero_if_value
    ),
}
