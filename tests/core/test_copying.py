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
    copy = copied(model)
    copy[1].register_forward_hook(lambda *_: called.append("new"))
    model(torch.ones(1, 2))
    assert called == ["old"]
    copy(torch.ones(1, 2))
    assert called == ["old", "old", "new"]
