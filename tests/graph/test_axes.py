from math import prod

import pytest
import torch
from hypothesis import given, strategies as st

from diffprune._graph.axes import (
    Algebra,
    Atom,
    Cat,
    MisalignedError,
    atoms,
    count,
    mask,
    size,
    volume,
)

atom_axes = st.integers(2, 4).map(lambda n: (Atom(n),))
axes = st.recursive(
    atom_axes,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(lambda some: sum(some, ())),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: (Cat(tuple(some)),)),
    ),
    max_leaves=4,
)
lengths = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def elements(axis):
    """Every element of an axis, in order, as the set of (atom, unit) it lies in."""
    found = [frozenset()]
    for factor in axis:
        if isinstance(factor, Atom):
            inner = [{(factor, unit)} for unit in range(factor.size)]
        else:
            inner = [place for part in factor.parts for place in elements(part)]
        found = [frozenset({*outer, *place}) for outer in found for place in inner]
    return found


def some_units(axis, data):
    units = {atom: data.draw(st.integers(0, atom.size - 1)) for atom in atoms(axis)}
    return {atom: torch.arange(atom.size) != unit for atom, unit in units.items()}


@given(axes)
def test_size_counts_elements(axis):
    assert size(axis) == len(elements(axis)) == count(axis, {})


@given(axes, st.data())
def test_mask_keeps_elements_of_kept_units(axis, data):
    keep = some_units(axis, data)
    expected = [all(keep[a][u] for a, u in place) for place in elements(axis)]
    assert mask(axis, keep).tolist() == expected


@given(axes, st.data())
def test_count_is_the_number_of_kept_elements(axis, data):
    keep = some_units(axis, data)
    sizes = {atom: int(kept.sum()) for atom, kept in keep.items()}
    assert count(axis, sizes) == mask(axis, keep).sum()


def test_count_is_differentiable():
    atom = Atom(3)
    width = torch.tensor(2.0, requires_grad=True)
    count((atom, Cat(((atom,), (Atom(5),)))), {atom: width}).backward()
    assert width.grad == 2 * 2 + 5


def test_volume_is_the_product_over_axes():
    one, other = Atom(3), Atom(5)
    assert volume([(one,), (other, one)], {one: 2}) == 2 * (5 * 2)


@given(lengths)
def test_split_gives_factors_in_row_major_order(factors):
    algebra = Algebra[str]()
    whole = algebra.fresh(prod(factors))
    pieces = algebra.split(whole, factors)
    assert [size(piece) for piece in pieces] == factors
    assert elements(algebra.resolve(whole)) == elements(sum(pieces, ()))


