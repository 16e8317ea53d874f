"""Many gates evaluated as one vector. Knows no model; the numbers are the gates' own.

A network has dozens of gates of a few dozen units each. One by one, every gate costs
some twenty tiny kernels per step; laid end to end, all of them cost as much as one.
Only plain gates are pooled: independent units, no noise, one threshold.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from diffprune._typing import Bool, Float, Int
from diffprune.gates.gate import Gate, precise

Context = Any  # torch gives it no better type


def is_plain(gate: Gate) -> bool:
    """Whether a gate can be evaluated together with others."""
    is_noisy = gate.log_noise_var is not None or gate.base is not None
    return gate.u == "sigmoid" and not is_noisy and gate.threshold.ndim == 0


def pooled_values(gates: Sequence[Gate]) -> list[Float[Tensor, " units"]]:
    """`gate.values()` of plain gates, all at once."""
    sizes = tuple(gate.size for gate in gates)
    logits = precise(torch.cat([gate.logits for gate in gates]))
    raw = precise(torch.stack([gate.raw_sharpness for gate in gates]))
    with torch.no_grad():
        owner = _owner(sizes, logits.device)
        open_now = _open(gates, logits.detach(), owner)
    apply: Any = _Values.apply
    values: Tensor = apply(logits, raw, open_now, owner)
    return list(values.to(gates[0].logits.dtype).split(sizes))


def pooled_penalty(
    gates: Sequence[Gate], strengths: Sequence[float]
) -> Float[Tensor, ""]:
    """Sum of `strength * gate.prob_open().sum()` over plain gates, all at once."""
    sizes = tuple(gate.size for gate in gates)
    logits = precise(torch.cat([gate.logits for gate in gates]))
    sigmas = tuple(gate.sigma for gate in gates)
    with torch.no_grad():
        owner = _owner(sizes, logits.device)
        thresholds = torch.stack([gate.threshold for gate in gates]).to(logits).logit()
        scaled = logits.detach() - thresholds[owner]
        held = _held(gates, scaled > 0, owner)
        scaled /= _spread(sigmas, sizes, logits.dtype, logits.device)
        strength = _spread(tuple(strengths), sizes, logits.dtype, logits.device)
        free = strength if held is None else strength.masked_fill(held, 0.0)
        certain = 0.0 if held is None else float((strength - free).sum())
        slope = free / _spread(sigmas, sizes, logits.dtype, logits.device)
    apply: Any = _Penalty.apply
    return apply(logits, scaled, free, slope, certain)


@lru_cache(maxsize=64)
def _owner(sizes: tuple[int, ...], device: torch.device) -> Int[Tensor, " all"]:
    """The number of the gate that each unit belongs to."""
    numbers = torch.arange(len(sizes), device=device)
    return numbers.repeat_interleave(torch.tensor(sizes, device=device))


@lru_cache(maxsize=64)
def _spread(
    numbers: tuple[float, ...],
    sizes: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Float[Tensor, " all"]:
    """One number per gate, repeated for each of its units."""
    return torch.tensor(numbers, dtype=dtype, device=device)[_owner(sizes, device)]


def _sums(x: Tensor, owner: Int[Tensor, " all"], gates: int) -> Float[Tensor, " gates"]:
    return x.new_zeros(gates).index_add_(0, owner, x)


def _open(
    gates: Sequence[Gate], logits: Float[Tensor, " all"], owner: Int[Tensor, " all"]
) -> Float[Tensor, " all"]:
    """One where a unit is open, else zero; gates with few are asked themselves."""
    thresholds = torch.stack([gate.threshold for gate in gates]).to(logits)
    open_now = (logits.sigmoid() > thresholds[owner]).to(logits)
    counts = _sums(open_now, owner, len(gates)).tolist()
    for number, gate in enumerate(gates):
        if counts[number] < gate.min_open:
            open_now[owner == number] = gate.is_open().to(logits)
    return open_now


def _held(
    gates: Sequence[Gate], above: Bool[Tensor, " all"], owner: Int[Tensor, " all"]
) -> Bool[Tensor, " all"] | None:
    """Units that the floor of their gate does not allow to close."""
    counts = _sums(above.float(), owner, len(gates)).tolist()
    at_floor = [n for n, count in enumerate(counts) if count <= gates[n].min_open]
    if not at_floor:
        return None
    held = torch.zeros_like(above)
    for number in at_floor:
        held[owner == number] = gates[number].is_open()
    return held


class _Values(torch.autograd.Function):
    """Deviations from the mean of the open units, per gate, around one."""

    @staticmethod
    def forward(
        ctx: Context, logits: Tensor, raw: Tensor, is_open: Tensor, owner: Tensor
    ) -> Tensor:
        activation = logits.sigmoid()
        counts = _sums(is_open, owner, len(raw)).clamp(min=1)
        deviation = _centred(activation, is_open, counts, owner)
        spread = raw.abs().neg().exp()
        saved = (activation, is_open, counts, deviation, spread, raw, owner)
        ctx.save_for_backward(*saved)
        return torch.addcmul(is_open, deviation, spread[owner])

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride] - the one output's gradient
        activation, is_open, counts, deviation, spread, raw, owner = ctx.saved_tensors
        scaled = grad * spread[owner]
        slope = activation * (1 - activation)
        of_logits = _centred(scaled, is_open, counts, owner) * slope
        # Sharpness is |raw|; at zero its slope counts as that of negative numbers.
        of_spread = _sums(scaled * deviation, owner, len(raw))
        of_raw = of_spread * torch.where(raw > 0, -1, 1)
        return of_logits, of_raw, None, None


def _centred(x: Tensor, is_open: Tensor, counts: Tensor, owner: Tensor) -> Tensor:
    kept = x * is_open
    mean = _sums(kept, owner, len(counts)) / counts
    return torch.addcmul(kept, mean[owner], is_open, value=-1)


class _Penalty(torch.autograd.Function):
    """Strength times the normal distribution function of the margin, summed."""

    @staticmethod
    def forward(
        ctx: Context,
        logits: Tensor,
        scaled: Tensor,
        strength: Tensor,
        slope: Tensor,
        certain: float,
    ) -> Tensor:
        del logits
        ctx.save_for_backward(scaled, slope)
        return (torch.special.ndtr(scaled) * strength).sum() + certain

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride] - the one output's gradient
        scaled, slope = ctx.saved_tensors
        density = torch.exp(-0.5 * scaled.square()) * (slope * (2 * torch.pi) ** -0.5)
        return grad * density, None, None, None, None
