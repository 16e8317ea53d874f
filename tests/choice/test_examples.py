import torch

from diffprune._choice.examples import batch_size, first_examples, from_few


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
