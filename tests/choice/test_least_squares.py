import numpy as np
import pytest
import torch

from diffprune._choice.least_squares import LeastSquares


def rows(count=200, groups=1, features=7, outputs=3):
    torch.manual_seed(0)
    mix = torch.randn(groups, features, features).double()
    inputs = torch.einsum(
        "rgf,gfe->rge", torch.randn(count, groups, features).double(), mix
    )
    true = torch.randn(groups, features, outputs).double()
    targets = torch.einsum("rgf,gfo->rgo", inputs, true) + 3
    return inputs + 5, targets + 0.1 * torch.randn(count, groups, outputs).double()


def fitted(inputs):
    """Rows that are not held out."""
    return torch.arange(len(inputs)) % 8 != 7


def test_without_a_ridge_it_is_what_numpy_finds():
    inputs, targets = rows()
    sums = LeastSquares()
    sums.add(inputs, targets)
    fit = sums.solve(torch.zeros(1, 7, 3), ridge=1e-13)
    used = fitted(inputs)
    ones = np.ones((int(used.sum()), 1))
    a = np.concatenate([inputs[used, 0].numpy(), ones], 1)
    expected = np.linalg.lstsq(a, targets[used, 0].numpy(), rcond=None)[0]
    np.testing.assert_allclose(fit.matrix[0].numpy(), expected[:-1], atol=1e-8)
    np.testing.assert_allclose(fit.offset[0].numpy(), expected[-1], atol=1e-7)


def test_the_ridge_pulls_to_what_was_there():
    inputs, targets = rows()
    start = torch.randn(1, 7, 3).double()
    sums = LeastSquares(centred=False)
    sums.add(inputs, targets)
    fit = sums.solve(start, ridge=0.3)
    used = fitted(inputs)
    a, t = inputs[used, 0].numpy(), targets[used, 0].numpy()
    pull = np.sqrt(0.3 * np.mean(np.square(a).mean(0)) * len(a))
    # Ridge regression is least squares with rows that ask for the start.
    a_more = np.concatenate([a, pull * np.eye(7)])
    t_more = np.concatenate([t, pull * start[0].numpy()])
    expected = np.linalg.lstsq(a_more, t_more, rcond=None)[0]
    np.testing.assert_allclose(fit.matrix[0].numpy(), expected, atol=1e-8)
    assert float(fit.offset.abs().max()) == 0


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("count", [20, 60])
def test_fewer_rows_than_features_are_fitted_as_more_are(count, centred):
    """With 40 features: solved from products of rows, or of features."""
    inputs, targets = rows(count=count, features=40)
    start, offset = torch.randn(1, 40, 3).double(), torch.randn(3).double()
    sums = LeastSquares(centred=centred)
    for some in torch.arange(count).split(16):
        sums.add(inputs[some], targets[some])
    fit = sums.solve(start, offset=offset, ridge=0.1)
    numbers = torch.cat([torch.arange(len(s)) for s in torch.arange(count).split(16)])
    used = numbers % 8 != 7
    a, t = inputs[used, 0], targets[used, 0]
    a, t = (a - a.mean(0), t - t.mean(0)) if centred else (a, t)
    gram = a.T @ a / len(a)
    pull = 0.1 * gram.diagonal().mean() * torch.eye(40)
    left = a.T @ (t - a @ start[0]) / len(a)
    expected = start[0] + torch.linalg.solve(gram + pull, left)
    torch.testing.assert_close(fit.matrix[0], expected, rtol=1e-7, atol=1e-7)
    a, t = inputs[~used, 0], targets[~used, 0]
    whole = (t - t.mean(0)).square().sum() if centred else t.square().sum()
    missed = t - a @ expected - fit.offset[0]
    assert fit.after == pytest.approx(float(missed.square().sum() / whole), rel=1e-5)


@pytest.mark.parametrize("centred", [True, False])
def test_many_batches_are_as_good_as_one(centred):
    inputs, targets = rows(groups=2)
    whole, parts = LeastSquares(centred=centred), LeastSquares(centred=centred)
    whole.add(inputs, targets)
    for a, t in zip(inputs.split(40), targets.split(40), strict=True):
        parts.add(a, t)
    start = torch.zeros(2, 7, 3)
    one, other = whole.solve(start), parts.solve(start)
    torch.testing.assert_close(one.matrix, other.matrix, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.offset, other.offset, rtol=1e-9, atol=1e-9)
    assert one.after == pytest.approx(other.after, rel=1e-6)


def test_groups_do_not_see_each_other():
    inputs, targets = rows(groups=3)
    together = LeastSquares()
    together.add(inputs, targets)
    fit = together.solve(torch.zeros(3, 7, 3))
    for group in range(3):
        alone = LeastSquares()
        alone.add(inputs[:, group : group + 1], targets[:, group : group + 1])
        torch.testing.assert_close(
            alone.solve(torch.zeros(1, 7, 3)).matrix[0], fit.matrix[group]
        )


def test_errors_are_those_of_rows_that_were_held_out():
    inputs, targets = rows()
    start, offset = torch.randn(1, 7, 3).double(), torch.randn(3).double()
    sums = LeastSquares()
    sums.add(inputs, targets)
    fit = sums.solve(start, offset=offset)
    held = ~fitted(inputs)
    a, t = inputs[held, 0], targets[held, 0]
    whole = (t - t.mean(0)).square().sum()
    before = (t - a @ start[0] - offset).square().sum() / whole
    after = (t - a @ fit.matrix[0] - fit.offset[0]).square().sum() / whole
    assert fit.before == pytest.approx(float(before), rel=1e-6)
    assert fit.after == pytest.approx(float(after), rel=1e-4)


def test_inputs_that_never_change_leave_the_matrix_as_it_is():
    sums = LeastSquares()
    sums.add(torch.ones(40, 1, 4), torch.randn(40, 1, 2))
    start = torch.randn(1, 4, 2)
    torch.testing.assert_close(sums.solve(start).matrix, start.double())


def test_rows_that_are_not_finite_tell_nothing():
    inputs, targets = rows()
    inputs[3], targets[5] = torch.nan, torch.inf
    sums, others = LeastSquares(), LeastSquares()
    sums.add(inputs, targets)
    is_finite = torch.ones(len(inputs), dtype=torch.bool)
    is_finite[[3, 5]] = False
    others.add(inputs[is_finite], targets[is_finite])
    start = torch.zeros(1, 7, 3).double()
    assert torch.equal(sums.solve(start).matrix, others.solve(start).matrix)


def test_numbers_that_overflow_leave_the_matrix_as_it_is():
    inputs, targets = rows()
    sums = LeastSquares()
    sums.add(inputs * 1e200, targets)
    start = torch.zeros(1, 7, 3).double()
    assert torch.equal(sums.solve(start).matrix, start)


def test_rows_are_held_out_however_few_come_at_a_time():
    inputs, targets = rows()
    at_once, one_by_one = LeastSquares(), LeastSquares()
    at_once.add(inputs, targets)
    for some in zip(inputs.split(1), targets.split(1), strict=True):
        one_by_one.add(*some)
    start = torch.zeros(1, 7, 3)
    one, other = at_once.solve(start), one_by_one.solve(start)
    assert at_once.count == one_by_one.count == int(fitted(inputs).sum())
    torch.testing.assert_close(one.matrix, other.matrix)
    assert one.after == pytest.approx(other.after)
