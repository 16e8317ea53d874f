"""Measured latency as a cost: timings of every op at several widths, interpolated.

Each op is timed by itself on a grid over the widths that matter to it. What the whole
model takes beyond the sum of its ops (Python, views) does not depend on widths and is
added.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn

from diffprune._typing import Float, Int
from diffprune.costs.network import Network
from diffprune.costs.ops import Operation, operations
from diffprune.costs.polynomial import Polynomial
from diffprune.costs.scale import FRACTIONS, Scale, make_scale
from diffprune.costs.timing import Timings, best_seconds
from diffprune.graph.axes import Atom
from diffprune.graph.trace import ExampleInputs, call_arguments, mode

Scales: TypeAlias = tuple[Scale, Scale]


@dataclass(frozen=True, eq=False)
class Latency:
    """Seconds of one forward pass as a function of the widths.

    Attributes:
        lengths: What times are interpolated along, each a function of the widths.
        knots: Where along each the ops were timed.
        places: For every op the two lengths its time depends on.
        seconds: Its time at every pair of knots.
        rest: What a forward pass takes beside its ops.
    """

    lengths: Sequence[Polynomial]
    knots: Float[Tensor, "lengths knots"]
    places: Int[Tensor, "ops two"]
    seconds: Float[Tensor, "ops knots knots"]
    rest: float

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
        return torch.einsum("oij,oi,oj->", around, parts[:, 0], parts[:, 1]) + self.rest


def latency(network: Network, folder: Path | None = None) -> Latency:
    """Time the ops of a model on its device; what was timed before is remembered.

    Args:
        network: The model.
        folder: Where timings are kept; by default in the user's cache.
    """
    timings = Timings(next(network.model.parameters()).device, folder)
    scales, seconds, names = list[Scales](), list[Tensor](), list[str]()
    with torch.no_grad(), mode(network.model, training=False):
        for operation in operations(network):
            scales.append(_scales(operation, network))
            seconds.append(_timed(operation, scales[-1], timings))
            names.append(operation.at({}).key)
        # Remembered as well: a run that is resumed must come to the same decisions.
        forward = _forward(network.model, network.inputs)
        whole = timings.seconds("\n".join(names), lambda _: forward) or 0.0
    timings.save()
    alone = _interpolated(scales, seconds)
    return replace(alone, rest=whole - float(alone(network.widths())))


def measure(model: nn.Module, inputs: ExampleInputs) -> float:
    """Seconds of one forward pass in eval mode, now."""
    device = next(model.parameters()).device
    with torch.no_grad(), mode(model, training=False):
        return best_seconds(_forward(model, inputs), device)


def _forward(model: nn.Module, inputs: ExampleInputs) -> Callable[[], object]:
    args, kwargs = call_arguments(inputs)
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
        rest=0.0,
    )
