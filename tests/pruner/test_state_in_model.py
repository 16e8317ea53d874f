"""A `state_dict` says what was removed: models are cut to it before they load it."""

import copy
import importlib.util
import pickle

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._core.digest import digest
from diffprune._io.gated_state import KEY, as_tensor, load_plain_
from diffprune._pruner.state_in_model import StateInModel
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError

X = torch.rand(6, 5)


class Net(nn.Module):
    """5 -> 8 -> norm -> 8 -> 5."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.last(self.norm(self.first(x)).relu()).relu())


def make(seed=0):
    torch.manual_seed(seed)
    pruner = dp.Pruner(Net(), X, strength=1e-3, remove_every=1)
    return pruner, StateInModel(pruner)


def close_(pruner, **units):
    for name, numbers in units.items():
        pruner.gates[name].logits.data[numbers] = -9.0
    pruner.remove_closed_()


def test_a_fresh_model_loads_what_a_smaller_one_saved():
    pruner, _ = make()
    close_(pruner, first=[1, 2], last=[0])
    again, _ = make(seed=1)
    again.model.load_state_dict(pruner.model.state_dict())
    assert again.shape() == pruner.shape()
    assert torch.equal(again.model.eval()(X), pruner.model.eval()(X))


def test_a_smaller_model_loads_what_a_larger_one_saved():
    pruner, _ = make()
    close_(pruner, first=[1])
    state, expected = copy.deepcopy(pruner.model.state_dict()), pruner.model.eval()(X)
    close_(pruner, first=[3], last=[0, 1])
    pruner.model.load_state_dict(state)
    assert torch.equal(pruner.model(X), expected)


def test_a_plain_model_loads_what_a_gated_one_saved():
    pruner, _ = make()
    close_(pruner, first=[1, 2], last=[0])
    state = {f"net.{n}": t for n, t in pruner.model.state_dict().items()}
    plain = nn.ModuleDict({"net": Net()})
    assert load_plain_(plain["net"], state, "net.")
    plain.load_state_dict(state)
    assert torch.equal(plain["net"].eval()(X), pruner.finalize().eval()(X))


def test_a_model_without_gates_says_nothing():
    pruner, _ = make()
    copied = pruner._gated.without_gates()
    assert KEY in pruner.model.state_dict()
    assert list(copied.state_dict()) == list(Net().state_dict())
    small = pruner.finalize()
    assert list(small.state_dict()) == list(Net().state_dict())
    assert not load_plain_(Net(), small.state_dict())


def test_a_copy_speaks_for_the_same_run_and_a_pickle_for_none():
    pruner, _ = make()
    copied = copy.deepcopy(pruner.model)
    pruner.add_copy(copied)
    close_(pruner, first=[1, 2])
    assert torch.equal(copied.state_dict()[KEY], pruner.model.state_dict()[KEY])
    assert KEY not in pickle.loads(pickle.dumps(pruner.model)).state_dict()  # noqa: S301 - ours


@pytest.mark.parametrize(
    ("found", "match"),
    [
        (torch.zeros(9, dtype=torch.uint8), "damaged"),
        (as_tensor({}), r"lacks \['plan', 'scales'\]"),
    ],
)
def test_damaged_states_are_refused(found, match):
    pruner, _ = make()
    state = pruner.model.state_dict()
    state[KEY] = found
    with pytest.raises(ArgumentError, match=match):
        pruner.model.load_state_dict(state)


def test_gates_placed_by_hand_need_a_pruner():
    def placed():
        return nn.Sequential(nn.Linear(5, 8), dp.Gate(8), nn.Linear(8, 1))

    pruner = dp.Pruner(placed(), X, strength=1e-3)
    StateInModel(pruner)
    close_(pruner, **{"1": [0, 1]})
    with pytest.raises(ArgumentError, match="placed by hand"):
        load_plain_(placed(), pruner.model.state_dict())
    again = dp.Pruner(placed(), X, strength=1e-3)
    StateInModel(again)
    again.model.load_state_dict(pruner.model.state_dict())
    assert torch.equal(again.model(X), pruner.model(X))


def placed_net():
    return nn.Sequential(
        nn.Linear(5, 8), nn.ReLU(), dp.Gate(8), nn.Linear(8, 8), nn.Linear(8, 1)
    )


def with_budget(kind=Net, seed=0):
    torch.manual_seed(seed)
    budget = dp.Budget(macs=0.5, steps=12)
    pruner = dp.Pruner(kind(), X, budget=budget)
    optimizer = torch.optim.Adam(pruner.model.parameters(), lr=0.01)
    StateInModel(pruner, lambda: [optimizer])
    return pruner, optimizer


def train_(pruner, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (pruner.model(X).square().mean() + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)


def has_gates(model):
    return any(isinstance(module, dp.Gate) for module in model.modules())


def saved(pruner, optimizer):
    return copy.deepcopy((pruner.model.state_dict(), optimizer.state_dict()))


def load_(pruner, optimizer, state):
    pruner.model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])


def assert_same(one, other):
    """Models and pruners; as bytes, equal states may differ."""
    for expected, found in zip(one, other, strict=True):
        assert list(expected) == list(found)
        for name, value in expected.items():
            if name == "plan":  # which may name the same groups in another order
                assert Plan.from_json(found[name]) == Plan.from_json(value)
            else:
                is_same = digest(found[name]) == digest(value)
                assert name == KEY or is_same, name


def states(pruner):
    return copy.deepcopy((pruner.model.state_dict(), pruner.state_dict()))


@pytest.mark.parametrize("kind", [Net, placed_net])
def test_a_run_continues_after_its_gates_are_folded_away(kind):
    whole = with_budget(kind)
    train_(*whole, 11)
    assert not has_gates(whole[0].model)
    assert KEY in whole[0].model.state_dict()
    state = saved(*whole)
    train_(*whole, 4)
    resumed = with_budget(kind, seed=1)
    load_(*resumed, state)
    assert not has_gates(resumed[0].model)
    train_(*resumed, 4)
    assert_same(states(whole[0]), states(resumed[0]))


def test_an_optimizer_that_is_made_for_the_folded_model_loads_its_state():
    whole = with_budget()
    train_(*whole, 11)
    state = saved(*whole)
    train_(*whole, 4)
    pruner, _ = with_budget(seed=1)
    pruner.model.load_state_dict(state[0])
    optimizer = torch.optim.Adam(pruner.model.parameters(), lr=0.01)
    optimizer.load_state_dict(state[1])
    train_(pruner, optimizer, 4)
    assert_same(states(whole[0]), states(pruner))


def test_a_plain_model_loads_what_a_folded_one_saved():
    pruner, optimizer = with_budget()
    train_(pruner, optimizer, 11)
    state, plain = pruner.model.state_dict(), Net()
    assert load_plain_(plain, state)
    plain.load_state_dict(state)
    assert torch.equal(plain.eval()(X), pruner.finalize().eval()(X))


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_run_goes_back_to_when_it_had_gates(when):
    pruner, optimizer = with_budget()
    average = torch.optim.swa_utils.AveragedModel(pruner.model)
    pruner.add_copy(average)
    train_(pruner, optimizer, when)
    state, of_average = saved(pruner, optimizer), copy.deepcopy(average.state_dict())
    assert has_gates(pruner.model)
    train_(pruner, optimizer, 12 - when)
    assert not has_gates(pruner.model)
    expected = states(pruner)
    load_(pruner, optimizer, state)
    average.load_state_dict(of_average)
    assert has_gates(pruner.model)
    assert has_gates(average)
    train_(pruner, optimizer, 12 - when)
    assert_same(expected, states(pruner))


def test_gates_placed_by_hand_are_not_put_back():
    pruner, optimizer = with_budget(placed_net)
    state = saved(pruner, optimizer)
    train_(pruner, optimizer, 11)
    before = states(pruner)
    with pytest.raises(ArgumentError, match="into a new `Pruner`"):
        pruner.model.load_state_dict(state[0])
    assert_same(before, states(pruner))
    train_(pruner, optimizer, 1)


def timm_ema():
    """timm's own class, from its file: the package wants torchvision."""
    package = importlib.util.find_spec("timm")
    if package is None or package.submodule_search_locations is None:
        # It wants torchvision, which has no build for the torch of this project.
        pytest.skip("timm is not installed")
    path = f"{package.submodule_search_locations[0]}/utils/model_ema.py"
    spec = importlib.util.spec_from_file_location("timm_model_ema", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelEmaV3


def test_an_average_of_timm_follows():
    pruner, _ = make()
    average = timm_ema()(pruner.model, decay=0.5)
    pruner.add_copy(average)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=0.1))
    for _ in range(4):
        (pruner.model(X).square().mean() + pruner.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step(optimizer)
        average.update(pruner.model)
    assert pruner.history
    assert average.module.first.out_features == pruner.model.first.out_features
