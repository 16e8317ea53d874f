"""Measured latency as a cost: timings of every op at several widths, interpolated.

Each op is timed by itself on a grid over the widths that matter to it. A model takes
longer than the sum of its ops: weights have to come from memory, and Python runs in
between. How much longer is found from the whole model and from a narrow one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from diffprune._core.timing import THOROUGHLY, Timings, best_seconds
from diffprune._core.types import Float, Int
from diffprune._costs.network import Network
from diffprune._costs.op_timing import Operation, operations
from diffprune._costs.polynomial import Polynomial
from diffprune._costs.scale import FRACTIONS, Scale, make_scale, narrowed
from diffprune._graph import Atom, ExampleInputs, mode, own_arguments, unchanged

Scales: TypeAlias = tuple[Scale, Scale]
_TURNS: Final = 3


@dataclass(frozen=True, eq=False)
class Latency:
    """Seconds of one forward pass as a function of the widths.

    Attributes:
        lengths: What times are interpolated along, each a function of the widths.
        knots: Where along each the ops were timed.
        places: For every op the two lengths its time depends on.
        seconds: Its time at every pair of knots.
        factor: How much longer ops take within the model than alone.
        rest: What a forward pass takes beside its ops.
    """

    lengths: Sequence[Polynomial]
    knots: Float[Tensor, "lengths knots"]
    places: Int[Tensor, "ops two"]
    seconds: Float[Tensor, "ops knots knots"]
    factor: float = 1.0
    rest: float = 0.0

    def __call__(self, widths: Float[Tensor, " widths"]) -> Float[Tensor, ""]:
        """Predict the latency, differentiably."""
        lengths = torch.stack([length(widths) for length in self.lengths])
        below = torch.searchsorted(self.knots, lengths.detach()[:, None]) - 1
        cells = below.clamp(0, self.knots.shape[1] - 2) + torch.arange(2)
        left, right = self.knots.gather(1, cells).unbind(1)
        part = (lengths - left) / (right - left)
        parts = torch.stack([1 - part, part], 1)[self.places]
        rows, columns = cells[self.places].unbind(1)
        ops = torch.arange(len(self.places))[:, None, None]
        around = self.seconds[ops, rows[:, :, None], columns[:, None, :]]
        alone = torch.einsum("oij,oi,oj->", around, parts[:, 0], parts[:, 1])
        return self.factor * alone + self.rest

    def slope(self, widths: Float[Tensor, " widths"]) -> Float[Tensor, " widths"]:
        """What a little more of each width costs, per unit, at these widths."""
        at = widths.detach().clone().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(self(at), at)
        return found


def latency(network: Network, folder: Path | None = None) -> Latency:
    """Time the ops of a model on its device; what was timed before is remembered.

    Args:
        network: The model.
        folder: Where timings are kept; by default in the user's cache.
    """
    timings = Timings(next(network.model.parameters()).device, folder)
    scales, seconds = list[Scales](), list[Tensor]()
    with torch.no_grad():
        for operation in operations(network):
            scales.append(_scales(operation, network))
            seconds.append(_timed(operation, scales[-1], timings))
        predicted = _calibrated(_interpolated(scales, seconds), network, timings)
    timings.save()
    return predicted


def _calibrated(alone: Latency, network: Network, timings: Timings) -> Latency:
    """Fit factor and rest to the model as it is, and cut down to its narrowest."""
    name = "\n".join(operation.at({}).key for operation in operations(network))
    least_of = [narrowed(group.size, FRACTIONS[0]) for group in network.gated]
    widths = torch.tensor(least_of).double()
    small = network.narrow(widths)
    # Remembered as well: a run that is resumed must come to the same decisions.
    with mode(network.model, training=False), mode(small, training=False):
        runs = [_forward(model, network.inputs) for model in (network.model, small)]
        whole, least = (
            timings.seconds(f"{n} {name}", lambda _, n=n: runs[n], THOROUGHLY) or 0.0
            for n in (0, 1)
        )
    ops = float(alone(network.widths()))
    more = ops - float(alone(widths))
    factor = (whole - least) / more if more > 0 and whole > least else 1.0
    rest = whole - factor * ops
    if rest < 0:  # or narrow models would take less than no time
        factor, rest = whole / ops, 0.0
    return replace(alone, factor=factor, rest=rest)


def measure_in_turns(models: Sequence[nn.Module], inputs: ExampleInputs) -> list[float]:
    """Seconds of one forward pass of each, in eval mode, now.

    What slows the machine down for a while slows all of them.
    """
    device = next(models[0].parameters()).device
    runs = [_forward(model, inputs) for model in models]
    with torch.no_grad(), ExitStack() as modes:
        for model in models:
            modes.enter_context(unchanged(model))
            modes.enter_context(mode(model, training=False))
        start, turns = time.monotonic(), list[list[float]]()
        while len(turns) < _TURNS or time.monotonic() < start + 2 * THOROUGHLY:
            turns.append([best_seconds(run, device, patience=0.0) for run in runs])
    return [min(times) for times in zip(*turns, strict=True)]


def _forward(model: nn.Module, inputs: ExampleInputs) -> Callable[[], object]:
    args, kwargs = own_arguments(inputs)
    return lambda: model(*args, **kwargs)


def _scales(operation: Operation, network: Network) -> Scales:
    """Two for every op, if need be of no length."""
    classes = [*operation.classes(network.atoms), (), ()]
    one, other = classes[:2]
    tensors = operation.tensors
    return (
        make_scale(one, tensors, network.atoms),
        make_scale(other, tensors, network.atoms),
    )


def _timed(
    operation: Operation, scales: Scales, timings: Timings
) -> Float[Tensor, "knots knots"]:
    """Seconds at every pair of knots; an op that cannot be scaled counts as it is."""

    def seconds(sizes: Mapping[Atom, int]) -> float | None:
        run = operation.at(sizes)
        return timings.seconds(run.key, run.on)

    found = [seconds({**a, **b}) for a, b in product(*(s.sizes for s in scales))]
    whole = found[-1] or 0.0
    times = torch.tensor([whole if time is None else time for time in found])
    rows, columns = (
        torch.arange(len(FRACTIONS)).clamp(max=len(scale.sizes) - 1) for scale in scales
    )
    return times.double().view(len(scales[0].sizes), -1)[rows][:, columns]


def _interpolated(scales: Sequence[Scales], seconds: Sequence[Tensor]) -> Latency:
    """Put the timings of all ops together; scales that are equal are kept once."""
    different = list[Scale]()
    for scale in (scale for pair in scales for scale in pair):
        if scale not in different:
            different.append(scale)
    return Latency(
        [scale.length for scale in different],
        torch.stack([scale.padded() for scale in different]),
        torch.tensor([[different.index(scale) for scale in pair] for pair in scales]),
        torch.stack(list(seconds)),
    )
