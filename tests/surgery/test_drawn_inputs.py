import pytest
import torch

from diffprune._surgery.drawn_inputs import drawn, repeated


def test_numbers_stay_in_the_range_of_the_example():
    example = torch.rand(50) + 3
    first, *_ = drawn(example, seed=0)
    assert not torch.equal(first, example)
    assert example.min() <= first.min() <= first.max() <= example.max()


def test_wider_numbers_keep_their_sign():
    first, *_ = drawn(torch.rand(500), seed=0, wide=True)
    assert first.min() >= 0
    assert first.max() > 1.5


@pytest.mark.parametrize("example", [torch.zeros(2, 3), torch.ones(2, 3)])
def test_constants_are_varied(example):
    first, *_ = drawn(example, seed=0)
    assert first.unique().numel() == 6


def test_an_example_without_rows_gets_two():
    first, *_ = drawn(torch.zeros(0, 3), seed=0)
    assert first.shape == (2, 3)
    assert first.any()


def test_whole_numbers_and_truths_are_those_of_the_example():
    inputs = {"words": torch.tensor([[3, 7, 7, 9]]), "shown": torch.tensor([True] * 3)}
    first, *_, last = drawn(inputs, seed=0)
    assert set(first["words"].flatten().tolist()) <= {3, 7, 9}
    assert first["shown"].all()
    assert torch.equal(last["words"], inputs["words"])


def test_infinite_numbers_stay_where_they_are():
    mask = torch.tensor([0.0, -torch.inf, 0.0])
    first, *_ = drawn((mask, 5, None), seed=0)
    assert first[0].isinf().tolist() == [False, True, False]
    assert first[1:] == (5, None)


def test_rows_are_repeated_in_everything_that_has_as_many():
    x, other = repeated((torch.arange(2.0), torch.zeros(3, 2)))
    assert x.tolist() == [0, 1, 0, 1]
    assert other.shape == (3, 2)
