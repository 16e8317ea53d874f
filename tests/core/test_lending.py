"""Memory is lent only where nobody can tell, never to two, and never for good."""

import torch
from torch import nn

from diffprune._core.lending import borrowers, load_lent_


def test_a_tensor_of_its_own_can_borrow_even_if_processes_share_it():
    weight, shared = nn.Parameter(torch.zeros(2, 3)), torch.zeros(2, 3).share_memory_()
    read = {"w": torch.rand(2, 3), "s": torch.rand(2, 3)}
    found = borrowers({"w": weight, "s": shared}, read)
    assert found == {weight: read["w"], shared: read["s"]}


def test_nothing_is_lent_where_someone_could_tell():
    whole = torch.zeros(4, 3)
    with torch.inference_mode():
        of_inference = torch.zeros(2, 3)
    tensors = {
        "view": whole[:2],
        "other half": whole[2:],
        "transposed": torch.zeros(3, 2).T,
        "shape": torch.zeros(3, 2),
        "type": torch.zeros(2, 3, dtype=torch.float64),
        "device": torch.zeros(2, 3, device="meta"),
        "inference": of_inference,
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


class Keeper(nn.Module):
    """Keeps what it is given: a buffer of any length, and more."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))
        self.more = torch.zeros(1)

    def _load_from_state_dict(self, state_dict, prefix, *others):
        self.seen = state_dict[prefix + "seen"]
        super()._load_from_state_dict(state_dict, prefix, *others)

    def get_extra_state(self):
        return {"more": self.more}

    def set_extra_state(self, state):
        self.more = state["more"]


def test_a_module_that_keeps_what_it_is_given_gets_memory_of_its_own():
    seen, more = torch.ones(3), torch.ones(2)
    module = Keeper()
    load_lent_(module, {"seen": seen.view(3), "_extra_state": {"more": more}}, {})
    seen.zero_()
    more.zero_()
    assert torch.equal(module.seen, torch.ones(3))
    assert torch.equal(module.more, torch.ones(2))
