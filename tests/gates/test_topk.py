import pytest
import torch
from hypothesis import given, strategies as st

from diffprune.gates.topk import largest

SIZES = [1, 5, 4096, 4097, 5000, 8192, 20_000]


def by_sorting(x: list[float], count: int) -> list[int]:
    return sorted(range(len(x)), key=lambda k: (-x[k], k))[:count]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("distinct", [1, 3, 10**6])
def test_largest_breaks_ties_by_index(size, count, distinct):
    x = torch.randint(distinct, (size,)).float()
    assert largest(x, count).tolist() == by_sorting(x.tolist(), count)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.integers(0, 14))
def test_asking_for_more_than_there_is_returns_all(entries, count):
    x = torch.tensor(entries, dtype=torch.float32)
    assert largest(x, count).tolist() == by_sorting(entries, count)


@pytest.mark.parametrize("size", SIZES)
def test_leading_dimensions_are_independent(size):
    x = torch.randn(3, size)
    expected = torch.stack([largest(row, 2) for row in x])
    assert torch.equal(largest(x, 2), expected)
    assert torch.equal(torch.func.vmap(lambda row: largest(row, 2))(x), expected)
