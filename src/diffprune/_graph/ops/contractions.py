"""Rules for ops that multiply and add: linear maps, convolutions, matrix products."""

import string
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final

import torch

from diffprune._graph.axes import Atom, size
from diffprune._graph.ops.spatial import points, slid_along
from diffprune._graph.ops.zero_rules import (
    all_of,
    any_of,
    zero_if_any,
    zero_rows,
)
from diffprune._graph.rule_api import (
    SPATIAL,
    Anything,
    Axes,
    Call,
    MaskT,
    Op,
    OpRule,
    Step,
    Value,
    Zeros,
)

aten = torch.ops.aten


def linear(call: Call, x: Value, weight: Value, bias: Value | None = None) -> Axes:
    """y[..., o] = sum_i x[..., i] w[o, i] + b[o]."""
    call.contract(x, -1, weight, -1)
    out = (*x.axes[:-1], *weight.axes[:-1])
    call.match(out[-1], bias)
    call.layer_widths(weight, in_features=x.axes[-1], out_features=out[-1])
    call.multiply_adds(*out, x.axes[-1])
    return out


def bilinear(
    call: Call, x: Value, y: Value, weight: Value, bias: Value | None = None
) -> Axes:
    """z[..., o] = sum_ij x[..., i] w[o, i, j] y[..., j] + b[o]."""
    call.contract(x, -1, weight, 1)
    call.contract(y, -1, weight, 2)
    out = (*x.axes[:-1], weight.axes[0])
    call.match(out[-1], bias)
    call.layer_widths(weight, in1_features=x.axes[-1], in2_features=y.axes[-1])
    call.layer_widths(weight, out_features=out[-1])
    call.multiply_adds(*out, x.axes[-1], y.axes[-1])
    return out