@given(axes, st.data())
def test_splitting_keeps_every_element_in_its_place(axis, data):
    algebra = Algebra[str]()
    lead = data.draw(st.sampled_from([n for n in range(1, 9) if size(axis) % n == 0]))
    try:
        first, second = algebra.split(axis, [lead, size(axis) // lead])
    except MisalignedError:
        return
    assert (size(first), size(second)) == (lead, size(axis) // lead)
    assert elements((*first, *second)) == elements(algebra.resolve(axis))


@given(lengths)
def test_cut_gives_segments_end_to_end(segments):
    algebra = Algebra[str]()
    whole = algebra.fresh(sum(segments))
    pieces = algebra.cut(whole, segments)
    assert [size(piece) for piece in pieces] == segments
    laid_out = [place for piece in pieces for place in elements(piece)]
    assert laid_out == elements(algebra.resolve(whole))


@given(axes, st.data())
def test_cutting_keeps_every_element_in_its_place(axis, data):
    algebra = Algebra[str]()
    first = data.draw(st.integers(1, size(axis) - 1))
    try:
        pieces = algebra.cut(axis, [first, size(axis) - first])
    except MisalignedError:
        return
    laid_out = [place for piece in pieces for place in elements(piece)]
    assert laid_out == elements(algebra.resolve(axis))


pairs = st.tuples(axes, st.integers(0, 3)).map(
    lambda pair: (pair[0], _regrouped(pair[0], pair[1]))
)


def _regrouped(axis, kind):
    """Another axis of the same size, more or less structured."""
    n = size(axis)
    smallest = next(k for k in range(2, n + 1) if n % k == 0)
    return {
        0: (Atom(n),),
        1: (Atom(smallest), *([Atom(n // smallest)] if n > smallest else [])),
        2: (*([Atom(n // smallest)] if n > smallest else []), Atom(smallest)),
        3: (Cat(((), (Atom(n - 1),) if n > 2 else ())),),
    }[kind]


@given(pairs)
def test_unified_axes_are_the_same_axis(pair):
    algebra = Algebra[str]()
    try:
        algebra.unify(*pair)
    except MisalignedError:
        return
    left, right = map(algebra.resolve, pair)
    assert elements(left) == elements(right)
    assert size(left) == size(pair[0])


@given(pairs)
def test_unification_does_not_depend_on_the_order(pair):
    def tied(left, right):
        """Which elements of the two axes go together, as a matrix."""
        algebra = Algebra[str]()
        try:
            algebra.unify(left, right)
        except MisalignedError:
            return None
        places = [place for axis in pair for place in elements(algebra.resolve(axis))]
        return [[bool(one & other) for other in places] for one in places]

    assert tied(*pair) == tied(*reversed(pair))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param((Atom(6),), (Atom(5),), id="sizes"),
        pytest.param((Atom(2), Atom(3)), (Cat(((Atom(1),), (Atom(5),))),), id="cat"),
        pytest.param((Atom(4), Atom(9)), (Atom(6), Atom(6)), id="factors"),
    ],
)
def test_misaligned_axes_are_refused(left, right):
    with pytest.raises(MisalignedError):
        Algebra[str]().unify(left, right)


@pytest.mark.parametrize("lengths", [[4, 2], [5], [3, 3]])
def test_misaligned_splits_are_refused(lengths):
    with pytest.raises(MisalignedError):
        Algebra[str]().split((Atom(3), Atom(2), Atom(5)), [*lengths, 7])


def test_lengths_that_do_not_line_up_share_a_factor():
    algebra = Algebra()
    heads, rows, columns, depth = (algebra.fresh(n) for n in (3, 4, 5, 7))
    divided = algebra.align((*heads, *rows, *columns, *depth), [3, 5, 4, 7])
    assert [*divided] == [(heads, [3]), ((*rows, *columns), [5, 4]), (depth, [7])]


def test_lengths_of_an_axis_without_elements_share_it():
    algebra = Algebra()
    axis = (*algebra.fresh(0), *algebra.fresh(3))
    assert [*algebra.align(axis, [3, 0])] == [(axis, [3, 0])]


def test_a_cut_inside_a_unit_is_refused():
    with pytest.raises(MisalignedError):
        Algebra[str]().cut((Atom(3), Atom(2)), [3, 3])


def test_frozen_atoms_stay_frozen_when_refined():
    algebra = Algebra[str]()
    whole = algebra.fresh(6)
    algebra.freeze(whole, "why")
    first, second = algebra.split(whole, [2, 3])
    assert [algebra.reason(atom) for atom in atoms((*first, *second))] == ["why"] * 2


def test_the_first_reason_is_kept():
    algebra = Algebra[str]()
    axis = algebra.fresh(6)
    algebra.freeze(axis, "first")
    algebra.freeze(axis, "second")
    assert algebra.reason(axis[0]) == "first"


def test_freezing_one_side_of_an_equation_freezes_the_other():
    algebra = Algebra[str]()
    one, other = algebra.fresh(6), algebra.fresh(6)
    algebra.freeze(one, "why")
    algebra.unify(one, other)
    assert algebra.reason(algebra.resolve(other)[0]) == "why"


def test_ten_thousand_equations_in_a_row_stay_shallow():
    algebra = Algebra[str]()
    stream = algebra.fresh(5)
    first = stream
    for _ in range(10_000):
        branch = algebra.fresh(5)
        algebra.unify(stream, branch)
        stream = branch
    assert algebra.resolve(first) == algebra.resolve(stream)


def test_empty_axes_are_equal_and_cannot_be_divided():
    algebra = Algebra()
    empty, other = algebra.fresh(0), algebra.fresh(0)
    algebra.unify(empty, other)
    with pytest.raises(MisalignedError):
        algebra.split((*empty, *algebra.fresh(6)), [2, 3])
