"""Model and optimizer never drift apart in silence."""

import pytest
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR

import diffprune as dp
from diffprune.errors import ArgumentError

X = torch.rand(4, 3)


def net():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def gated(**options):
    model = net()
    return dp.Pruner(model, X, strength=1e-3, remove_every=1, **options)


def train_(pruner, *optimizers):
    (pruner.model(X).square().sum() + pruner.penalty()).backward()
    for optimizer in optimizers:
        optimizer.step()


def close_(pruner):
    with torch.no_grad():
        pruner.gates["0"].logits[:3] = -9.0


def test_a_step_without_an_optimizer_is_refused():
    pruner = gated()
    with pytest.raises(ArgumentError, match=r"needs the optimizer.*\n.*step.optimizer"):
        pruner.step()
    assert pruner.steps == 0


def test_an_optimizer_made_before_the_pruner_is_refused_at_the_first_step():
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    pruner = dp.Pruner(model, X, strength=1e-3)
    with pytest.raises(ArgumentError, match=r"gate of `0` is in no opt.*\n.*add_to"):
        pruner.step(optimizer)


def test_an_optimizer_without_the_weights_is_refused():
    pruner = gated()
    optimizer = optim.SGD(pruner.parameter_groups()[1]["params"], lr=0.1)
    with pytest.raises(ArgumentError, match=r"`0.weight` may be cut, and is in no"):
        pruner.step(optimizer)


def test_an_optimizer_with_lists_of_its_own_is_refused_at_the_first_step():
    """Not at the first removal, when hours of training are lost."""
    pruner = gated()
    optimizer = optim.LBFGS(pruner.model.parameters())
    with pytest.raises(ArgumentError, match="LBFGS keeps a list of its own, `_params`"):
        pruner.step(optimizer)
    assert pruner.steps == 0


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(ArgumentError, match="got a Linear where an optimizer is"):
        gated().step(nn.Linear(1, 1))


def test_a_model_that_is_being_trained_is_not_cut_without_its_optimizer():
    pruner = gated()
    train_(pruner)
    close_(pruner)
    with pytest.raises(ArgumentError, match="is being trained, and its optimizer"):
        pruner.remove_closed_()
    pruner.model.zero_grad()
    assert pruner.remove_closed_().units == {"0": 5}


def test_decay_of_gates_is_said():
    pruner = gated()
    optimizer = optim.AdamW(pruner.model.parameters(), weight_decay=0.5)
    with pytest.warns(UserWarning, match=r"group 0 .*weight_decay=0.5 .* gate of `0`"):
        pruner.step(optimizer)


def test_the_optimizers_own_decay_stays_with_the_weights():
    optimizer = optim.AdamW(gated().parameter_groups(lr=0.1), weight_decay=0.3)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.3, 0.0]


class Wrapper(optim.Optimizer):
    """As SAM and Lookahead are made: groups are shared, the state is not."""

    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base_optimizer, self.param_groups = base, base.param_groups

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["slow"] = parameter.detach().clone()
        self.base_optimizer.step()


def test_the_state_inside_a_wrapper_follows():
    pruner = gated()
    base = optim.Adam(pruner.parameter_groups(lr=1e-3))
    wrapper = Wrapper(base)
    train_(pruner, wrapper)
    close_(pruner)
    assert pruner.step(wrapper).units == {"0": 5}
    weight = pruner.model[0].weight
    assert base.state[weight]["exp_avg"].shape == weight.shape == (5, 3)
    assert wrapper.state[weight]["slow"].shape == (5, 3)
    assert len(base.state) == len(list(pruner.model.parameters()))
    train_(pruner, wrapper)


class Flat(optim.SGD):
    """As Prodigy does: state of another shape than the parameter's."""

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("s", parameter.detach().flatten()[::2])
        super().step()


