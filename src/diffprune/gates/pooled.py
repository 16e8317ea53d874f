"""Many gates evaluated as one vector. Knows no model; the numbers are the gates' own.

A network has dozens of gates of a few dozen units each. One by one, every gate costs
some twenty tiny kernels per step; laid end to end, all of them cost as much as one.
Only simple gates are pooled: independent units, one threshold.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from diffprune._core.types import Float, Int
from diffprune.gates.gate import Gate, precise

Context = Any  # torch gives it no better type


def is_plain(gate: Gate) -> bool:
    """Whether the values of a gate can be computed together with those of others."""
    return is_independent(gate) and gate.log_noise_var is None


def is_independent(gate: Gate) -> bool:
    """Whether the penalty can: noise in training does not enter it."""
    return gate.u == "sigmoid" and gate.base is None and gate.threshold.ndim == 0


@final
class Bank:
    """Gates evaluated together: the simple ones as one vector, the others in turn.

    Args:
        gates: By name; they stay what and where they are, the bank only reads them.
    """

    def __init__(self, gates: Mapping[str, Gate]) -> None:
        self._gates = dict(gates)
        self._plain = _Pool(gates, is_plain)
        self._independent = _Pool(gates, is_independent)

    def values(self) -> dict[str, Float[Tensor, " units"]]:
        """`gate.values()` of every gate."""
        pool = self._plain
        found = {n: g.values() for n, g in self._gates.items() if n not in pool.names}
        if not pool.gates:
            return found
        logits = [gate.logits for gate in pool.gates]
        raw = [gate.raw_sharpness for gate in pool.gates]
        apply: Any = _Values.apply
        pooled: Sequence[Tensor] = apply(pool.gates, pool.layout(), *logits, *raw)
        return found | dict(zip(pool.names, pooled, strict=True))

    def penalty(self, strengths: Mapping[str, float]) -> Float[Tensor, ""]:
        """Sum of `strength * gate.prob_open().sum()` over the gates."""
        pool = self._independent
        costs = [
            gate.prob_open().sum() * strengths[name]
            for name, gate in self._gates.items()
            if name not in pool.names and strengths[name]
        ]
        numbers = tuple(strengths[name] for name in pool.names)
        if any(numbers):
            apply: Any = _Penalty.apply
            logits = [gate.logits for gate in pool.gates]
            costs.append(apply(pool.gates, pool.layout(), numbers, *logits))
        if not costs:
            logits = next(iter(self._gates.values())).logits
            return logits.new_zeros((), requires_grad=True)
        return costs[0] if len(costs) == 1 else torch.stack(costs).sum()


@final
class _Pool:
    """Those of some gates that can be laid end to end."""

    def __init__(self, gates: Mapping[str, Gate], fits: Callable[[Gate], bool]) -> None:
        pooled = {name: gate for name, gate in gates.items() if fits(gate)}
        self.names, self.gates = tuple(pooled), tuple(pooled.values())
        self._layout: _Layout | None = None

    def layout(self) -> "_Layout":
        """Their constants, computed anew only when one of them was cut or loaded."""
        if self._layout is None or not self._layout.fits(self.gates):
            self._layout = _lay_out(self.gates)
        return self._layout


@dataclass(frozen=True, eq=False)
class _Layout:
    """Constants of gates that lie end to end, until one of them is cut or loaded."""

    sizes: tuple[int, ...]
    thresholds: tuple[tuple[Tensor, int], ...]  # each with its version
    floors: tuple[int, ...]
    owner: Int[Tensor, " all"]
    threshold: Float[Tensor, " all"]
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
    return _Layout(
        sizes=sizes,
        thresholds=tuple((g.threshold, g.threshold._version) for g in gates),  # noqa: SLF001
        floors=tuple(gate.min_open for gate in gates),
        owner=owner,
        threshold=threshold,
        slope=slope,
        shift=-threshold.logit() * slope,
    )


class _Values(torch.autograd.Function):
    """Deviations from the mean of the open units, per gate, around one."""

    @staticmethod
    def forward(
        ctx: Context, gates: Sequence[Gate], layout: _Layout, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        logits, raw = tensors[: len(gates)], tensors[len(gates) :]
        activation = precise(torch.cat(logits)).sigmoid()
        is_open = activation.gt(layout.threshold).to(activation)
        counts = layout.sums(is_open)
        for number, count in enumerate(counts.tolist()):
            if count < layout.floors[number]:  # these are open whatever their logits
                of_gate = layout.parts(is_open)[number]
                of_gate.copy_(gates[number].is_open())
                counts[number] = of_gate.sum()
        counts.clamp_(min=1)
        deviation = layout.centred(activation, is_open, counts)
        sharpness = precise(torch.stack(raw))
        spread = sharpness.abs().neg_().exp_().index_select(0, layout.owner)
        saved = (activation, is_open, counts, deviation, spread, sharpness)
        ctx.save_for_backward(*saved)
        ctx.layout = layout
        values = torch.addcmul(is_open, deviation, spread)
        return tuple(layout.parts(_like(values, logits[0])))

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] - one gradient per output
        activation, is_open, counts, deviation, spread, raw = ctx.saved_tensors
        layout: _Layout = ctx.layout
        scaled = _like(torch.cat(grads), spread).mul_(spread)
        # Sharpness is |raw|; at zero its slope counts as that of negative numbers.
        of_spread = layout.sums(scaled * deviation)
        of_raw = _like(torch.where(raw > 0, -of_spread, of_spread), grads[0])
        centred = layout.centred(scaled, is_open, counts)
        of_logits = torch.ops.aten.sigmoid_backward(centred, activation)
        of_logits = layout.parts(_like(of_logits, grads[0]))
        return None, None, *of_logits, *of_raw.unbind()


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
