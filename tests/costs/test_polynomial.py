import torch
from hypothesis import given, strategies as st

from diffprune._costs.polynomial import Polynomial, polynomial
from diffprune._graph import Atom, Cat, volume

ATOMS = (Atom(3), Atom(5), Atom(7), Atom(11))
WIDTHS = ATOMS[:3]  # the last one is frozen

factors = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.lists(
        st.lists(inner, max_size=2).map(tuple), min_size=2, max_size=3
    ).map(lambda parts: Cat(tuple(parts))),
    max_leaves=6,
)
tensors = st.lists(st.lists(factors, max_size=2).map(tuple), max_size=3).map(tuple)


@given(st.lists(tensors, max_size=4), st.tuples(*[st.integers(0, 9)] * 3))
def test_any_nesting_is_counted_at_any_width(every, sizes):
    known = dict(zip(WIDTHS, sizes, strict=True))
    counted = polynomial(((axes, 2) for axes in every), WIDTHS, constant=13)
    expected = 13 + 2 * sum(volume(axes, known) for axes in every)
    assert counted(torch.tensor(sizes)) == expected


def test_a_width_that_appears_twice_is_squared():
    square = polynomial([(((ATOMS[0],), (ATOMS[0],)), 1)], WIDTHS)
    assert square.terms == {(0, 0): 1}


def test_equal_products_are_one_term():
    one, other = ((ATOMS[0],), (ATOMS[1],)), ((ATOMS[1],), (ATOMS[0],))
    assert polynomial([(one, 1), (other, 4)], WIDTHS).terms == {(0, 1): 5}


def test_gradients_are_what_a_little_more_width_costs():
    widths = torch.tensor([3.0, 5.0, 0.0], dtype=torch.float64, requires_grad=True)
    cost = Polynomial({(0, 1): 2, (0, 0, 2): 3, (1,): 5, (): 7}, 3)
    assert torch.autograd.gradcheck(cost, widths)
    (slope,) = torch.autograd.grad(cost(widths), widths)
    assert torch.equal(cost.slope(widths.detach()), slope)


def test_a_constant_has_no_slope_and_parts_are_divided():
    widths = torch.tensor([3.0, 5.0]).double()
    assert Polynomial({(): 7}, 2).slope(widths).tolist() == [0, 0]
    area = Polynomial({(0, 1): 6}, 2, divisor=4)
    assert float(area(widths)) == 22.5
    assert area.slope(widths).tolist() == [7.5, 4.5]
