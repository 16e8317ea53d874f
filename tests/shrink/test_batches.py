import torch
from torch import nn

from diffprune._shrink.batches import Batches


class Seen(nn.Module):
    """Tells what it is given apart by its first dimension."""

    def forward(self, x, labels=None):
        del labels
        return x * 2


class Mixes(nn.Module):
    """Examples see each other."""

    def forward(self, x):
        return x - x.mean(0)


def test_the_last_batch_is_cut():
    data = [(torch.rand(8, 3), torch.rand(8)) for _ in range(4)]
    found = Batches(data, Seen()).first(20)
    assert [len(x) for x, _ in found] == [8, 8, 4]
    assert [len(y) for _, y in found] == [8, 8, 4]
    assert torch.equal(found[2][0], data[2][0][:4])


def test_dicts_are_cut_whole():
    data = [{"x": torch.rand(8, 3), "labels": torch.rand(8)}]
    ((inputs, targets),) = Batches(data, Seen()).first(5)
    assert inputs is targets
    assert {len(tensor) for tensor in inputs.values()} == {5}


def test_what_sees_the_others_is_not_cut():
    data = [(torch.rand(8, 3), torch.rand(8))]
    ((inputs, _),) = Batches(data, Mixes()).first(5)
    assert len(inputs) == 8


class Fixed(nn.Module):
    """Takes exactly eight steps, which come first."""

    def forward(self, x):
        return (x * torch.arange(8)[:, None]).sum(0)


def test_what_needs_all_of_them_is_not_cut():
    batches = Batches([(torch.rand(8, 8), torch.rand(8))], Fixed())
    assert len(batches.first(5)[0][0]) == 8
    assert len(batches.example(2)) == 8
    assert len(Batches([(torch.rand(8, 3), torch.rand(8))], Seen()).example(2)) == 2


def test_labels_that_are_no_tensor_are_not_cut():
    data = [(torch.rand(8, 3), [1, 2, 3, 4, 5, 6, 7, 8])]
    ((inputs, targets),) = Batches(data, Seen()).first(5)
    assert len(inputs) == len(targets) == 8


def test_a_generator_is_read_once_and_may_be_asked_twice():
    batches = Batches(((torch.rand(8, 3), torch.rand(8)) for _ in range(4)), Seen())
    one, other = batches.first(8), batches.first(24)
    assert len(other) == 3
    assert other[0][0] is one[0][0]
    assert len(batches.first(100)) == 4
