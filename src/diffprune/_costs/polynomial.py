"""A cost as a polynomial in the widths of groups.

Every parameter, product or activation has one element per point of a grid: its size is
the product of the lengths of its axes, and the length of an axis is a sum of products
of widths. So each cost that counts elements is a polynomial, written down once, before
training: a removal changes the widths and nothing else.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from diffprune._core.types import Float, Int
from diffprune._graph import Atom, Axes, Axis, Cat

Monomial = tuple[int, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of terms, each a coefficient times a product of widths.

    Attributes:
        terms: The coefficient of every product, which is given by the numbers of its
            widths in rising order; a width that appears twice is squared.
        num_widths: How many widths there are.

    Examples:
        >>> area_and_border = Polynomial({(0, 1): 1, (0,): 2, (1,): 2, (): 4}, 2)
        >>> area_and_border(torch.tensor([3.0, 5.0]))
        tensor(35., dtype=torch.float64)
    """

    terms: Mapping[Monomial, int]
    num_widths: int

    def __call__(self, widths: Float[Tensor, " widths"]) -> Float[Tensor, ""]:
        """The cost at these widths, differentiable in them."""
        factors, coefficients = self._table
        known = torch.cat([widths.double().cpu(), torch.ones(1, dtype=torch.float64)])
        return known[factors].prod(-1) @ coefficients

    @cached_property
    def _table(self) -> tuple[Int[Tensor, "terms degree"], Float[Tensor, " terms"]]:
        degree = max(map(len, self.terms), default=0)
        # Short products are filled up with a width that is always one.
        places = [(*m, *[self.num_widths] * (degree - len(m))) for m in self.terms]
        factors = torch.tensor(places, dtype=torch.long).reshape(len(places), degree)
        return factors, torch.tensor([*self.terms.values()], dtype=torch.float64)


def polynomial(
    tensors: Iterable[tuple[Axes, int]],
    widths: Sequence[Atom],
    *,
    vary: Collection[Atom] | None = None,
    constant: int = 0,
) -> Polynomial:
    """Total size of tensors as a polynomial in the sizes of some atoms.

    Args:
        tensors: The axes of each, and what one of its elements costs.
        widths: The atoms whose sizes are the widths, in order.
        vary: Those of them that vary, by default all; other atoms keep their size.
        constant: What is there whatever the widths are.
    """
    numbers = {a: n for n, a in enumerate(widths) if vary is None or a in vary}
    total = Counter[Monomial]({(): constant})
    for axes, price in tensors:
        factors = tuple(factor for axis in axes for factor in axis)
        for monomial, coefficient in _expand(factors, numbers).items():
            total[monomial] += coefficient * price
    terms = {monomial: value for monomial, value in total.items() if value}
    return Polynomial(terms, len(widths))


def _expand(axis: Axis, numbers: Mapping[Atom, int]) -> Counter[Monomial]:
    product = Counter[Monomial]({(): 1})
    for factor in axis:
        product = _times(product, _factor(factor, numbers))
    return product


def _factor(factor: Atom | Cat, numbers: Mapping[Atom, int]) -> Counter[Monomial]:
    if isinstance(factor, Cat):
        return sum((_expand(part, numbers) for part in factor.parts), Counter())
    known = factor in numbers
    return Counter({(numbers[factor],): 1} if known else {(): factor.size})


def _times(left: Counter[Monomial], right: Counter[Monomial]) -> Counter[Monomial]:
    product = Counter[Monomial]()
    for one, a in left.items():
        for other, b in right.items():
            product[tuple(sorted(one + other))] += a * b
    return product
