"""Rules for Fourier transforms, and for complex numbers as pairs of real ones."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from diffprune._graph.ops.pointwise import elementwise, same
from diffprune._graph.ops.zero_rules import zero_if_all, zero_if_first
from diffprune._graph.rule_api import Anything, Axes, Call, Op, OpRule, Value

aten = torch.ops.aten
_MIXED = "every element of it takes part in each frequency"
_MOVED = "its elements change places"


def transform(
    call: Call, x: Value, _length: int | None = None, dim: int = -1, *_norm: Anything
) -> Axes:
    """Frequencies of one axis, or back; the other axes stay."""
    return _mixed(call, x, [dim])


def transforms(
    call: Call,
    x: Value,
    lengths: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    *_norm: Anything,
) -> Axes:
    """Frequencies of several axes: those named, or the last ones, or all."""
    if dims is None:
        dims = range(-len(x.axes if lengths is None else lengths), 0)
    return _mixed(call, x, dims)


def transforms_of_planes(
    call: Call,
    x: Value,
    _lengths: Sequence[int] | None = None,
    dims: Sequence[int] = (-2, -1),
    *_norm: Anything,
) -> Axes:
    """Frequencies of two axes."""
    return _mixed(call, x, dims)


def shifted(call: Call, x: Value, dims: Sequence[int] | None = None) -> Axes:
    """The middle of some axes, or of all, comes first, or back."""
    for axis in x.axes if dims is None else [x.axes[dim] for dim in dims]:
        call.freeze(axis, _MOVED)
    return x.axes


def _mixed(call: Call, x: Value, dims: Sequence[int]) -> Axes:
    axes = list(x.axes)
    for dim in dims:
        call.freeze(axes[dim], _MIXED)
        (axes[dim],) = call.frozen(_MIXED, call.shape[dim])
    return tuple(axes)


def as_real(call: Call, x: Value) -> Axes:
    """Real and imaginary parts, along one axis more."""
    return (*x.axes, *call.frozen("real and imaginary parts", 2))


def as_complex(call: Call, x: Value) -> Axes:
    """Complex numbers, from the parts along the last axis."""
    call.freeze(x.axes[-1], "real and imaginary parts")
    return x.axes[:-1]


_ONE = (
    aten.fft_fft, aten.fft_ifft, aten.fft_rfft, aten.fft_irfft, aten.fft_hfft,
    aten.fft_ihfft,
)  # fmt: skip
_PLANES = (aten.fft_fft2, aten.fft_ifft2, aten.fft_rfft2, aten.fft_irfft2)
_MANY = (aten.fft_fftn, aten.fft_ifftn, aten.fft_rfftn, aten.fft_irfftn)
_SHIFTS = (aten.fft_fftshift, aten.fft_ifftshift)
_PARTS = (
    aten.real, aten.imag, aten.conj, aten._conj, aten.conj_physical, aten.resolve_conj,
    aten.resolve_neg,
)  # fmt: skip

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys(_ONE, OpRule(transform, zeros=zero_if_first)),
    **dict.fromkeys(_PLANES, OpRule(transforms_of_planes, zeros=zero_if_first)),
    **dict.fromkeys(_MANY, OpRule(transforms, zeros=zero_if_first)),
    **dict.fromkeys(_SHIFTS, OpRule(shifted, zeros=zero_if_first)),
    **dict.fromkeys(_PARTS, OpRule(same, zeros=zero_if_first, may_return_input=True)),
    aten.view_as_real: OpRule(as_real, zeros=zero_if_first),
    aten.view_as_complex: OpRule(as_complex, zeros=zero_if_first),
    aten.complex: OpRule(elementwise, zeros=zero_if_all),
    aten.polar: OpRule(elementwise, zeros=zero_if_first),
}
