"""Run a recurrent layer step by step, so that each of its matrix products is a call.

`torch.lstm` and its kin hide what their weights read. Here the same layer is written
out: each product of a weight with its inputs goes through a function that is passed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from diffprune._choice.watch import FunctionCall
from diffprune._core.types import Float

Product: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""From inputs, a weight and a bias to `F.linear` of them."""

State: TypeAlias = Sequence[Tensor]
_LAYERS: Final = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


@dataclass(frozen=True)
class _Layer:
    """What one direction of one layer is made of."""

    from_input: Tensor
    from_hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None


def is_recurrent(call: FunctionCall) -> bool:
    """Whether a call is of a recurrent layer that can be written out.

    Packed sequences and layers with projections cannot.
    """
    if call.name.removesuffix("_cell") in _LAYERS and call.name.endswith("_cell"):
        return True
    if call.name not in _LAYERS or not isinstance(call.args[2], list | tuple):
        return False
    has_bias, layers, _, _, bidirectional = call.args[3:8]
    cells = layers * (2 if bidirectional else 1)
    return len(call.args[2]) == cells * (4 if has_bias else 2)


def run_unrolled(call: FunctionCall, product: Product) -> Any:  # noqa: ANN401 - what the layer returns
    """Compute what the call would, each product by the function given.

    Dropout between layers draws other numbers than the layer itself would.
    """
    if call.name.endswith("_cell"):
        return _one_step(call, product)
    x, states, weights, has_bias, layers, dropout, train, *rest = call.args
    bidirectional, batch_first = rest
    states = states if isinstance(states, list | tuple) else [states]
    directions = 2 if bidirectional else 1
    cells = list(_cells(weights, has_bias=has_bias))
    inputs, last = x.transpose(0, 1) if batch_first else x, list[State]()
    for layer in range(layers):
        sides = list[Tensor]()
        for side in range(directions):
            number = layer * directions + side
            begin = tuple(state[number] for state in states)
            outputs, end = _run(call.name, cells[number], inputs, begin, product, side)
            sides.append(outputs)
            last.append(end)
        inputs = torch.cat(sides, -1)
        if layer + 1 < layers:
            inputs = F.dropout(inputs, dropout, train)
    result = inputs.transpose(0, 1) if batch_first else inputs
    return (result, *(torch.stack(parts) for parts in zip(*last, strict=True)))


def _one_step(call: FunctionCall, product: Product) -> Any:  # noqa: ANN401 - what the cell returns
    x, state, *weights = call.args
    given = [weight for weight in weights if weight is not None]
    (layer,) = _cells(given, has_bias=len(given) > 2)
    begin: State = tuple(state) if isinstance(state, list | tuple) else (state,)
    pushed = product(x, layer.from_input, layer.input_bias)
    recalled = product(begin[0], layer.from_hidden, layer.hidden_bias)
    end = _CELLS[call.name.removesuffix("_cell")](pushed, recalled, begin)
    return end if call.name == "lstm_cell" else end[0]


def _cells(weights: Sequence[Tensor], *, has_bias: bool) -> Iterator[_Layer]:
    per_cell = 4 if has_bias else 2
    for first in range(0, len(weights), per_cell):
        some = [*weights[first : first + per_cell], None, None][:4]
        yield _Layer(some[0], some[1], some[2], some[3])  # pyright: ignore[reportArgumentType] - the first two are tensors


def _run(
    kind: str,
    layer: _Layer,
    inputs: Float[Tensor, "steps batch features"],
    state: State,
    product: Product,
    side: int,
) -> tuple[Float[Tensor, "steps batch units"], State]:
    """One direction of one layer; the second direction goes backwards."""
    # Examples first: whoever watches the product can tell them apart.
    by_example = inputs.transpose(0, 1)
    pushed = product(by_example, layer.from_input, layer.input_bias).transpose(0, 1)
    outputs = list[Tensor]()
    steps = range(len(inputs))
    for step in reversed(steps) if side else steps:
        recalled = product(state[0], layer.from_hidden, layer.hidden_bias)
        state = _CELLS[kind](pushed[step], recalled, state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if side else outputs), state


def _lstm(pushed: Tensor, recalled: Tensor, state: State) -> State:
    i, f, g, o = (pushed + recalled).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru(pushed: Tensor, recalled: Tensor, state: State) -> State:
    (r, z, n), (hr, hz, hn) = pushed.chunk(3, -1), recalled.chunk(3, -1)
    new = (n + (r + hr).sigmoid() * hn).tanh()
    return (new + (z + hz).sigmoid() * (state[0] - new),)


def _tanh(pushed: Tensor, recalled: Tensor, state: State) -> State:
    del state
    return ((pushed + recalled).tanh(),)


def _relu(pushed: Tensor, recalled: Tensor, state: State) -> State:
    del state
    return (F.relu(pushed + recalled),)


_CELLS: Final[dict[str, Callable[[Tensor, Tensor, State], State]]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _tanh,
    "rnn_relu": _relu,
}
