"""Ridge regression from batches: sums are kept, rows are not.

What goes in are rows of inputs and of targets, batch after batch; what comes out is the
matrix that maps one to the other best, close to one that is given. Every eighth row is
held out: it says by how much the error fell, on rows that were not fitted.
"""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from diffprune._core.types import Float

RIDGE: Final = 1e-2
_HELD_OUT: Final = 8
_SMALLEST_PIVOT: Final = 1e-12


@dataclass(frozen=True)
class Fit:
    """A matrix per group, what is added, and what they leave of the targets.

    Attributes:
        matrix: Maps inputs to targets.
        offset: What is added to that.
        before: Mean square error of the given matrix, as a part of the targets'
            variance, on rows that were held out.
        after: The same for the new one.
    """

    matrix: Float[Tensor, "groups features outputs"]
    offset: Float[Tensor, "groups outputs"]
    before: float
    after: float


@final
class LeastSquares:
    """Sums over rows, from which the best matrix follows.

    Args:
        centred: Whether something is added to the product, so that only differences
            from the means have to be explained.

    Examples:
        >>> rows = torch.rand(64, 1, 3).double()
        >>> true = torch.tensor([[[1.0], [2.0], [3.0]]]).double()
        >>> sums = LeastSquares()
        >>> for some in rows.split(16):
        ...     sums.add(some, some @ true)
        >>> sums.solve(torch.zeros_like(true), ridge=1e-12).matrix.flatten()
        tensor([1.0000, 2.0000, 3.0000], dtype=torch.float64)
    """

    def __init__(self, *, centred: bool = True) -> None:
        self._is_centred = centred
        self._fitted, self._held = _Sums(), _Sums()

    def add(
        self,
        inputs: Float[Tensor, "rows groups features"],
        targets: Float[Tensor, "rows groups outputs"],
    ) -> None:
        """Take some more rows into account."""
        held = torch.arange(len(inputs)) % _HELD_OUT == _HELD_OUT - 1
        held = held.to(inputs.device)
        self._fitted.add(inputs[~held], targets[~held])
        self._held.add(inputs[held], targets[held])

    def solve(
        self,
        start: Float[Tensor, "groups features outputs"],
        *,
        offset: Float[Tensor, " all_outputs"] | None = None,
        ridge: float = RIDGE,
    ) -> Fit:
        """The best matrix near a given one.

        Args:
            start: What the ridge pulls to.
            offset: What was added to the product so far; if it is not given, the error
                before is that with the best offset.
            ridge: How hard, in units of the inputs' mean variance.
        """
        start = start.double()
        moments = self._fitted.moments(centred=self._is_centred)
        matrix = start + _solved(moments, start, ridge)
        new_offset = moments.offset(matrix)
        check = self._held if self._held.count else self._fitted
        found = check.moments(centred=self._is_centred)
        before = found.error(start, offset if self._is_centred else None)
        after = found.error(matrix, new_offset if self._is_centred else None)
        return Fit(matrix, new_offset, before, after)


def _solved(moments: "_Moments", start: Tensor, ridge: float) -> Tensor:
    gram = moments.gram
    mean = gram.diagonal(dim1=-2, dim2=-1).mean(-1)
    pull = (ridge * mean).clamp(min=_SMALLEST_PIVOT)[:, None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    left = moments.cross - gram @ start
    factor, info = torch.linalg.cholesky_ex(gram + pull * eye)
    if bool(info.any()):  # numbers that overflowed, or are not numbers
        return torch.zeros_like(start)
    return torch.cholesky_solve(left, factor)


@dataclass(frozen=True)
class _Moments:
    """Second moments per row, and what the means are if they were taken off."""

    gram: Float[Tensor, "groups features features"]
    cross: Float[Tensor, "groups features outputs"]
    square: Float[Tensor, " groups"]
    inputs: Float[Tensor, "groups features"]
    targets: Float[Tensor, "groups outputs"]

    def offset(self, matrix: Tensor) -> Float[Tensor, "groups outputs"]:
        return self.targets - torch.einsum("gf,gfo->go", self.inputs, matrix)

    def error(self, matrix: Tensor, offset: Tensor | None) -> float:
        """What part of the targets' variance is left, with the best offset if none."""
        missing = 0.0
        if offset is not None:
            missing = self.offset(matrix) - offset.double().view_as(self.targets)
            missing = float(missing.square().sum())
        left = missing + (
            self.square.sum()
            - 2 * (matrix * self.cross).sum()
            + (matrix * (self.gram @ matrix)).sum()
        )
        whole = float(self.square.sum())
        return max(0.0, float(left)) / whole if whole > 0 else 0.0


@final
class _Sums:
    """Running sums, in double precision, of numbers shifted by the first means."""

    def __init__(self) -> None:
        self.count = 0
        self._shifts: tuple[Tensor, Tensor] | None = None
        self._sums: list[Tensor] = []

    def add(self, inputs: Tensor, targets: Tensor) -> None:
        if not len(inputs):
            return
        if self._shifts is None:
            self._shifts = inputs.mean(0), targets.mean(0)
        a, t = inputs - self._shifts[0], targets - self._shifts[1]
        by_group, aims = a.transpose(0, 1), t.transpose(0, 1)
        new = [
            a.sum(0),
            t.sum(0),
            by_group.mT @ by_group,
            by_group.mT @ aims,
            t.square().sum((0, 2)),
        ]
        new = [part.double() for part in new]
        self._sums = (
            [s + n for s, n in zip(self._sums, new, strict=True)] if self._sums else new
        )
        self.count += len(inputs)

    def moments(self, *, centred: bool) -> _Moments:
        """Means of products; of differences from the means, if they are centred."""
        assert self._shifts is not None  # noqa: S101 - rows were added
        a, t, gram, cross, square = (part / self.count for part in self._sums)
        shift_a, shift_t = (shift.double() for shift in self._shifts)
        inputs, targets = shift_a + a, shift_t + t
        gram = gram - a[:, :, None] * a[:, None, :]
        cross = cross - a[:, :, None] * t[:, None, :]
        square = square - t.square().sum(-1)
        if centred:
            return _Moments(gram, cross, square, inputs, targets)
        none = torch.zeros_like(inputs), torch.zeros_like(targets)
        gram = gram + inputs[:, :, None] * inputs[:, None, :]
        cross = cross + inputs[:, :, None] * targets[:, None, :]
        return _Moments(gram, cross, square + targets.square().sum(-1), *none)
