"""Units pass where rows are written by number; where units are, they stay."""

import pytest
import torch

from diffprune.testing import check_removal

pytestmark = [
    pytest.mark.filterwarnings("ignore:index_reduce:UserWarning"),
    pytest.mark.filterwarnings("ignore:The reduce argument:UserWarning"),
]
ROWS = torch.tensor([1, 0])
CORNER = torch.arange(16).view(2, 8) < 3
NUMBERS = torch.ones(3, dtype=torch.float64)


def columns(h):
    return ROWS.unsqueeze(-1).expand(-1, h.shape[1])


def half(h):
    return torch.full_like(h, 0.5)


ROW_WISE = {
    "index_add": lambda _, h: h.index_add(0, ROWS, h, alpha=0.5),
    "index_add in place": lambda _, h: torch.zeros_like(h).index_add_(0, ROWS, h),
    "index_add by names": lambda _, h: h.index_add(dim=0, index=ROWS, source=h),
    "index_add from the end": lambda _, h: h.index_add(-2, ROWS, h),
    "index_copy": lambda _, h: torch.zeros_like(h).index_copy(0, ROWS[:1], h[:1]),
    "index_reduce": lambda _, h: h.index_reduce(0, ROWS, h, "amax"),
    "index_fill": lambda _, h: h.index_fill(0, ROWS[:1], 0.0),
    "scatter": lambda _, h: h.scatter(0, columns(h)[:1], h),
    "scatter by names": lambda _, h: h.scatter(dim=0, index=columns(h), src=h),
    "scatter zero": lambda _, h: h.scatter(0, columns(h)[:1], 0.0),
    "scatter multiplied": lambda _, h: h.scatter(0, columns(h), h, reduce="multiply"),
    "scatter_add": lambda _, h: torch.zeros_like(h).scatter_add_(0, columns(h), h),
    "scatter_reduce": lambda _, h: h.scatter_reduce(0, columns(h), h, "mean"),
    "slice_scatter": lambda _, h: torch.slice_scatter(h, h[:1], 0, 1),
    "select_scatter": lambda _, h: torch.select_scatter(h, h[0], 0, -1),
    "index_put": lambda _, h: h.index_put((ROWS,), h, accumulate=True),
    "index_put one row": lambda _, h: h.index_put((ROWS,), h[0]),
    "index_put by a scalar": lambda _, h: h.index_put((ROWS[0],), h[1]),
    "assignment": lambda _, h: assigned(h),
    "assignment by a mask": lambda _, h: masked(h, torch.tensor([True, False])),
    "assignment by a mask over axes": lambda _, h: masked(
        h.unsqueeze(1), torch.tensor([[True], [False]])
    ).squeeze(1),
    "assignment of a number by a mask": lambda _, h: filled(h, h > 1),
    "assignment of a number to rows": lambda _, h: filled(h, h.sum(1) > 0),
    "assignment of a number to units": lambda _, h: filled(h.mT, h[0] > 1).mT,
    "index_put by rows of numbers": lambda _, h: h.index_put(
        (torch.tensor([[1], [0]]),), h[0]
    ),
}
INTO_A_MEMORY = {
    "index_add": lambda m, h: m.memory.index_add(0, ROWS, h),
    "scatter_add": lambda m, h: m.memory.scatter_add(0, columns(h), h),
    "slice_scatter": lambda m, h: torch.slice_scatter(m.memory, h[:1], 0, 1),
    "select_scatter": lambda m, h: torch.select_scatter(m.memory, h[0], 0, -1),
    "index_put": lambda m, h: m.memory.index_put((ROWS,), h),
}
SINGLE_UNITS = {
    "index_add": lambda _, h: h.index_add(1, ROWS, h[:, :2]),
    "index_copy": lambda _, h: h.index_copy(1, ROWS, h[:, :2]),
    "scatter": lambda _, h: h.scatter(1, torch.tensor([[0, 2], [1, 3]]), 0.0),
    "scatter into a part": lambda _, h: h.scatter(0, columns(h)[:, :5], 0.0),
    "slice_scatter": lambda _, h: torch.slice_scatter(h, h[:, :2], 1, 3, 5),
    "select_scatter": lambda _, h: torch.select_scatter(h, h[:, 0], 1, 3),
    "assignment": lambda _, h: assigned(h.mT).mT,
    "index_put anywhere": lambda _, h: h.index_put((CORNER,), NUMBERS),
}
NOT_ZERO = {
    "index_fill": lambda _, h: h.index_fill(0, ROWS[:1], 1.0),
    "index_add": lambda _, h: h.index_add(0, ROWS, half(h)),
    "scatter": lambda _, h: h.scatter(0, columns(h)[:1], 1.0),
    "scatter_add": lambda _, h: h.scatter_add(0, columns(h), half(h)),
    "index_put": lambda _, h: h.index_put((ROWS[:1],), half(h)[:1]),
    "slice_scatter": lambda _, h: torch.slice_scatter(h, half(h)[:1], 0, 1),
}