class Packed(torch.Tensor):
    """As 8-bit state is: of the parameter's shape, and not to be indexed."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.index_select:
            raise NotImplementedError  # as the state of 8-bit optimizers does
        return super().__torch_function__(function, types, args, kwargs)


class Eight(optim.SGD):
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["q"] = torch.zeros_like(p).as_subclass(Packed)
        super().step()


@pytest.mark.parametrize("kind", [Flat, Eight])
def test_state_that_cannot_follow_is_refused_or_reset(kind):
    pruner = gated()
    optimizer = kind(pruner.parameter_groups(), lr=0.1)
    train_(pruner, optimizer)
    close_(pruner)
    before = {id(p) for p in pruner.model.parameters()}
    with pytest.raises(ArgumentError, match=r"cannot tell how to cut it.*\n.*reset"):
        pruner.step(optimizer)
    assert {id(p) for p in pruner.model.parameters()} == before
    pruner = gated(on_unknown_state="reset")
    optimizer = kind(pruner.parameter_groups(), lr=0.1)
    train_(pruner, optimizer)
    close_(pruner)
    assert pruner.step(optimizer).units == {"0": 5}
    assert pruner.model[0].weight not in optimizer.state
    train_(pruner, optimizer)


def cosine(optimizer):
    return CosineAnnealingLR(optimizer, 10)


def one_cycle(optimizer):
    return OneCycleLR(optimizer, max_lr=1.0, total_steps=10)


def scaled(optimizer):
    return LambdaLR(optimizer, lambda step: 0.9**step)


def warmed_up(optimizer):
    return LambdaLR(optimizer, lambda step: min(step / 2, 1.0))


@pytest.mark.parametrize(
    ("make", "highest"),
    [(cosine, 0.1), (one_cycle, 1.0), (scaled, 0.1), (warmed_up, 0.1)],
)
def test_gates_join_an_optimizer_and_its_scheduler(make, highest):
    model = net()
    optimizer = optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
    scheduler = make(optimizer)
    pruner = dp.Pruner(model, X, strength=1e-3, remove_every=1)
    pruner.add_to(optimizer, scheduler, lr=5 * highest)
    for _ in range(3):
        train_(pruner, optimizer)
        scheduler.step()
        pruner.step(optimizer)
    first, second = optimizer.param_groups
    assert second["lr"] == pytest.approx(5 * first["lr"])
    assert (first["weight_decay"], second["weight_decay"]) == (0.1, 0.0)
    with pytest.raises(ArgumentError, match="already holds gates"):
        pruner.add_to(optimizer)


def test_a_rate_of_zero_is_taken_as_it_is():
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.0)
    dp.Pruner(model, X, strength=1e-3).add_to(optimizer, lr=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.5]


@pytest.mark.parametrize("is_late", [True, False])
def test_names_in_an_optimizer_stay_those_of_its_parameters(is_late):
    model = net()
    late = optim.Adam(model.named_parameters(), lr=1e-3)
    pruner = dp.Pruner(model, X, budget=dp.Budget(macs=0.6, steps=20))
    optimizer = late if is_late else optim.Adam(model.named_parameters(), lr=1e-3)
    if is_late:
        pruner.add_to(optimizer)

    def names():
        return {p: name for name, p in model.named_parameters()}

    for _ in range(20):
        of_parameters = names()
        for group in optimizer.param_groups:
            held = [of_parameters[p] for p in group["params"]]
            assert list(group["param_names"]) == held
        train_(pruner, optimizer)
        pruner.step(optimizer)
    saved = optimizer.state_dict()
    assert sum(len(group["param_names"]) for group in saved["param_groups"]) == 4
    pruner.finalize(optimizer)


def test_a_callback_that_fails_undoes_the_removal():
    pruner = gated(on_removal=lambda _: 1 / 0)
    optimizer = optim.Adam(pruner.parameter_groups(lr=0.1))
    train_(pruner, optimizer)
    close_(pruner)
    weight = pruner.model[0].weight
    with pytest.raises(ZeroDivisionError):
        pruner.step(optimizer)
    assert pruner.model[0].weight is weight
    assert (pruner.steps, pruner.history) == (0, [])
