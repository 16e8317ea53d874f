"""Rules for element-wise ops: same axis in, same axis out.

Every op that ATen tags as pointwise is covered without being named; the table holds
only those without the tag.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch

from diffprune._graph.ops.zero_rules import (
    always_zero,
    zero_if_any,
    zero_if_first,
    zero_if_tried,
)
from diffprune._graph.rule_api import Anything, Axes, Call, Op, OpRule, Value

aten = torch.ops.aten


def elementwise(call: Call, *args: Anything, **kwargs: Anything) -> Axes:
    """y[i] = f(a[i], b[i], ...), operands broadcast against each other."""
    operands = [x for x in (*args, *kwargs.values()) if isinstance(x, Value)]
    return call.broadcast(operands)


def same(call: Call, x: Value, *_args: Anything, **_kwargs: Anything) -> Axes:
    """Same values, or a random part of them: dropout, copies, casts."""
    del call
    return x.axes


def prelu(call: Call, x: Value, weight: Value) -> Axes:
    """y[n, c, ...] = max(0, x) + weight[c] * min(0, x)."""
    call.layer_widths(weight, num_parameters=weight.axes[0])
    if weight.axes[0] and len(x.axes) > 1:
        call.match(x.axes[1], weight)
    return x.axes


def glu(call: Call, x: Value, dim: int = -1) -> Axes:
    """First half of an axis times the sigmoid of the second."""
    half = call.shape[dim]
    first, second = call.cut(x.axes[dim], [half, half])
    call.unify(first, second)
    axes = list(x.axes)
    axes[dim] = first
    return tuple(axes)


ELEMENTWISE: Final = OpRule(elementwise, zeros=zero_if_tried)
_RECTIFIER = OpRule(elementwise, zeros=zero_if_tried, passes_scale=True)
_COPY = OpRule(same, zeros=zero_if_first, passes_scale=True)
_COPY_IF_NEEDED = replace(_COPY, may_return_input=True)
_SAMPLE = OpRule(same, zeros=zero_if_first)
_FILL = OpRule(same)
_ZERO = OpRule(same, zeros=always_zero)

_COPIES = (
    aten.native_dropout, aten.clone, aten._to_copy, aten.lift_fresh_copy, aten.rrelu,
    aten._assert_tensor_metadata,
)  # fmt: skip
_COPIES_IF_NEEDED = (
    aten.dropout, aten.feature_dropout, aten.contiguous, aten.detach, aten.detach_,
    aten.to, aten.type_as,
)  # fmt: skip
_SAMPLES = (aten.bernoulli, aten.nan_to_num)
# In training they add a constant: zeros stay zeros in eval mode alone.
_ALPHA_DROPOUTS = (aten.alpha_dropout, aten.feature_alpha_dropout)
LIKE: Final = (
    aten.ones_like, aten.empty_like, aten.full_like, aten.rand_like, aten.randn_like,
    aten.zeros_like, aten.randint_like,
)  # fmt: skip
"""Ops that read no more of a tensor than its shape."""
# Of given means and the like, or in the place of what was there.
_DRAWS = (
    aten.normal, aten.uniform, aten.exponential, aten.log_normal, aten.cauchy,
    aten.geometric, aten.random, aten.randint_like,
)  # fmt: skip
_UNTAGGED = (
    aten.relu6, aten.selu, aten.mish, aten.hardswish, aten.hardsigmoid, aten.softplus,
    aten.log_sigmoid, aten.threshold, aten.gelu, aten.silu, aten.elu, aten.celu,
    aten.hardtanh, aten.square, aten.hardshrink, aten.softshrink, aten.where,
    aten.masked_fill, aten.copy, aten.addcmul, aten.addcdiv, aten.lerp, aten.rsub,
    aten.true_divide, aten.floor_divide, aten.fmod, aten.remainder,
    aten.fake_quantize_per_tensor_affine,
    aten.fake_quantize_per_tensor_affine_cachemask,
)  # fmt: skip

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys(_COPIES, _COPY),
    **dict.fromkeys(_COPIES_IF_NEEDED, _COPY_IF_NEEDED),
    **dict.fromkeys(_SAMPLES, _SAMPLE),
    **dict.fromkeys(_ALPHA_DROPOUTS, replace(_FILL, may_return_input=True)),
    **dict.fromkeys((*LIKE, aten.fill), _FILL),
    **dict.fromkeys((aten.zeros_like, aten.zero), _ZERO),
    **dict.fromkeys(_DRAWS, OpRule(elementwise)),
    **dict.fromkeys(_UNTAGGED, ELEMENTWISE),
    **dict.fromkeys((aten.relu, aten.leaky_relu), _RECTIFIER),
    aten.mul: OpRule(elementwise, zeros=zero_if_any),
    aten.div: OpRule(elementwise, zeros=zero_if_first),
    aten.prelu: OpRule(prelu, zeros=zero_if_first),
    aten.glu: OpRule(glu, zeros=zero_if_first),
}
