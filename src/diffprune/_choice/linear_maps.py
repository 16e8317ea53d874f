"""Calls that are linear in a weight, as matrices: rows of inputs, rows of outputs.

A linear layer, a convolution and a transposed convolution are all `outputs = rows @
weight`, group by group, once their inputs are laid out as rows: one row for each output
position, with all that the weight meets there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from diffprune._choice.watch import FunctionCall
from diffprune._core.types import Float, Int

Rows = Int[Tensor, " rows"]


class LinearMap(Protocol):
    """One call that is linear in a weight.

    Attributes:
        weight: The weight.
        bias: What is added to every row of outputs, if anything.
        x: What the weight is multiplied with.
    """

    @property
    def weight(self) -> Tensor: ...
    @property
    def bias(self) -> Tensor | None: ...
    @property
    def x(self) -> Tensor: ...
    @property
    def channels(self) -> int:
        """How many outputs there are at each position."""
        ...

    @property
    def rows(self) -> tuple[int, ...]:
        """The shape of the inputs without what is summed over."""
        ...

    @property
    def input_dim(self) -> int:
        """The dimension of the weight that is summed over."""
        ...

    def features(self, x: Tensor) -> Float[Tensor, "... features"]:
        """A tensor like the inputs, with what is summed over as its last dimension."""
        ...

    def kept_outputs(self, kept: Mapping[int, Sequence[int]]) -> Sequence[int] | None:
        """Outputs that stay when some indices of the weight do; None if all do."""
        ...

    def inputs(self, y: Tensor, rows: Rows) -> Float[Tensor, "rows groups features"]:
        """What the weight meets at some of the output positions."""
        ...

    def outputs(self, y: Tensor, rows: Rows) -> Float[Tensor, "rows groups outputs"]:
        """The outputs there, given all outputs."""
        ...

    def matrix(self, weight: Tensor) -> Float[Tensor, "groups features outputs"]:
        """A weight of this shape as a matrix per group."""
        ...

    def unmatrix(
        self, matrix: Float[Tensor, "groups features outputs"], shape: torch.Size
    ) -> Tensor:
        """The weight of this shape that has such matrices."""
        ...


@dataclass(frozen=True, eq=False)
class Dense:
    """`x @ weight.T + bias`, or `x @ weight + bias` if the weight is not transposed."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    is_transposed: bool = True

    @property
    def channels(self) -> int:
        """Length of a row of outputs."""
        return self.weight.shape[1 - self.input_dim]

    @property
    def rows(self) -> tuple[int, ...]:
        """All but the last dimension."""
        return tuple(self.x.shape[:-1])

    def features(self, x: Tensor) -> Float[Tensor, "... features"]:
        """As it is."""
        return x

    @property
    def input_dim(self) -> int:
        """The dimension of the weight that is summed over."""
        return 1 if self.is_transposed else 0

    def kept_outputs(self, kept: Mapping[int, Sequence[int]]) -> Sequence[int] | None:
        """What is kept of the other dimension."""
        return kept.get(1 - self.input_dim)

    def inputs(self, y: Tensor, rows: Rows) -> Float[Tensor, "rows 1 features"]:
        """Rows of the inputs."""
        del y
        return self.x.reshape(-1, self.x.shape[-1])[rows][:, None]

    def outputs(self, y: Tensor, rows: Rows) -> Float[Tensor, "rows 1 outputs"]:
        """Rows of the outputs."""
        return y.reshape(-1, y.shape[-1])[rows][:, None]

    def matrix(self, weight: Tensor) -> Float[Tensor, "1 features outputs"]:
        """Features first."""
        return (weight.T if self.is_transposed else weight)[None]

    def unmatrix(self, matrix: Tensor, shape: torch.Size) -> Tensor:
        """Back to how the layer has it."""
        del shape
        return matrix[0].T if self.is_transposed else matrix[0]


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, of any number of dimensions and groups.

    Attributes:
        stride: By how much the window moves, per dimension.
        dilation: How far apart the elements of the window are.
        before: Zeros to add in front, per dimension; cut off if negative.
        after: Zeros to add behind.
        groups: How many groups of channels do not see each other.
        apart: How many places apart the inputs are put: transposed convolutions are
            ordinary ones of inputs with zeros in between.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Sequence[int]
    dilation: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    groups: int
    apart: Sequence[int]
    is_transposed: bool = False

    @property
    def channels(self) -> int:
        """Channels of the outputs."""
        return (
            self.weight.shape[1] * self.groups
            if self.is_transposed
            else (self.weight.shape[0])
        )

    @property
    def rows(self) -> tuple[int, ...]:
        """All but the channels."""
        return tuple(self.features(self.x).shape[:-1])

    def features(self, x: Tensor) -> Float[Tensor, "... channels"]:
        """Channels last."""
        return x.movedim(-self._space - 1, -1)

    @property
    def input_dim(self) -> int:
        """The dimension of the weight that is summed over."""
        return 0 if self.is_transposed else 1

    def kept_outputs(self, kept: Mapping[int, Sequence[int]]) -> Sequence[int] | None:
        """Channels of a transposed convolution repeat for each group that stays."""
        if not self.is_transposed:
            return kept.get(0)
        if not kept.keys() & {0, 1} or (self.groups == 1 and 1 not in kept):
            return None
        inputs, outputs = self.weight.shape[0] // self.groups, self.weight.shape[1]
        rows, columns = kept.get(0, range(self.weight.shape[0])), kept.get(1)
        groups = sorted({row // inputs for row in rows})
        return [g * outputs + o for g in groups for o in columns or range(outputs)]

    @property
    def _space(self) -> int:
        return self.weight.ndim - 2

    def inputs(self, y: Tensor, rows: Rows) -> Float[Tensor, "rows groups features"]:
        """Windows of the inputs."""
        shape = (-1, *y.shape[-self._space :])
        batch = y.numel() // (y.shape[-self._space - 1] * math.prod(shape[1:]))
        places = torch.unravel_index(rows, (batch, *shape[1:]))
        found = self._windows[places[0], :, *places[1:]]
        return found.reshape(len(rows), self.groups, -1)

    def outputs(self, y: Tensor, rows: Rows) -> Float[Tensor, "rows groups outputs"]:
        """Channels of the outputs."""
        channels = y.shape[-self._space - 1]
        batched = y.reshape(-1, channels, *y.shape[-self._space :])
        flat = batched.movedim(1, -1).reshape(-1, channels)
        return flat[rows].reshape(len(rows), self.groups, -1)

    def matrix(self, weight: Tensor) -> Float[Tensor, "groups features outputs"]:
        """Features are an input channel and a place in the window."""
        if self.is_transposed:
            flipped = weight.flip(*range(2, weight.ndim))
            each = flipped.unflatten(0, (self.groups, -1)).movedim(2, -1)
            return each.flatten(1, -2)
        return weight.unflatten(0, (self.groups, -1)).flatten(2).transpose(1, 2)

    def unmatrix(self, matrix: Tensor, shape: torch.Size) -> Tensor:
        """Back to how the layer has it."""
        if self.is_transposed:
            each = matrix.unflatten(1, (-1, *shape[2:])).movedim(-1, 2)
            return each.flatten(0, 1).flip(*range(2, len(shape)))
        return matrix.transpose(1, 2).reshape(shape)

    @cached_property
    def _windows(self) -> Float[Tensor, "batch channels positions* window*"]:
        """All windows, as a view: nothing is copied before rows are chosen."""
        space = self._space
        x = self.x.reshape(-1, *self.x.shape[-space - 1 :])
        x = F.pad(_spread(x, self.apart), self._padding).contiguous()
        window = self.weight.shape[2:]
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, window, strict=True)]
        out = [
            (length - r) // s + 1
            for length, r, s in zip(x.shape[2:], reach, self.stride, strict=True)
        ]
        steps = x.stride()[2:]
        moves = [step * s for step, s in zip(steps, self.stride, strict=True)]
        inside = [step * d for step, d in zip(steps, self.dilation, strict=True)]
        return x.as_strided(
            (*x.shape[:2], *out, *window), (*x.stride()[:2], *moves, *inside)
        )

    @property
    def _padding(self) -> list[int]:
        pairs = zip(reversed(self.before), reversed(self.after), strict=True)
        return [zeros for pair in pairs for zeros in pair]


