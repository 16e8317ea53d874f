"""Memory is lent only where nobody can tell, and never to two."""

import torch
from torch import nn

from diffprune._core.lending import borrowers, lend_


def test_what_was_read_becomes_the_memory_of_a_tensor():
    weight, read = nn.Parameter(torch.zeros(2, 3)), torch.rand(2, 3)
    lend_(borrowers({"w": weight}, {"w": read}).items())
    assert weight.data_ptr() == read.data_ptr()
    assert torch.equal(weight, read)
    assert weight.requires_grad


def test_nothing_is_lent_where_someone_could_tell():
    whole = torch.zeros(4, 3)
    tensors = {
        "view": whole[:2],
        "other half": whole[2:],
        "transposed": torch.zeros(3, 2).T,
        "shape": torch.zeros(3, 2),
        "type": torch.zeros(2, 3, dtype=torch.float64),
        "device": torch.zeros(2, 3, device="meta"),
        "shared": torch.zeros(2, 3).share_memory_(),
        "missing": torch.zeros(2, 3),
    }
    read = {name: torch.rand(2, 3) for name in tensors if name != "missing"}
    assert borrowers(tensors, read) == {}


def test_a_tensor_of_two_names_borrows_once_and_one_loan_has_one_borrower():
    tied, one, other = torch.zeros(2), torch.zeros(3), torch.zeros(3)
    read = torch.rand(3)
    tensors = {"a": tied, "b": tied, "c": one, "d": other}
    found = borrowers(
        tensors, {"a": torch.rand(2), "b": torch.rand(2), "c": read, "d": read}
    )
    assert list(found) == [tied, one]
