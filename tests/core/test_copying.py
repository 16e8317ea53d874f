import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import diffprune as dp
from diffprune._core.copying import copied


class Stores(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.seen = nn.Linear(5, 9), nn.Linear(9, 3), []

    def forward(self, x):
        self.seen.append(self.up(x).relu())
        return self.down(self.seen[-1])


def masked(layer):
    prune.l1_unstructured(layer, "weight", 0.3)


HOOKS = [nn.utils.spectral_norm, masked]


def hooked(hook, place):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 3))
    hook(model[place])
    return model


def test_stored_activations_are_copied_without_their_history():
    model = Stores()
    model(torch.rand(2, 5))
    assert torch.equal(copied(model).seen[0], model.seen[0])
    assert not copied(model).seen[0].requires_grad


def test_a_model_that_stores_activations_can_be_cut():
    model, x = Stores(), torch.rand(2, 5)
    model(x)
    small = dp.remove(model, x, keep={"up": torch.arange(9) < 4})
    assert small.up.out_features == 4
    assert [type(tensor) for tensor in model.seen] == [torch.Tensor]


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("hook", HOOKS)
def test_layers_whose_weight_a_hook_computes_are_cut_in_training(hook, place):
    model, x = hooked(hook, place), torch.rand(4, 5)
    model(x)
    pruner = dp.Pruner(model, x, strength=0.0)
    with torch.no_grad():
        pruner.gates["0"].logits[2:5] = -9.0
    before = model.eval()(x)
    pruner.remove_closed_()
    assert model[0].out_features == 6
    torch.testing.assert_close(model(x), before)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("whole", [True, False])
def test_scripted_models_are_refused_by_name(whole):
    scripted = torch.jit.script(nn.Linear(5, 9))
    model = scripted if whole else nn.Sequential(scripted, nn.Linear(9, 3))
    with pytest.raises(dp.errors.ArgumentError, match=r"compiled by `torch\.jit`"):
        dp.find_groups(model, torch.rand(2, 5))


def test_a_copy_has_the_hooks_of_the_original_and_its_own_places_for_more():
    model, called = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), []
    model[0].register_forward_hook(lambda *_: called.append("old"))
    other = copied(model)
    other[1].register_forward_hook(lambda *_: called.append("new"))
    model(torch.ones(1, 2))
    assert called == ["old"]
    other(torch.ones(1, 2))
    assert called == ["old", "old", "new"]


class OwnState(nn.Linear):
    """Says itself what its state is."""

    def __getstate__(self):
        return {**super().__getstate__(), "is_copied": True}


class Parent(nn.Module):
    """Its child knows it; both hold the same list."""

    def __init__(self):
        super().__init__()
        self.child, self.names = OwnState(2, 3), ["a"]
        self.child.names = self.names
        self.child.parents = [self]
        self.tied = nn.Linear(2, 3)
        self.tied.weight = self.child.weight


def test_a_copy_is_what_deepcopy_makes():
    model = Parent().eval()
    model.tied.weight.requires_grad_(False)  # noqa: FBT003 - torch's own
    found = copied(model)
    assert found.child.parents == [found]
    assert found.child.is_copied
    assert found.child.names is found.names
    assert found.names == ["a"]
    assert found.names is not model.names
    assert found.tied.weight is found.child.weight
    assert found.tied.weight is not model.tied.weight
    assert torch.equal(found.tied.weight, model.tied.weight)
    assert not found.tied.weight.requires_grad
    assert not found.tied.training
    assert vars(found).keys() == vars(copy.deepcopy(model)).keys()


def test_what_torch_compiled_for_a_module_is_not_copied():
    model = nn.Sequential(nn.Linear(2, 3))
    model[0].compile(backend="eager")
    assert "_compiled_call_impl" in vars(model[0])
    assert "_compiled_call_impl" not in vars(copied(model)[0])