def _spread(x: Tensor, apart: Sequence[int]) -> Tensor:
    if all(a == 1 for a in apart):
        return x
    lengths = [
        (length - 1) * a + 1 for length, a in zip(x.shape[2:], apart, strict=True)
    ]
    wide = x.new_zeros(*x.shape[:2], *lengths)
    wide[(..., *(slice(None, None, a) for a in apart))] = x
    return wide


_MATMULS: Final = ("matmul", "mm")


def linear_map(call: FunctionCall) -> LinearMap | None:
    """A call as a linear map, if it is one of a real matrix or convolution."""
    if any(tensor.is_complex() for tensor in call.tensors):
        return None
    if call.name == "linear":
        weight, bias = call.argument(1, "weight"), call.argument(2, "bias")
        x = call.argument(0, "input")
        return Dense(x, weight, bias) if weight.ndim == 2 else None
    if call.name in _MATMULS and len(call.tensors) == 2:
        x, weight = call.tensors
        return Dense(x, weight, None, is_transposed=False) if weight.ndim == 2 else None
    if call.name == "addmm" and not call.kwargs and len(call.tensors) == 3:
        bias, x, weight = call.tensors
        is_bias = bias.ndim == 1
        return Dense(x, weight, bias, is_transposed=False) if is_bias else None
    if call.name.startswith("conv_transpose"):
        return _transposed(call)
    return _convolution(call) if call.name in _CONVOLUTIONS else None


_CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")


def _convolution(call: FunctionCall) -> Convolution:
    weight = call.argument(1, "weight")
    space = weight.ndim - 2
    dilation = _each(call.argument(5, "dilation", 1), space)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    padding = call.argument(4, "padding", 0)
    if isinstance(padding, str):
        total = reach if padding == "same" else [0] * space
        before = [zeros // 2 for zeros in total]
        after = [zeros - zeros // 2 for zeros in total]
    else:
        before = after = _each(padding, space)
    return Convolution(
        call.argument(0, "input"),
        weight,
        call.argument(2, "bias"),
        _each(call.argument(3, "stride", 1), space),
        dilation,
        before,
        after,
        call.argument(6, "groups", 1),
        [1] * space,
    )


def _transposed(call: FunctionCall) -> Convolution:
    weight = call.argument(1, "weight")
    space = weight.ndim - 2
    dilation = _each(call.argument(7, "dilation", 1), space)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    padding = _each(call.argument(4, "padding", 0), space)
    more = _each(call.argument(5, "output_padding", 0), space)
    before = [r - p for r, p in zip(reach, padding, strict=True)]
    return Convolution(
        call.argument(0, "input"),
        weight,
        call.argument(2, "bias"),
        [1] * space,
        dilation,
        before,
        [b + m for b, m in zip(before, more, strict=True)],
        call.argument(6, "groups", 1),
        _each(call.argument(3, "stride", 1), space),
        is_transposed=True,
    )


def _each(value: int | Sequence[int], space: int) -> list[int]:
    given = [value] if isinstance(value, int) else list(value)
    return given * space if len(given) == 1 else given
