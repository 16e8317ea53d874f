"""What the time of an op is interpolated along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from diffprune._core.types import Float
from diffprune._costs.polynomial import Polynomial, polynomial
from diffprune._graph import Atom, Axes, atoms_of, volume

FRACTIONS: Final = (1 / 16, 1 / 4, 1 / 2, 3 / 4, 1.0)


@dataclass(frozen=True)
class Scale:
    """A length that depends on widths, and sizes to take timings at.

    Attributes:
        length: The length as a function of the widths.
        sizes: Sizes of atoms at which it is shorter and shorter, the whole one last.
        knots: The length at each of these.
    """

    length: Polynomial
    sizes: Sequence[Mapping[Atom, int]]
    knots: tuple[int, ...]

    def padded(self) -> Float[Tensor, " knots"]:
        """As many knots for every scale; those beyond the whole length are unused."""
        missing = len(FRACTIONS) - len(self.knots)
        beyond = [self.knots[-1] + 1 + n for n in range(missing)]
        return torch.tensor([*self.knots, *beyond], dtype=torch.float64)


def narrowed(size: int, fraction: float) -> int:
    """A width like those that remain after a removal: odd, but for the whole one.

    Even ones, and multiples of sixteen above all, are faster than what lies between.
    """
    return size if fraction == 1 else min(size, round(fraction * size) | 1)


def make_scale(
    same: Sequence[Atom], tensors: Sequence[Axes], widths: Sequence[Atom]
) -> Scale:
    """A scale for atoms that change together.

    One atom is measured by its own size, several by the tensors they fill, none by
    nothing.

    Args:
        same: The atoms.
        tensors: The axes of all tensors of an op.
        widths: The atoms whose sizes are the widths, in order.
    """
    filled = [((same[0],),)] if len(same) == 1 else _filled(same, tensors)
    by_length = dict[int, Mapping[Atom, int]]()
    for fraction in FRACTIONS:
        sizes = {atom: narrowed(atom.size, fraction) for atom in same}
        by_length[sum(volume(axes, sizes) for axes in filled)] = sizes
    length = polynomial(((axes, 1) for axes in filled), widths, vary=same)
    return Scale(length, tuple(by_length.values()), tuple(by_length))


def _filled(same: Sequence[Atom], tensors: Sequence[Axes]) -> list[Axes]:
    return [axes for axes in tensors if not atoms_of(axes).isdisjoint(same)]
