"""Values and penalty of all gates of a model, evaluated as one vector.

A network has dozens of gates of a few dozen units each. One by one, every gate costs
some twenty tiny kernels per step; laid end to end, all of them cost as much as one.
Only gates with independent units and one threshold are pooled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard, cast, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from diffprune._core.types import Float, Int
from diffprune.gates.checks import cost_of
from diffprune.gates.gate import Gate, precise
from diffprune.gates.protocol import GateLike
from diffprune.gates.slopes import Slopes
from diffprune.gates.topk import largest

Context = Any  # torch gives it no better type


@final
class PooledGates:
    """Gates evaluated together: those with independent units as one vector.

    Args:
        gates: By name. They stay what and where they are; other gates than those of
            independent units are evaluated one by one.

    Attributes:
        slopes: Hears the gradients of all values that `values` returns.
    """

    def __init__(self, gates: Mapping[str, GateLike]) -> None:
        self._gates = dict(gates)
        self.slopes = Slopes({name: gate.size for name, gate in gates.items()})
        pooled = {name: gate for name, gate in gates.items() if can_be_pooled(gate)}
        self._names = tuple(pooled)
        self._pooled: tuple[Gate, ...] = tuple(pooled.values())
        self._known_layout: _Layout | None = None

    def values(self) -> dict[str, Float[Tensor, " units"]]:
        """`gate.values()` of every gate."""
        found = {n: g.values() for n, g in self._gates.items() if n not in self._names}
        for name, values in found.items():
            self.slopes.listen(name, values)
        if not self._pooled:
            return found
        samples = [gate.sample() for gate in self._pooled]
        raw = [gate.raw_sharpness for gate in self._pooled]
        dtype, apply = self._pooled[0].logits.dtype, cast("Any", _Values.apply)
        hear = partial(self.slopes.hear, self._names)
        pooled: Sequence[Tensor] = apply(self._layout(), dtype, hear, *samples, *raw)
        return found | dict(zip(self._names, pooled, strict=True))

    def penalty(self, strengths: Mapping[str, float]) -> Float[Tensor, ""]:
        """Sum of `strength * gate.penalty()` over the gates."""
        costs = [
            cost_of(name, gate) * strengths[name]
            for name, gate in self._gates.items()
            if name not in self._names and strengths[name]
        ]
        numbers = tuple(strengths[name] for name in self._names)
        if any(numbers):
            apply: Any = _Penalty.apply
            logits = [gate.logits for gate in self._pooled]
            costs.append(apply(self._pooled, self._layout(), numbers, *logits))
        if not costs:
            return self._nothing()
        return costs[0] if len(costs) == 1 else torch.stack(costs).sum()

    def _nothing(self) -> Float[Tensor, ""]:
        """Zero, where the gates are, so that a loss can be added to it."""
        gate = next(iter(self._gates.values()))
        like = next((p for _, p in gate.named_parameters()), gate.margin())
        return like.new_zeros((), requires_grad=True)

    def _layout(self) -> "_Layout":
        """Constants of the pooled gates; anew only when one was cut or loaded."""
        known = self._known_layout
        if known is None or not known.fits(self._pooled):
            self._known_layout = known = _lay_out(self._pooled)
        return known


def can_be_pooled(gate: GateLike) -> TypeGuard[Gate]:
    """Whether a gate has independent units and one threshold.

    A class that is made of `Gate` may have formulas of its own.
    """
    return (
        type(gate) is Gate
        and gate.u == "sigmoid"
        and gate.base is None
        and gate.threshold.ndim == 0
    )


@dataclass(frozen=True, eq=False)
class _Layout:
    """Constants of gates that lie end to end, until one of them is cut or loaded."""

    sizes: tuple[int, ...]
    thresholds: tuple[tuple[Tensor, int], ...]  # each with its version
    floors: tuple[int, ...]
    owner: Int[Tensor, " all"]
    threshold: Float[Tensor, " all"]
    origin: Float[Tensor, " all"] | None
    slope: Float[Tensor, " all"]
    shift: Float[Tensor, " all"]
    pushes: dict[tuple[float, ...], tuple[Tensor, Tensor]] = field(
        default_factory=dict[tuple[float, ...], tuple[Tensor, Tensor]]
    )

    def fits(self, gates: Sequence[Gate]) -> bool:
        """Whether they are still the gates that were laid out."""
        return all(
            gate.threshold is threshold
            and threshold._version == version  # noqa: SLF001 - counts changes in place
            and gate.logits.numel() == size
            for gate, size, (threshold, version) in zip(
                gates, self.sizes, self.thresholds, strict=True
            )
        )

    def push(self, strengths: tuple[float, ...]) -> tuple[Tensor, Tensor]:
        """Half the strength of every unit, and the greatest slope of its penalty."""
        if strengths not in self.pushes:
            self.pushes.clear()
            strength = self.shift.new_tensor(strengths)[self.owner]
            steepest = strength * self.slope * -(torch.pi**-0.5)
            self.pushes[strengths] = strength / 2, steepest
        return self.pushes[strengths]

    def parts(self, x: Float[Tensor, " all"]) -> Sequence[Tensor]:
        """What belongs to each gate, as views."""
        return torch.split_with_sizes(x, self.sizes)

    def sums(self, x: Float[Tensor, " all"]) -> Float[Tensor, " gates"]:
        """One sum per gate."""
        return x.new_zeros(len(self.sizes)).index_add_(0, self.owner, x)

    def centred(self, x: Tensor, is_open: Tensor, counts: Tensor) -> Tensor:
        """Deviations of the open units from their mean, gate by gate."""
        kept = x * is_open
        mean = self.sums(kept).div_(counts).index_select(0, self.owner)
        return kept.addcmul_(mean, is_open, value=-1)


@torch.no_grad()
def _lay_out(gates: Sequence[Gate]) -> _Layout:
    sizes = tuple(gate.size for gate in gates)
    like = precise(gates[0].logits)
    numbers = torch.arange(len(sizes), device=like.device)
    owner = numbers.repeat_interleave(torch.tensor(sizes, device=like.device))
    threshold = torch.stack([gate.threshold for gate in gates]).to(like)[owner]
    slope = like.new_tensor([-(0.5**0.5) / gate.sigma for gate in gates])[owner]
    starts = [precise(_start(gate)) for gate in gates]
    is_moved = any(gate.origin is not None for gate in gates)
    return _Layout(
        sizes=sizes,
        origin=torch.cat(starts).to(like) if is_moved else None,
        thresholds=tuple((g.threshold, g.threshold._version) for g in gates),  # noqa: SLF001
        floors=tuple(gate.min_open for gate in gates),
        owner=owner,
        threshold=threshold,
        slope=slope,
        shift=-threshold.logit() * slope,
    )


def _start(gate: Gate) -> Float[Tensor, " units"]:
    """The logits whose values are one; zero where values deviate as the logits do."""
    return torch.zeros_like(gate.logits) if gate.origin is None else gate.origin


class _Values(torch.autograd.Function):
    """Deviations from the mean of the open units, per gate, around one."""

    @staticmethod
    def forward(
        ctx: Context,
        layout: _Layout,
        dtype: torch.dtype,
        hear: Callable[[Tensor], None],
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        count = len(layout.sizes)
        samples, raw = tensors[:count], tensors[count:]
        joined = torch.cat(samples)
        activation = joined.sigmoid()
        is_open = activation.gt(layout.threshold).to(activation)
        if layout.origin is not None:  # values see how far each logit has moved
            activation = joined.sub(layout.origin).sigmoid_()
        counts = layout.sums(is_open)
        for number, count in enumerate(counts.tolist()):
            if count < layout.floors[number]:  # these are open whatever their logits
                held = largest(samples[number], layout.floors[number])
                of_gate = layout.parts(is_open)[number].index_fill_(0, held, 1.0)
                counts[number] = of_gate.sum()
        counts.clamp_(min=1)
        deviation = layout.centred(activation, is_open, counts)
        sharpness = precise(torch.cat(raw))
        spread = sharpness.abs().neg_().exp_().index_select(0, layout.owner)
        saved = (activation, is_open, counts, deviation, spread, sharpness)
        ctx.save_for_backward(*saved)
        ctx.layout, ctx.hear = layout, hear
        values = torch.addcmul(is_open, deviation, spread)
        return tuple(layout.parts(values.to(dtype)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] - one gradient per output
        activation, is_open, counts, deviation, spread, raw = ctx.saved_tensors
        layout: _Layout = ctx.layout
        joined = _like(torch.cat(grads), spread)
        ctx.hear(joined)
        scaled = joined.mul_(spread)
        # Sharpness is |raw|; at zero its slope counts as that of negative numbers.
        of_spread = layout.sums(scaled * deviation)
        of_raw = torch.where(raw > 0, -of_spread, of_spread)
        centred = layout.centred(scaled, is_open, counts)
        of_samples = torch.ops.aten.sigmoid_backward(centred, activation)
        of_raw = _like(of_raw, grads[0]).split(1)
        return None, None, None, *layout.parts(of_samples), *of_raw


class _Penalty(torch.autograd.Function):
    """Strength times the normal distribution function of the margin, summed."""

    @staticmethod
    def forward(
        ctx: Context,
        gates: Sequence[Gate],
        layout: _Layout,
        strengths: tuple[float, ...],
        *logits: Tensor,
    ) -> Tensor:
        half, steepest = layout.push(strengths)
        joined = precise(torch.cat(logits))
        # The margin over minus the square root of two sigmas: what `erfc` is made for.
        scaled = torch.addcmul(layout.shift, joined, layout.slope)
        twice = torch.erfc(scaled)
        counts = layout.sums(scaled.lt(0).to(scaled)).tolist()
        for number, count in enumerate(counts):
            if count <= layout.floors[number]:  # the penalty must not push on these
                held = gates[number].is_open()
                layout.parts(twice)[number].masked_fill_(held, 2.0)
                steepest = steepest.clone()
                layout.parts(steepest)[number].masked_fill_(held, 0.0)
        ctx.save_for_backward(scaled, steepest)
        ctx.layout, ctx.dtype = layout, logits[0].dtype
        return torch.dot(twice, half)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] - the one output's gradient
        scaled, steepest = ctx.saved_tensors
        of_logits = scaled.square().neg_().exp_().mul_(steepest).mul_(grad)
        return None, None, None, *ctx.layout.parts(of_logits.to(ctx.dtype))


def _like(x: Tensor, other: Tensor) -> Tensor:
    """In the precision of another; asking first is cheaper than doing nothing."""
    return x if x.dtype == other.dtype else x.to(other.dtype)