def assigned(h):
    out = h.clone()
    out[ROWS] = h[:2]
    return out


def filled(h, mask):
    out = h.clone()
    out[mask] = 0.5
    return out


def masked(h, mask):
    out = h.clone()
    out[mask] = h[0]
    return out


@pytest.mark.parametrize("body", ROW_WISE.values(), ids=ROW_WISE)
def test_units_pass_where_rows_are_written(between, sizes, x, body):
    model = between(lambda m, h: m.last(body(m, h)))
    assert sizes(model) == {"first": 8}
    assert check_removal(model, x).model.first.out_features < 8


@pytest.mark.parametrize("body", INTO_A_MEMORY.values(), ids=INTO_A_MEMORY)
def test_what_is_written_into_is_cut_along(between, sizes, x, body):
    model = between(lambda m, h: m.last(body(m, h)))
    assert sizes(model) == {"first": 8}
    small = check_removal(model, x).model
    assert small.memory.shape == (2, small.first.out_features)


@pytest.mark.parametrize("body", SINGLE_UNITS.values(), ids=SINGLE_UNITS)
def test_units_that_are_written_by_number_stay(between, sizes, body):
    assert sizes(between(lambda m, h: m.last(body(m, h)))) == {}


@pytest.mark.parametrize("body", NOT_ZERO.values(), ids=NOT_ZERO)
def test_a_removed_unit_is_not_zero_where_something_else_is_written(
    between, reason, body
):
    def spread(m, h):
        return m.last(body(m, h).sum(1, keepdim=True).expand(-1, 8))

    model = between(spread)
    assert "summed over while nothing makes it zero" in reason(model)


def test_a_sum_over_units_that_were_written_is_exact(between, x):
    def spread(m, h):
        written = torch.zeros_like(h).index_add(0, ROWS, h)
        return m.last(written.sum(1, keepdim=True).expand(-1, 8))

    assert check_removal(between(spread), x).model.first.out_features < 8


def test_a_mask_over_rows_and_units_keeps_them_whole(between, reason):
    model = between(lambda m, h: m.last(h.index_put((CORNER,), NUMBERS)))
    assert "picked by their position: `aten.index_put`" in reason(model)


def test_a_sum_does_not_see_units_at_which_a_mask_is_false(between, reason, x):
    def spread(compare):
        def body(m, h):
            return m.last(filled(h, compare(h)).sum(1, keepdim=True).expand(-1, 8))

        return between(body)

    assert check_removal(spread(lambda h: h > 0.1), x).model.first.out_features < 8
    assert "summed over while nothing" in reason(spread(lambda h: h < 0.1))


def test_what_is_assigned_may_have_leading_ones(between, sizes):
    def assigned_to_the_first(m, h):
        out = h.clone()
        out[0] = h[None, 1:]
        return m.last(out)

    assert sizes(between(assigned_to_the_first)) == {"first": 8}
