import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups
from diffprune._choice import measure, order_units
from diffprune._choice.observer import Observer


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 5), nn.Tanh()
    ).append(nn.Linear(5, 3))


X, Y = torch.randn(20, 1, 6, 6), torch.randint(3, (20,))


def observed(model, batches, choosing=20, fitting=0, scale=1.0):
    groups = [*find_groups(model, X[:2])]
    observer = Observer(model, groups, choosing, fitting)
    for x, y in batches:
        (scale * F.cross_entropy(model(x), y)).backward()
        observer.end_step(None)
    observer.detach_()
    return observer, {group.name: torch.zeros(group.size).double() for group in groups}


@pytest.mark.parametrize("size", [20, 5])
def test_training_steps_say_what_a_measurement_of_the_same_examples_says(size):
    model = net()
    batches = [*zip(X.split(size), Y.split(size), strict=True)]
    observer, nothing = observed(model, batches)
    found = observer.leaving(nothing)
    groups = find_groups(model, X[:2])
    for group in measure(model, groups, batches, F.cross_entropy):
        expected = order_units(group)
        assert found[group.name].is_compensated
        assert torch.equal(found[group.name].order, expected.order)
        torch.testing.assert_close(found[group.name].worth, expected.worth)


def test_what_the_user_computes_is_not_changed():
    model, plain = net(), net()
    observer, _ = observed(model, [(X, Y)])
    F.cross_entropy(plain(X), Y).backward()
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(own.grad, other.grad)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    del observer


def test_no_more_examples_are_heard_or_held_than_asked_for():
    batches = [(X[:8], Y[:8])] * 4
    observer, _ = observed(net(), batches, choosing=12, fitting=10)
    assert observer.is_ready
    assert [len(inputs[0]) for inputs in observer.inputs] == [8, 2]
    (reader,) = observer._listener.heard("0")
    assert len(reader.activations) == 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_are_held_as_the_model_takes_them_without_autocast(dtype):
    model = net()
    with torch.autocast("cpu", torch.bfloat16):
        observer, _ = observed(model, [(X.to(dtype), Y)], fitting=20)
    (inputs,) = observer.inputs
    assert torch.equal(inputs[0], X.to(dtype).float())
    model(*inputs)


def test_passes_without_gradients_are_nobodys_evidence():
    model = net()
    observer = Observer(model, [*find_groups(model, X[:2])], 20, 20)
    with torch.no_grad():
        model(X)
    observer.end_step(None)
    assert not observer.is_ready
    assert not observer.inputs


def test_steps_that_are_not_finite_are_not_heard():
    model = net()
    observer, nothing = observed(model, [(X, Y)], scale=torch.inf)
    found = observer.leaving(nothing)
    assert not any(order.is_compensated for order in found.values())


@pytest.mark.parametrize("mean_square", [torch.inf, torch.nan])
def test_a_step_that_overflowed_somewhere_is_heard_nowhere(mean_square):
    model, halves = net(), [*zip(X.split(10), Y.split(10), strict=True)]
    expected, nothing = observed(net(), halves)
    observer = Observer(model, [*find_groups(model, X[:2])], 20, 0)
    for scale, (x, y) in [(1e30, halves[1]), *((1.0, half) for half in halves)]:
        assert not observer.is_ready
        (scale * F.cross_entropy(model(x), y)).backward()
        observer.end_step(None if scale == 1 else mean_square)
    assert observer.is_ready
    for name, found in observer.leaving(nothing).items():
        assert torch.equal(found.worth, expected.leaving(nothing)[name].worth)


def test_loss_scales_cancel_out():
    orders = []
    for scale in (1.0, 4096.0):
        model = net()
        observer = Observer(model, [*find_groups(model, X[:2])], 20, 0)
        (scale * F.cross_entropy(model(X), Y)).backward()
        observer.end_step(scale**2)
        orders.append(observer.leaving({"0": torch.ones(6), "3": torch.ones(5)}))
    for name, order in orders[0].items():
        torch.testing.assert_close(order.worth, orders[1][name].worth)


def test_copies_of_the_model_are_not_listened_to():
    model = net()
    observer = Observer(model, [*find_groups(model, X[:2])], 20, 20)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 - our own
        F.cross_entropy(other(X), Y).backward()
    assert not observer.inputs


def test_a_state_goes_on_in_another_process():
    batches = [*zip(X.split(10), Y.split(10), strict=True)]
    whole, nothing = observed(net(), batches, fitting=20)
    first, _ = observed(net(), batches[:1], fitting=20)
    model = net()
    rest = Observer(model, [*find_groups(model, X[:2])], 20, 0)
    rest.load_state_dict(first.state_dict())
    F.cross_entropy(model(X[10:]), Y[10:]).backward()
    rest.end_step(None)
    expected = whole.leaving(nothing)
    for name, order in rest.leaving(nothing).items():
        assert torch.equal(order.worth, expected[name].worth)
    assert len(rest.inputs) == len(whole.inputs)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_pass_that_is_interrupted_is_no_longer_under_way(goes_on):
    model = net()
    observer = Observer(model, [*find_groups(model, X[:2])], 20, 0)

    def interrupt(*_):
        raise KeyboardInterrupt

    handle = model[1].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(X)
    handle.remove()
    if goes_on:
        for half in (0, 1):
            F.cross_entropy(model(X[half::2]), Y[half::2]).backward()
            observer.end_step(None)
        assert observer.is_ready
        assert len(observer._listener.heard("0")[0].activations) == 20
    observer.detach_()
    assert not torch.overrides._get_current_function_mode_stack()


class Around(nn.Module):
    """A trainer calls it to run a training step, which calls it with its inputs."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, y=None):
        return self.net(x) if y is None else F.cross_entropy(self(x), y)


def test_of_a_call_within_a_call_the_inner_one_counts():
    model, other = Around(), Around()
    groups = [*find_groups(model, X[:2])]
    found = Observer(model, groups, 20, 20)
    expected = Observer(other, groups, 20, 20)
    model(X, Y).backward()
    F.cross_entropy(other(X), Y).backward()
    nothing = {group.name: torch.zeros(group.size).double() for group in groups}
    for observer in (found, expected):
        observer.end_step(None)
    for name, leaving in found.leaving(nothing).items():
        assert torch.equal(leaving.worth, expected.leaving(nothing)[name].worth)
        assert leaving.is_compensated
    assert [len(inputs) for inputs in found.inputs] == [1]
    assert torch.equal(found.inputs[0][0], X)
    with torch.no_grad():
        model(X)
    assert found.is_ready
