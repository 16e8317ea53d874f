import pytest
import torch
from torch import nn

from diffprune._choice.examples import batch_size, first_examples, from_few, joined


def test_the_first_tensor_says_how_many_there_are():
    assert batch_size({"flag": True, "x": torch.rand(5, 2)}) == 5
    assert batch_size(torch.tensor(3.0)) == 1


def test_all_tensors_are_cut_alike():
    x, y, scale = torch.rand(5, 2), torch.rand(5), torch.tensor(2.0)
    a, b, same, flag = first_examples((x, y, scale, None), 3)
    assert torch.equal(a, x[:3])
    assert torch.equal(b, y[:3])
    assert same is scale
    assert flag is None


def test_a_few_are_enough_unless_they_fail():
    assert from_few(len, torch.rand(20, 2)) == 8

    def needs_all(x):
        if len(x) < 20:
            raise ValueError
        return len(x)

    assert from_few(needs_all, torch.rand(20, 2)) == 20


def test_what_cannot_be_told_apart_stays_whole():
    different = torch.rand(5, 2), torch.rand(4)
    assert first_examples(different, 3) is different
    named = {"x": torch.rand(5, 2), "names": ["a", "b", "c", "d", "e"]}
    assert first_examples(named, 3) is named


TIME_FIRST = nn.LSTM(5, 3)


def sizes(batches, run, most=4):
    return [batch_size(x) for _, x in joined(batches, most, run)]


def test_small_neighbours_are_joined_in_their_order():
    batches = [{"x": torch.rand(n, 5), "mask": None} for n in (1, 2, 1, 3, 6, 1)]
    found = joined(batches, 4, lambda b: b["x"] @ torch.ones(5))
    names = ["batches 0 to 2", "batch 3", "batch 4", "batch 5"]
    assert [name for name, _ in found] == names
    assert torch.equal(
        torch.cat([b["x"] for _, b in found]), torch.cat([b["x"] for b in batches])
    )


@pytest.mark.parametrize(
    "others",
    [
        torch.rand(1, 6),
        torch.rand(1, 5).double(),
        torch.rand(1, 5).to_sparse(),
        (torch.rand(1, 5), torch.rand(2)),
        (torch.rand(1, 5), "a word"),
        (torch.rand(1, 5), torch.tensor(3.0)),
    ],
    ids=["wider", "double", "sparse", "lengths", "words", "scalars"],
)
def test_batches_of_other_kinds_stay_apart(others):
    batches = [torch.rand(1, 5), others, others, torch.rand(1, 5)]
    found = joined(batches, 4, lambda _: torch.rand(1))
    assert [name for name, _ in found] == [f"batch {i}" for i in range(4)]
    assert all(new is old for (_, new), old in zip(found, batches, strict=True))


def needs_two(x):
    assert len(x) == 2
    return x


SEEN_TOGETHER = {
    "their mean": lambda x: x - x.mean(0),
    "a sum": lambda x: x.sum(0),
    "a number": lambda x: x.sum(),
    "pairs": lambda x: x @ x.T,
    "time": lambda x: TIME_FIRST(x)[0],
    "one of two": lambda x: (x, x.cumsum(0)),
    "noise": lambda x: torch.rand(len(x)),
    "no tensor": lambda _: "nothing",
    "two at a time": needs_two,
}


@pytest.mark.parametrize("run", SEEN_TOGETHER.values(), ids=SEEN_TOGETHER.keys())
def test_nothing_is_joined_where_examples_see_each_other(run):
    with torch.no_grad():
        assert sizes([torch.rand(2, 5) for _ in range(4)], run) == [2, 2, 2, 2]


def test_numbers_beside_what_is_returned_for_each_do_not_matter():
    batches = [torch.rand(2, 5) for _ in range(4)]
    assert sizes(batches, lambda x: (x.mean(), 2 * x)) == [4, 4]
