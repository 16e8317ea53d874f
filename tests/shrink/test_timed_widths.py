import pytest

from diffprune._budget.limits import Limit
from diffprune._shrink.timed_widths import Trial, best_of


def trial(used):
    """A width of ten that costs so much of what is allowed."""
    return Trial([10], (Limit("latency", 0.5, lambda w: w.sum(), 20.0, 10.0, used),))


def test_the_best_is_what_fits_and_uses_most():
    found = best_of([trial(1.2), trial(0.7), trial(0.95), trial(1.01)])
    assert found.used == pytest.approx(0.95)


def test_if_nothing_fits_that_is_said_and_the_least_excess_is_taken():
    with pytest.warns(UserWarning, match=r"timed 2 times .* 1\.10 times as long"):
        assert best_of([trial(1.3), trial(1.1)]).used == pytest.approx(1.1)