def conv(
    call: Call,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Anything = 1,
    padding: Anything = 0,
    dilation: Anything = 1,
    groups: int = 1,
) -> Axes:
    """y[n, (g o), ...] = sum_i x[n, (g i), ...] * w[(g o), i, ...] + b[(g o)]."""
    del dilation
    batch = x.axes[: -len(weight.axes) + 1]
    channel = len(batch)
    still = points(weight.shape[2:], stride, padding)
    group, inputs = call.split(x.axes[channel], [groups, weight.shape[1]])
    if groups > 1:
        outputs = call.split(weight.axes[0], [groups, weight.shape[0] // groups])
        call.unify(group, outputs[0])
        call.require(groups, group, last=True)
    call.contract(x, channel, weight, 1, part=inputs)
    places = _window(call, x, weight, channel, still)
    out = (*batch, weight.axes[0], *places)
    call.match(out[channel], bias)
    call.layer_widths(weight, in_channels=x.axes[channel], out_channels=out[channel])
    call.multiply_adds(*out, inputs, *weight.axes[2:])
    return out


def conv_transpose(
    call: Call,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Anything = 1,
    padding: Anything = 0,
    output_padding: Anything = 0,
    groups: int = 1,
    dilation: Anything = 1,
) -> Axes:
    """y[n, (g o), ...] = sum_i x[n, (g i), ...] * w[(g i), o, ...] + b[(g o)]."""
    del output_padding, dilation
    batch = x.axes[: -len(weight.axes) + 1]
    channel = len(batch)
    still = points(weight.shape[2:], stride, padding)
    group, _ = call.split(x.axes[channel], [groups, weight.shape[0] // groups])
    call.contract(x, channel, weight, 0)
    if groups > 1:
        call.require(groups, group, last=True)
    outputs = (*group, *weight.axes[1])
    call.match(outputs, bias)
    call.layer_widths(weight, in_channels=x.axes[channel], out_channels=outputs)
    call.multiply_adds(*x.axes, weight.axes[1], *weight.axes[2:])
    return (*batch, outputs, *_window(call, x, weight, channel, still))


def _window(
    call: Call, x: Value, weight: Value, channel: int, still: Sequence[bool]
) -> Axes:
    """Spatial axes of the output; a window slides over those of the input."""
    for axis in weight.axes[2:]:
        call.freeze(axis, SPATIAL)
    places = slice(channel + 1, None)
    return slid_along(call, x.axes[places], call.shape[places], still)


def matmul(call: Call, x: Value, y: Value) -> Axes:
    """z[..., n, m] = sum_k x[..., n, k] y[..., k, m], leading axes broadcast."""
    inner = -1 if len(y.axes) == 1 else -2
    call.contract(x, -1, y, inner)
    rows = x.axes[-2:-1]
    columns = () if len(y.axes) == 1 else y.axes[-1:]
    kept = len(call.shape) - len(rows) - len(columns)
    batch = _batch(call, call.shape[:kept], (x.axes[:-2], y.axes[:-2]))
    out = (*batch, *rows, *columns)
    call.multiply_adds(*out, x.axes[-1])
    if x.name is None and y.name is None and len(batch) > 1:
        call.facts.heads.append(batch[-1])
        call.facts.inside_heads.append(x.axes[-1])
        call.facts.inside_values.extend(columns)
    return out


def _batch(call: Call, shape: Sequence[int], operands: Sequence[Axes]) -> Axes:
    out = call.fresh(*shape)
    for axes in operands:
        for dim in range(-len(axes), 0):
            if axes[dim] and size(axes[dim]) == shape[dim]:
                call.unify(out[dim], axes[dim])
    return out


def addmm(call: Call, bias: Value, x: Value, y: Value, **_scales: Anything) -> Axes:
    """z[n, m] = b[m] + sum_k x[n, k] y[k, m]."""
    out = matmul(call, x, y)
    return call.broadcast([Value(out), bias])


def outer(call: Call, x: Value, y: Value) -> Axes:
    """z[n, m] = x[n] y[m]."""
    del call
    return (*x.axes, *y.axes)


def kron(call: Call, x: Value, y: Value) -> Axes:
    """z[..., (n m)] = x[..., n] y[..., m], for every pair of axes from the last one."""
    del call
    pairs = zip_longest(reversed(x.axes), reversed(y.axes), fillvalue=())
    return tuple((*mine, *theirs) for mine, theirs in pairs)[::-1]


def tensordot(
    call: Call, x: Value, y: Value, dims: Sequence[int], others: Sequence[int]
) -> Axes:
    """z[..., ...] = sum over some axes of x, each with its partner of y."""
    pairs = [
        (dim % len(x.axes), other % len(y.axes))
        for dim, other in zip(dims, others, strict=True)
    ]
    for dim, other in pairs:
        call.contract(x, dim, y, other)
    summed = [x.axes[dim] for dim, _ in pairs]
    rows = [x.axes[d] for d in range(len(x.axes)) if d not in dict(pairs)]
    partners = dict(pairs).values()
    columns = [y.axes[d] for d in range(len(y.axes)) if d not in partners]
    call.multiply_adds(*rows, *columns, *summed)
    return (*rows, *columns)


def inner(call: Call, x: Value, y: Value) -> Axes:
    """z[..., ...] = sum_k x[..., k] y[..., k]."""
    return tensordot(call, x, y, [-1], [-1])


def einsum(
    call: Call, equation: str, operands: Sequence[Value], **_path: Anything
) -> Axes:
    """Each letter is one axis; a letter missing on the right is summed over."""
    left, _, right = _spelt_out(equation, operands).partition("->")
    terms = left.split(",")
    if not right or any(len(set(t)) < len(t) for t in terms):
        why = "this form of einsum is not followed"
        for axis in (axis for operand in operands for axis in operand.axes):
            call.freeze(axis, why, "Name each axis.")
        return call.frozen(why, *call.shape)
    places = _places(terms, operands)
    for letter, same in places.items():
        (x, dim), *others = same
        if letter not in right and not others:
            call.reduce(x, dim)
        for y, other in others:
            if letter in right:
                call.unify(x.axes[dim], y.axes[other])
            else:
                call.contract(x, dim, y, other)
    axes = {letter: same[0][0].axes[same[0][1]] for letter, same in places.items()}
    call.multiply_adds(*axes.values())
    return tuple(axes[letter] for letter in right)


def _spelt_out(equation: str, operands: Sequence[Value]) -> str:
    """The equation with letters in the place of `...`, the last ones shared.

    Examples:
        >>> x, w = Value(((),) * 3), Value(((),) * 2)
        >>> _spelt_out("...i, oi -> ...o", [x, w])
        'YZi,oi->YZo'
    """
    equation = equation.replace(" ", "")
    left, _, _ = equation.partition("->")
    terms = left.split(",")
    letters = [c for c in string.ascii_letters[::-1] if c not in equation]
    spelt, longest = list[str](), ""
    for term, operand in zip(terms, operands, strict=True):
        hidden = len(operand.axes) - len(term.replace("...", ""))
        names = "".join(sorted(letters[:hidden]))
        longest = max(longest, names if "..." in term else "", key=len)
        spelt.append(term.replace("...", names))
    return ",".join(spelt) + equation[len(left) :].replace("...", longest)


def _places(
    terms: Sequence[str], operands: Sequence[Value]
) -> dict[str, list[tuple[Value, int]]]:
    """Where each letter stands; a broadcast axis of length one does not count."""
    places: dict[str, list[tuple[Value, int]]] = {}
    for term, operand in zip(terms, operands, strict=True):
        for dim, letter in enumerate(term):
            places.setdefault(letter, []).append((operand, dim))
    return {
        letter: [(x, dim) for x, dim in same if x.axes[dim]] or same[:1]
        for letter, same in places.items()
    }


def _conv_at_widths(args: tuple[Anything, ...]) -> tuple[Anything, ...]:
    """A convolution has as many groups as its input has times its weight's inputs."""
    if len(args) <= _GROUPS:
        return args
    x, weight = args[:2]
    groups = x.shape[1 - weight.ndim] // weight.shape[1]
    return (*args[:_GROUPS], groups or args[_GROUPS], *args[_GROUPS + 1 :])


def _zero_sum(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the term that is added is, and one of the factors."""
    bias, x, y = step.args[:3]
    return all_of([zeros.of(bias), any_of([zeros.of(x), zeros.of(y)])])


_GROUPS: Final = 6  # conv(x, weight, bias, stride, padding, dilation, groups)
_LINEAR = OpRule(
    linear, zeros=zero_rows, rows=((1, 0), (2, 0)), bias=(2, -1), linear=True
)
_CONV = OpRule(
    conv,
    zeros=zero_rows,
    rows=((1, 0), (2, 0)),
    bias=(2, 1),
    linear=True,
    at_widths=_conv_at_widths,
)
_CONV_TRANSPOSE = OpRule(
    conv_transpose, zeros=zero_rows, rows=((1, 1), (2, 0)), bias=(2, 1), linear=True
)

RULES: Final[Mapping[Op, OpRule]] = {
    aten.linear: _LINEAR,
    aten.bilinear: OpRule(bilinear),
    **dict.fromkeys((aten.conv1d, aten.conv2d, aten.conv3d), _CONV),
    **dict.fromkeys(
        (aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d),
        _CONV_TRANSPOSE,
    ),
    **dict.fromkeys(
        (aten.matmul, aten.bmm, aten.mm, aten.mv, aten.dot, aten.vdot),
        OpRule(matmul, zeros=zero_if_any),
    ),
    **dict.fromkeys((aten.addmm, aten.baddbmm), OpRule(addmm, zeros=_zero_sum)),
    **dict.fromkeys((aten.outer, aten.ger), OpRule(outer, zeros=zero_if_any)),
    aten.kron: OpRule(kron, zeros=zero_if_any),
    aten.einsum: OpRule(einsum, zeros=zero_if_any),
    aten.tensordot: OpRule(tensordot, zeros=zero_if_any),
    aten.inner: OpRule(inner, zeros=zero_if_any),
}
