"""Rules for fused recurrent layers."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from diffprune._graph.axes import Atom, Axis, Cat, size
from diffprune._graph.ops.zero_rules import all_of
from diffprune._graph.rule_api import (
    Anything,
    Axes,
    Call,
    MaskT,
    Op,
    OpRule,
    Step,
    Value,
    ZeroRule,
    Zeros,
)

aten = torch.ops.aten


def lstm(
    call: Call,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    *flags: Anything,
) -> list[Axes]:
    """Four gates per unit; hidden and cell states share the units."""
    for state in states[1:]:
        call.unify(states[0].axes[-1], state.axes[-1])
    out, hidden = _layers(call, x, states[0], weights, flags)
    return [out, hidden, hidden]


def gru(
    call: Call, x: Value, state: Value, weights: Sequence[Value], *flags: Anything
) -> list[Axes]:
    """Three gates per unit; a plain recurrent layer has one."""
    out, hidden = _layers(call, x, state, weights, flags)
    return [out, hidden]


def lstm_cell(
    call: Call, x: Value, states: Sequence[Value], *weights: Value | None
) -> list[Axes]:
    """One step of `lstm`."""
    call.unify(states[0].axes[-1], states[1].axes[-1])
    return [cell(call, x, states[0], *weights)] * 2


def cell(call: Call, x: Value, state: Value, *weights: Value | None) -> Axes:
    """One step of the others: the state goes in and comes out."""
    given = [weight for weight in weights if weight is not None]
    _cell(call, x, state.axes[-1], given)
    return state.axes


def _layers(
    call: Call,
    x: Value,
    state: Value,
    weights: Sequence[Value],
    flags: Sequence[Anything],
) -> tuple[Axes, Axes]:
    """All layers and directions have one hidden size, so they share their units."""
    has_bias, layers, _dropout, _train, bidirectional, batch_first = flags[:6]
    call.freeze(x.axes[1 if batch_first else 0], "a recurrent layer walks along it")
    units = state.axes[-1]
    per_cell, directions = 4 if has_bias else 2, 2 if bidirectional else 1
    if len(weights) != per_cell * directions * layers:
        return _refuse(call, x, state, weights)
    inputs = x
    for start in range(0, len(weights), per_cell * directions):
        layer = weights[start : start + per_cell * directions]
        for first in range(0, len(layer), per_cell):
            _cell(call, inputs, units, layer[first : first + per_cell])
        both: Axis = (Cat((units,) * 2),) if bidirectional else units
        inputs = Value((*x.axes[:-1], call.algebra.resolve(both)))
    return inputs.axes, state.axes


def _cell(call: Call, x: Value, units: Axis, weights: Sequence[Value]) -> None:
    """gates[(g u)] = w_ih[(g u), i] x[i] + w_hh[(g u), u] h[u] + biases[(g u)]."""
    from_input, from_hidden, *biases = weights
    gates = from_input.shape[0] // size(units)
    (position,) = call.fresh(gates)
    call.freeze(position, "the gates of a recurrent layer")
    rows = (*position, *units)
    call.unify(rows, from_input.axes[0])
    call.unify(rows, from_hidden.axes[0])
    call.match(rows, *biases)
    call.contract(x, -1, from_input, 1)
    call.contract(Value((units,)), 0, from_hidden, 1)
    steps = x.axes[:-1]
    call.multiply_adds(*steps, rows, x.axes[-1])
    call.multiply_adds(*steps, rows, units)


def _refuse(
    call: Call, x: Value, state: Value, weights: Sequence[Value]
) -> tuple[Axes, Axes]:
    why = "recurrent layers with projections are not followed"
    for axis in (axis for value in (x, state, *weights) for axis in value.axes):
        call.freeze(axis, why)
    for matrix in (weight for weight in weights if len(weight.axes) == 2):
        call.multiply_adds(*x.axes[:-1], *matrix.axes)
    return call.frozen(why, *call.shape), state.axes


def _zero_if_state(states: int) -> ZeroRule:
    """Zero where the rows of all weights are, and all states were."""

    def zero(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
        _, *read = step.inputs
        rows = [zeros.along(weight, 0) for weight in read[states:]]
        return all_of([*map(zeros.of, read[:states]), *rows])

    return zero


_GRU = OpRule(gru, zeros=_zero_if_state(1))
_CELL = OpRule(cell, zeros=_zero_if_state(1))

RULES: Final[Mapping[Op, OpRule]] = {
    aten.lstm: OpRule(lstm, zeros=_zero_if_state(2)),
    **dict.fromkeys((aten.gru, aten.rnn_tanh, aten.rnn_relu), _GRU),
    aten.lstm_cell: OpRule(lstm_cell, zeros=_zero_if_state(2)),
    **dict.fromkeys((aten.gru_cell, aten.rnn_tanh_cell, aten.rnn_relu_cell), _CELL),
}
