"""Ridge regression from batches: sums are kept, and rows only while they are few.

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
        self._seen = 0

    def add(
        self,
        inputs: Float[Tensor, "rows groups features"],
        targets: Float[Tensor, "rows groups outputs"],
    ) -> None:
        """Take some more rows into account; those that are not finite tell nothing."""
        is_finite = _are_finite(inputs) & _are_finite(targets)
        inputs, targets = inputs[is_finite], targets[is_finite]
        numbers = torch.arange(self._seen, self._seen + len(inputs))
        self._seen += len(inputs)
        held = (numbers % _HELD_OUT == _HELD_OUT - 1).to(inputs.device)
        self._fitted.add(inputs[~held], targets[~held])
        self._held.add(inputs[held], targets[held])

    @property
    def count(self) -> int:
        """How many rows there are to fit to."""
        return self._fitted.count

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
        matrix = start + moments.solved(start, ridge)
        new_offset = moments.offset(matrix)
        check = self._held if self._held.count else self._fitted
        found = check.moments(centred=self._is_centred)
        before = found.error(start, offset if self._is_centred else None)
        after = found.error(matrix, new_offset if self._is_centred else None)
        return Fit(matrix, new_offset, before, after)


def _pulled(
    gram: Float[Tensor, "groups n n"], pull: Float[Tensor, " groups"], left: Tensor
) -> Tensor:
    """The solution with so much added to the diagonal; zero if there is none."""
    pull = pull.clamp(min=_SMALLEST_PIVOT)[:, None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, info = torch.linalg.cholesky_ex(gram + pull * eye)
    if bool(info.any()):  # numbers that overflowed, or are not numbers
        return torch.zeros_like(left)
    return torch.cholesky_solve(left, factor)


def _are_finite(rows: Tensor) -> Tensor:
    """Which rows hold nothing but finite numbers."""
    return rows.isfinite().flatten(1).all(1)


def _part(left: float, whole: float) -> float:
    return max(0.0, left) / whole if whole > 0 else 0.0


@dataclass(frozen=True)
class _Means:
    """What the means are if they were taken off."""

    inputs: Float[Tensor, "groups features"]
    targets: Float[Tensor, "groups outputs"]

    def offset(self, matrix: Tensor) -> Float[Tensor, "groups outputs"]:
        """What has to be added to the product."""
        return self.targets - torch.einsum("gf,gfo->go", self.inputs, matrix)

    def missing(self, matrix: Tensor, offset: Tensor | None) -> float:
        """What another offset costs; none is the best one."""
        if offset is None:
            return 0.0
        missing = self.offset(matrix) - offset.double().view_as(self.targets)
        return float(missing.square().sum())


@dataclass(frozen=True)
class _FewRows(_Means):
    """Fewer rows than features, as they are: then products of rows are the smaller."""

    rows: Float[Tensor, "groups rows features"]
    aims: Float[Tensor, "groups rows outputs"]

    def solved(self, start: Tensor, ridge: float) -> Tensor:
        """What to add to a matrix."""
        count, length = self.rows.shape[1:]
        pull = ridge * self.rows.square().sum((1, 2)) / (count * length)
        left = (self.aims - self.rows @ start) / count
        gram = self.rows @ self.rows.mT / count
        return self.rows.mT @ _pulled(gram, pull, left)

    def error(self, matrix: Tensor, offset: Tensor | None) -> float:
        """What part of the targets' variance is left, with the best offset if none."""
        count = self.rows.shape[1]
        left = float((self.aims - self.rows @ matrix).square().sum()) / count
        whole = float(self.aims.square().sum()) / count
        return _part(self.missing(matrix, offset) + left, whole)


@dataclass(frozen=True)
class _Moments(_Means):
    """Second moments per row."""

    gram: Float[Tensor, "groups features features"]
    cross: Float[Tensor, "groups features outputs"]
    square: Float[Tensor, " groups"]

    def solved(self, start: Tensor, ridge: float) -> Tensor:
        """What to add to a matrix."""
        pull = ridge * self.gram.diagonal(dim1=-2, dim2=-1).mean(-1)
        return _pulled(self.gram, pull, self.cross - self.gram @ start)

    def error(self, matrix: Tensor, offset: Tensor | None) -> float:
        """What part of the targets' variance is left, with the best offset if none."""
        left = (
            self.square.sum()
            - 2 * (matrix * self.cross).sum()
            + (matrix * (self.gram @ matrix)).sum()
        )
        whole = float(self.square.sum())
        return _part(self.missing(matrix, offset) + float(left), whole)


@final
class _Sums:
    """Running sums, in double precision, of numbers shifted by the first means.

    As long as there are fewer rows than features, it is they that are kept.
    """

    def __init__(self) -> None:
        self.count = 0
        self._rows = list[tuple[Tensor, Tensor]]()
        self._shifts: tuple[Tensor, Tensor] | None = None
        self._sums: list[Tensor] = []

    def add(self, inputs: Tensor, targets: Tensor) -> None:
        """Take some more rows into account."""
        if not len(inputs):
            return
        self.count += len(inputs)
        if self._shifts is None:
            self._rows.append((inputs, targets))
            if self.count <= inputs.shape[-1]:
                return
            inputs, targets = self._few()
            self._rows.clear()
            self._shifts = inputs.mean(0), targets.mean(0)
        self._add(inputs - self._shifts[0], targets - self._shifts[1])

    def _few(self) -> tuple[Tensor, Tensor]:
        """All rows, while they are kept."""
        inputs, targets = zip(*self._rows, strict=True)
        return torch.cat(inputs), torch.cat(targets)

    def _add(self, a: Tensor, t: Tensor) -> None:
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

    def moments(self, *, centred: bool) -> _Moments | _FewRows:
        """Means of products; of differences from the means, if they are centred."""
        if self._shifts is None:
            return self._as_rows(centred=centred)
        a, t, gram, cross, square = (part / self.count for part in self._sums)
        shift_a, shift_t = (shift.double() for shift in self._shifts)
        inputs, targets = shift_a + a, shift_t + t
        gram = gram - a[:, :, None] * a[:, None, :]
        cross = cross - a[:, :, None] * t[:, None, :]
        square = square - t.square().sum(-1)
        if centred:
            return _Moments(inputs, targets, gram, cross, square)
        none = torch.zeros_like(inputs), torch.zeros_like(targets)
        gram = gram + inputs[:, :, None] * inputs[:, None, :]
        cross = cross + inputs[:, :, None] * targets[:, None, :]
        return _Moments(*none, gram, cross, square + targets.square().sum(-1))

    def _as_rows(self, *, centred: bool) -> _FewRows:
        rows, aims = (part.double() for part in self._few())
        means = rows.mean(0), aims.mean(0)
        if not centred:
            means = torch.zeros_like(means[0]), torch.zeros_like(means[1])
        rows, aims = rows - means[0], aims - means[1]
        return _FewRows(*means, rows.transpose(0, 1), aims.transpose(0, 1))
