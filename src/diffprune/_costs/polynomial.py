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


@dataclass(frozen=True, eq=False)
class _Table:
    """The terms of a polynomial and of its derivatives, as tensors.

    Attributes:
        factors: Numbers of the widths in each term.
        coefficients: Of the terms.
        others: The same for every term without one of its widths.
        slopes: The coefficients of these.
        numbers: Which width each of them is without.
    """

    factors: Int[Tensor, "terms degree"]
    coefficients: Float[Tensor, " terms"]
    others: Int[Tensor, "parts less"]
    slopes: Float[Tensor, " parts"]
    numbers: Int[Tensor, " parts"]


@dataclass(frozen=True)
class Polynomial:
    """A sum of terms, each a coefficient times a product of widths.

    Attributes:
        terms: The coefficient of every product, which is given by the numbers of its
            widths in rising order; a width that appears twice is squared.
        num_widths: How many widths there are.
        divisor: What the sum is divided by.

    Examples:
        >>> area_and_border = Polynomial({(0, 1): 1, (0,): 2, (1,): 2, (): 4}, 2)
        >>> area_and_border(torch.tensor([3.0, 5.0]))
        tensor(35., dtype=torch.float64)
        >>> area_and_border.slope(torch.tensor([3.0, 5.0]))
        tensor([7., 5.], dtype=torch.float64)
    """

    terms: Mapping[Monomial, int]
    num_widths: int
    divisor: int = 1

    def __call__(self, widths: Float[Tensor, " widths"]) -> Float[Tensor, ""]:
        """The cost at these widths, differentiable in them."""
        table = self._table
        products = self._products(widths, table.factors)
        return products @ table.coefficients / self.divisor

    def slope(self, widths: Float[Tensor, " widths"]) -> Float[Tensor, " widths"]:
        """What a little more of each width costs, per unit, at these widths."""
        table = self._table
        each = self._products(widths, table.others) * table.slopes
        total = torch.zeros(self.num_widths, dtype=torch.float64)
        return total.index_add_(0, table.numbers, each) / self.divisor

    @staticmethod
    def _products(
        widths: Float[Tensor, " widths"], factors: Int[Tensor, "terms degree"]
    ) -> Float[Tensor, " terms"]:
        known = torch.cat([widths.double().cpu(), torch.ones(1, dtype=torch.float64)])
        return known[factors].prod(-1)

    @cached_property
    def _table(self) -> _Table:
        left = [
            (monomial[:place] + monomial[place + 1 :], coefficient, number)
            for monomial, coefficient in self.terms.items()
            for place, number in enumerate(monomial)
        ]
        return _Table(
            self._padded([*self.terms]),
            torch.tensor([*self.terms.values()], dtype=torch.float64),
            self._padded([monomial for monomial, _, _ in left]),
            torch.tensor([c for _, c, _ in left], dtype=torch.float64),
            torch.tensor([number for _, _, number in left], dtype=torch.long),
        )

    def _padded(self, monomials: Sequence[Monomial]) -> Int[Tensor, "terms degree"]:
        """A row for each; short ones are filled up with a width that is always one."""
        degree = max(map(len, monomials), default=0)
        rows = [(*m, *[self.num_widths] * (degree - len(m))) for m in monomials]
        return torch.tensor(rows, dtype=torch.long).reshape(len(rows), degree)


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
