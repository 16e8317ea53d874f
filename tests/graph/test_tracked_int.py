import copy
import math
import operator
import pickle

import pytest
from hypothesis import given, strategies as st

from diffprune._graph.tracked_int import (
    Attribute,
    Dimension,
    Formula,
    SizeLog,
    TrackedInt,
    evaluate,
    leaves,
    plain,
    source_of,
)

WIDTH = Attribute("block", "width", 12)
HEADS = Attribute("", "heads", 3)
EXACT = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]


def tracked(source=WIDTH, log=None):
    return TrackedInt(source.value, source, log or SizeLog())


@pytest.mark.parametrize("op", EXACT)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_formulas_repeat_the_arithmetic(op, width, other, later):
    log = SizeLog()
    number = TrackedInt(width, Attribute("", "n", width), log)
    for result, expected in (
        (op(number, other), op(later, other)),
        (op(other, number), op(other, later)),
        (op(number, number), op(later, later)),
    ):
        assert evaluate(result.source, lambda _: later) == expected
    assert not log.fixed


@pytest.mark.parametrize("op", EXACT)
def test_values_are_those_of_integers(op):
    assert op(tracked(), 5) == op(12, 5)
    assert op(5, tracked()) == op(5, 12)
    assert -tracked() == -12


@pytest.mark.parametrize(
    "use",
    [
        float,
        int,
        math.sqrt,
        lambda n: n / 2,
        lambda n: 2 / n,
        lambda n: n**-0.5,
        lambda n: n * 0.5,
        lambda n: n // 2.0,
    ],
)
def test_use_as_a_number_is_noted(use):
    log = SizeLog()
    assert use(tracked(log=log)) == use(12)
    assert log.fixed == {WIDTH: "its length is used as a number: block.width"}


def test_results_that_are_numbers_are_plain():
    assert type(tracked() / 2) is float
    assert type(plain(tracked())) is int
    assert plain(0.5) == 0.5


def test_equal_lengths_are_noted_and_unequal_are_not():
    log = SizeLog()
    width, same = tracked(log=log), tracked(Dimension("eval 0", 1, 12), log)
    assert width == same
    assert log.equal == [(width.source, same.source)]
    assert width != tracked(HEADS, log)
    assert width != "12"
    assert len(log.equal) == 1


def test_copies_and_pickles_are_plain_integers():
    assert type(copy.deepcopy(tracked())) is int
    assert type(pickle.loads(pickle.dumps(tracked()))) is int  # noqa: S301 - our own


def test_only_tracked_integers_have_a_source():
    assert source_of(tracked()) == WIDTH
    assert source_of(12) is None


def test_leaves_are_what_a_formula_is_computed_from():
    formula = Formula("*", Formula("//", WIDTH, HEADS), 2)
    assert list(leaves(formula)) == [WIDTH, HEADS]
    assert list(leaves(5)) == []
    assert str(formula) == "((block.width // heads) * 2)"
