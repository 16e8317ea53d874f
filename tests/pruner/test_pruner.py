"""The pruner: when it removes, what follows, what is refused, and what it reports."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch import nn, optim
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import diffprune as dp
from diffprune._surgery.compare import Comparison
from diffprune.errors import (
    ArgumentError,
    DiffpruneError,
    FinishedError,
    RemovalError,
    UnknownNameError,
)


class Net(nn.Module):
    """5 -> fc1 11 -> relu -> fc2 7 -> relu -> fc3 3."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 11)
        self.fc2 = nn.Linear(11, 7)
        self.fc3 = nn.Linear(7, 3)

    def forward(self, x):
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())


X = torch.linspace(-1, 1, 20).view(4, 5)


def make(**options):
    pruner = dp.Pruner(
        Net(), X, **{"remove_every": lambda _: False, "strength": 1e-5, **options}
    )
    return pruner, optim.Adam(pruner.parameter_groups(lr=1e-2, gate_lr=1e-6))


def close_(pruner, **units):
    for name, closed in units.items():
        pruner.gates[name].logits.data[closed] -= 5.0


def loss(pruner, x=X):
    return pruner.model(x).square().mean() + pruner.penalty()


def step_(pruner, optimizer):
    optimizer.zero_grad()
    loss(pruner).backward()
    optimizer.step()
    return pruner.step(optimizer)


def everything(pruner, optimizer):
    """All that a failed removal must leave alone, by value and by identity."""
    parameters = dict(pruner.model.named_parameters())
    return (
        {name: id(p) for name, p in parameters.items()},
        [id(p) for group in optimizer.param_groups for p in group["params"]],
        str(pruner.model),
        pruner.summary(),
        pruner.plan,
        list(pruner.history),
        copy.deepcopy(optimizer.state_dict()),
        copy.deepcopy(pruner.model.state_dict()),
    )


def assert_untouched(before, pruner, optimizer):
    *others, states, weights = everything(pruner, optimizer)
    *others_before, states_before, weights_before = before
    assert others == others_before
    torch.testing.assert_close(states, states_before, rtol=0, atol=0)
    torch.testing.assert_close(weights, weights_before, rtol=0, atol=0)


def test_users_references_stay_valid():
    pruner, optimizer = make(remove_every=1)
    model = pruner.model
    close_(pruner, fc1=[0, 3], fc2=[6])
    record = step_(pruner, optimizer)
    assert record.units == {"fc1": 9, "fc2": 6}
    assert pruner.model is model
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert set(held) == set(model.parameters())
    assert (model.fc1.out_features, model.fc2.in_features) == (9, 9)
    assert step_(pruner, optimizer) is None


@pytest.mark.parametrize(
    ("remove_every", "expected"), [(1, 1), (3, 3), (lambda step: step == 4, 4)]
)
def test_removal_happens_when_the_schedule_says_so(remove_every, expected):
    pruner, optimizer = make(remove_every=remove_every)
    close_(pruner, fc1=[1])
    records = [step_(pruner, optimizer) for _ in range(5)]
    assert [r.step for r in records if r is not None] == [expected]


def test_options_of_param_groups_and_schedulers_go_on():
    pruner, _ = make()
    groups = pruner.parameter_groups(lr=0.1, gate_lr=0.3, weight_decay=0.01)
    optimizer = optim.AdamW(groups)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    close_(pruner, fc1=[1])
    step_(pruner, optimizer)
    pruner.remove_closed_(optimizer)
    step_(pruner, optimizer)
    scheduler.step()
    assert [g["lr"] for g in optimizer.param_groups] == [0.05, 0.15]
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.01, 0.0]


def test_an_older_loss_does_not_break_the_next_backward():
    pruner, optimizer = make()
    close_(pruner, fc1=[1])
    old = loss(pruner)
    old.backward(retain_graph=True)
    pruner.remove_closed_(optimizer)
    optimizer.zero_grad()
    loss(pruner).backward()
    optimizer.step()
    assert old.isfinite()


def test_accumulated_gradients_survive_a_removal():
    pruner, optimizer = make()
    close_(pruner, fc1=[1])
    whole = copy.deepcopy(pruner.model)
    loss(pruner).backward()
    pruner.remove_closed_(optimizer)
    loss(pruner).backward()
    for _ in range(2):
        (whole(X).square().mean() + dp.expected_l0(whole, 1e-5)).backward()
    kept = [i for i in range(11) if i != 1]
    torch.testing.assert_close(pruner.model.fc1.bias.grad, whole.fc1.bias.grad[kept])
    gates = {name: m for name, m in whole.named_modules() if isinstance(m, dp.Gate)}
    (first,) = [gate for name, gate in gates.items() if name.endswith("fc1")]
    torch.testing.assert_close(pruner.gates["fc1"].logits.grad, first.logits.grad[kept])


def test_moving_averages_are_cut_too():
    pruner, optimizer = make(remove_every=2)
    average = AveragedModel(pruner.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    pruner.add_copy(average)
    close_(pruner, fc1=[1, 2])
    for _ in range(4):
        step_(pruner, optimizer)
        average.update_parameters(pruner.model)
    assert average.module.fc1.out_features == 9
    before = average(X)
    pruner.finalize()
    assert list(average.module.state_dict()) == list(pruner.model.state_dict())
    torch.testing.assert_close(average(X), before)


def test_only_copies_are_accepted_as_copies():
    pruner, _ = make()
    with pytest.raises(ArgumentError, match="no copy of the model as it is now"):
        pruner.add_copy(Net())


def test_loss_scaling_goes_on():
    pruner, optimizer = make(remove_every=2)
    scaler = torch.amp.GradScaler("cpu")
    close_(pruner, fc1=[1])
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(loss(pruner)).backward()
        scaler.step(optimizer)
        scaler.update()
        pruner.step(optimizer)
    assert pruner.history[-1].units["fc1"] == 10


def test_autocast_to_bfloat16():
    pruner, optimizer = make(remove_every=2)
    close_(pruner, fc1=[1], fc2=[0])
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            value = pruner.model(X).float().square().mean()
        (value + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)
    assert pruner.history[-1].units == {"fc1": 10, "fc2": 6}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    pruner = dp.Pruner(Net().to(dtype), X.to(dtype), strength=1e-5)
    close_(pruner, fc1=[1])
    assert pruner.gates["fc1"].logits.dtype == dtype
    assert pruner.remove_closed_().certificate.dtype == str(dtype)[6:]


def test_hooks_of_the_user_stay():
    pruner, optimizer = make()
    seen = []
    pruner.model.fc2.register_forward_hook(lambda *_: seen.append(1))
    close_(pruner, fc1=[1])
    pruner.remove_closed_(optimizer)
    seen.clear()
    pruner.finalize()(X)
    assert seen
    assert len(pruner.model.fc2._forward_hooks) == 1
    assert not pruner.model.fc2._forward_pre_hooks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_is_compiled_anew():
    pruner, optimizer = make()
    compiled = torch.compile(pruner.model)
    close_(pruner, fc1=[1], fc2=[2])
    before = compiled(X)
    pruner.remove_closed_(optimizer)
    torch.testing.assert_close(compiled(X), before)
    pruner.finalize()
    torch.testing.assert_close(compiled(X), before)


def test_two_optimizers_share_the_parameters():
    pruner, _ = make()
    weights, gates = pruner.parameter_groups()
    optimizers = optim.SGD(weights["params"], lr=0.1), optim.Adam(gates["params"])
    close_(pruner, fc1=[1])
    loss(pruner).backward()
    for optimizer in optimizers:
        optimizer.step()
    pruner.remove_closed_(*optimizers)
    held = {p for o in optimizers for g in o.param_groups for p in g["params"]}
    assert held == set(pruner.model.parameters())


def test_a_failed_certificate_rolls_everything_back(monkeypatch):
    pruner, optimizer = make()
    step_(pruner, optimizer)
    close_(pruner, fc1=[1], fc2=[2])
    before = everything(pruner, optimizer)
    monkeypatch.setattr(Comparison, "is_equal", False)
    with pytest.raises(RemovalError, match="as they were before it"):
        pruner.remove_closed_(optimizer)
    assert_untouched(before, pruner, optimizer)
    monkeypatch.undo()
    assert pruner.remove_closed_(optimizer).units == {"fc1": 10, "fc2": 6}


class DividesByWidth(Net):
    """Divides a float by a width, which no integer can see; an integer comes first."""

    def forward(self, x):
        y = self.fc1(x).relu()
        y = self.fc2(y * (1 + 0.5 / y.shape[1])).relu()
        return self.fc3(y).argmax(1), self.fc3(y)


def test_a_changed_output_behind_an_integer_is_refused_and_located():
    model = DividesByWidth()
    pruner = dp.Pruner(model, X, strength=1e-3)
    close_(pruner, fc1=[1])
    before = everything(pruner, optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RemovalError, match=r"something else.*first in `fc2`") as found:
        pruner.remove_closed_()
    assert "as they were before it" in str(found.value)
    assert_untouched(before, pruner, optim.SGD(model.parameters(), lr=0.1))


def test_a_failed_finalize_leaves_a_pruner_that_works(monkeypatch):
    pruner, optimizer = make()
    before = everything(pruner, optimizer)
    monkeypatch.setattr(Comparison, "is_equal", False)
    with pytest.raises(RemovalError, match=r"Nothing was changed\."):
        pruner.finalize()
    assert_untouched(before, pruner, optimizer)
    monkeypatch.undo()
    assert type(pruner.finalize()) is Net


@pytest.mark.parametrize("layer", ["fc2", "fc3"])
def test_a_layer_that_was_replaced_is_noticed(layer):
    torch.manual_seed(0)  # units that are dead anyway would not be missed
    pruner, _ = make()
    close_(pruner, fc1=[1], fc2=[0, 1, 2, 3, 4])
    fresh = getattr(Net(), layer)
    setattr(pruner.model, layer, fresh)
    with pytest.raises(DiffpruneError, match=r"something else|was replaced"):
        pruner.remove_closed_()
    assert pruner.model.fc1.out_features == 11


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda m: setattr(m, "fc1", nn.Linear(5, 12)),
            r"`fc1.weight` had shape \(11, 5\)",
        ),
        (lambda m: m.add_module("new", nn.Linear(2, 2)), "`new.weight` had shape none"),
        (lambda m: delattr(m, "fc3"), "`fc3.weight` had shape .* has none now"),
    ],
)
def test_a_model_that_was_changed_is_refused(change, match):
    pruner, optimizer = make()
    close_(pruner, fc1=[1])
    change(pruner.model)
    with pytest.raises(ArgumentError, match=match):
        pruner.remove_closed_(optimizer)
    assert not pruner.history


def test_a_weight_that_a_parametrization_took_is_missed_by_name():
    pruner, _ = make()
    weight_norm(pruner.model.fc2)
    with pytest.raises(ArgumentError, match=r"no parameter `weight` any more"):
        pruner.model(torch.rand(2, 5))


@pytest.mark.parametrize("missing", ["fc1.bias", "fc1 (its gate)"])
def test_an_optimizer_that_lacks_parameters_is_refused(missing):
    pruner, _ = make()
    close_(pruner, fc1=[1])
    lacks = (
        pruner.model.fc1.bias if missing == "fc1.bias" else pruner.gates["fc1"].logits
    )
    optimizer = optim.SGD(
        [p for p in pruner.model.parameters() if p is not lacks], lr=1
    )
    before = everything(pruner, optimizer)
    with pytest.raises(ArgumentError, match="does not hold `fc1"):
        pruner.remove_closed_(optimizer)
    assert_untouched(before, pruner, optimizer)


@pytest.mark.parametrize("call", ["step", "remove_closed_", "finalize", "penalty"])
def test_nothing_works_after_finalize(call):
    pruner, _ = make()
    pruner.finalize()
    with pytest.raises(FinishedError, match="this pruner was finalized"):
        getattr(pruner, call)()


def test_a_finalized_model_is_the_users_own():
    plain = Net()
    pruner = dp.Pruner(plain, X, strength=1e-5)
    close_(pruner, fc1=[0, 1], fc2=[3])
    before = plain(X)
    small = pruner.finalize()
    assert small is plain
    assert list(small.state_dict()) == list(Net().state_dict())
    torch.testing.assert_close(small(X), before)
    dp.Pruner(small, X, strength=1e-5)  # and may have another pruner


def test_finalize_takes_the_optimizer_along():
    pruner, optimizer = make()
    step_(pruner, optimizer)
    close_(pruner, fc1=[0])
    small = pruner.finalize(optimizer)
    held = {p for group in optimizer.param_groups for p in group["params"]}
    assert set(small.parameters()) <= held


def test_two_pruners_are_refused():
    pruner, _ = make()
    with pytest.raises(ArgumentError, match="already has a pruner"):
        dp.Pruner(pruner.model, X, strength=1e-5)


@pytest.mark.parametrize(
    "broken", [lambda p: p.gates["fc1"].logits, lambda p: p.model.fc3.weight]
)
def test_nothing_is_removed_while_numbers_are_broken(broken):
    pruner, optimizer = make()
    close_(pruner, fc1=[1])
    broken(pruner).data[0] = torch.nan
    with pytest.warns(UserWarning, match="NaN or infinite numbers; nothing is removed"):
        assert pruner.remove_closed_(optimizer) is None
    assert pruner.model.fc1.out_features == 11


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"strength": {"fc9": 1.0}},
            "strength: nothing matches `fc9`; there are `fc1`",
        ),
        (
            {"gate": {"conv*": dp.Gate}},
            "gate: nothing matches `conv.`; there are `fc1`",
        ),
    ],
)
def test_patterns_that_match_nothing_change_nothing(options, match):
    model = Net()
    with pytest.raises(UnknownNameError, match=match):
        dp.Pruner(model, X, **{"strength": 1e-5, **options})
    assert str(model) == str(Net())
    assert dp.Pruner(model, X, strength=1e-5).gates


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"remove_every": 0}, "remove_every must be a whole number of at least 1"),
        ({"reopen": 0.7}, "reopen is a probability of at most 1/2, got 0.7"),
        ({"round_to": 0}, "round_to must be a whole number of at least 1"),
        ({"strength": -1.0}, "must be a finite number of at least 0, .*got -1.0"),
        ({"strength": float("nan")}, "strength must be a finite number .*got nan"),
        ({"freeze": ["fc*"]}, "nothing in this model can be removed"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, match):
    model = Net()
    with pytest.raises(ArgumentError, match=match):
        dp.Pruner(model, X, **{"strength": 1e-5, **options})
    assert str(model) == str(Net())


BUDGET = dp.Budget(macs=0.5, steps=10)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "give it `strength=` or `budget=`"),
        ({"budget": BUDGET, "strength": 1e-4}, "leave `strength=` out"),
        ({"budget": BUDGET, "remove_every": 3}, "leave `remove_every=` out"),
        ({"budget": BUDGET, "reopen": 0.3}, "leave `reopen=` out"),
        ({"budget": BUDGET, "patience": 7}, "leave `patience=` out"),
        ({"budget": dp.Budget(macs=0.5)}, r"Type `Budget\(macs=0.5, steps=...\)`"),
        ({"strength": 1e-4, "on_budget": print}, "leave it out, or give a `budget=`"),
        ({"strength": 1e-4, "gate": lambda _: nn.ReLU()}, "made a ReLU for `fc1`"),
        ({"strength": 1e-4, "gate": lambda _: dp.Gate(3)}, "a gate of 3 units for"),
    ],
)
def test_combinations_that_mean_nothing_are_refused(options, match):
    model = Net()
    with pytest.raises(ArgumentError, match=match):
        dp.Pruner(model, X, **options)
    assert str(model) == str(Net())
    assert dp.Pruner(model, X, strength=1e-5).gates


def test_strengths_by_pattern_leave_the_rest_whole():
    pruner, _ = make(strength={"fc2": dp.by_parameters(0.5)})
    assert list(pruner.gates) == ["fc2"]
    per_unit = 11 + 1 + 3
    expected = pruner.gates["fc2"].prob_open().sum() * 0.5 * per_unit
    torch.testing.assert_close(pruner.penalty(), expected)


def test_strengths_by_cost():
    pruner, _ = make(strength=dp.by_macs(1.0))
    costs = {"fc1": 4 * (5 + 7), "fc2": 4 * (11 + 3)}
    gates = pruner.gates.items()
    expected = sum(g.prob_open().sum() * costs[name] for name, g in gates)
    torch.testing.assert_close(pruner.penalty(), expected)


def test_kinds_of_gates_by_pattern():
    noisy = partial(dp.Gate, dropout=0.1)
    pruner, _ = make(gate={"fc2": lambda group: noisy(group.size)})
    assert pruner.gates["fc1"].log_noise_var is None
    assert pruner.gates["fc2"].log_noise_var is not None


def test_noisy_units_go_once_they_hardly_reopen():
    pruner, _ = make(gate=lambda group: dp.Gate(group.size, dropout=0.05), reopen=0.02)
    gate = pruner.gates["fc1"]
    gate.logits.data[0] = gate.threshold.logit() - 0.02  # noise of 0.03 reopens it
    gate.logits.data[1] = -20.0
    assert pruner.remove_closed_().units["fc1"] == 10
    assert (~gate.is_open()).sum() == 1


def test_units_that_noise_of_their_own_size_reopens_stay():
    pruner, _ = make(gate=lambda group: dp.Gate(group.size, dropout=0.5))
    close_(pruner, fc1=[1])
    pruner.gates["fc1"].logits.data[1] = -50.0
    assert pruner.remove_closed_() is None
    assert pruner.finalize().fc1.out_features == 10


def test_competing_units_keep_their_values():
    pruner, _ = make(gate=lambda group: dp.Gate(group.size, u="softmax"))
    close_(pruner, fc1=[0, 4])
    kept = [i for i in range(11) if i not in {0, 4}]
    before = pruner.gates["fc1"].values()[kept]
    assert pruner.remove_closed_().units["fc1"] == 9
    torch.testing.assert_close(pruner.gates["fc1"].values(), before)


def test_floors_hold_and_are_reported():
    pruner, _ = make()
    close_(pruner, fc1=slice(None))
    assert pruner.remove_closed_().units["fc1"] == 2
    assert "fc1 (at its floor)" in pruner.summary()


@pytest.mark.parametrize("round_to", [1, 4])
def test_a_gate_without_a_floor_keeps_what_a_layer_needs_to_run(round_to):
    pruner, _ = make(gate=lambda g: dp.Gate(g.size, min_open=0), round_to=round_to)
    close_(pruner, fc1=slice(11))
    before = pruner.model.eval()(X)
    assert pruner.finalize().fc1.out_features == round_to
    torch.testing.assert_close(pruner.model(X), before)


def test_gates_that_are_binary_from_the_start_lose_units():
    pruner, optimizer = make(gate=lambda g: dp.Gate(g.size, sharpness=torch.inf))
    close_(pruner, fc1=slice(6))
    assert pruner.remove_closed_(optimizer).units["fc1"] == 5


def test_widths_are_rounded_up():
    pruner, _ = make(round_to=4)
    close_(pruner, fc1=[0, 1, 2, 3, 4])
    assert pruner.remove_closed_().units["fc1"] == 8


def test_a_removal_says_what_the_units_were_worth_that_left():
    pruner, optimizer = make()
    optimizer.zero_grad()
    loss(pruner).backward()
    optimizer.step()
    pruner.step(optimizer)
    before = pruner.worth["fc1"]
    close_(pruner, fc1=[1, 4])
    record = pruner.remove_closed_(optimizer)
    lost = float(before[[1, 4]].mean())
    assert record.worth == {"fc1": pytest.approx(lost)}
    assert lost > 0
    assert pruner.worth["fc1"].shape == (9,)
    assert type(record).from_dict(record.to_dict()) == record


def test_progress_is_told_and_remembered():
    told = []
    pruner, optimizer = make(on_removal=told.append)
    close_(pruner, fc1=[1])
    pruner.remove_closed_(optimizer)
    assert told == pruner.history
    assert told[0].certificate.max_relative <= 1e-5
    assert told[0].parameters == sum(
        p.numel()
        for name, p in pruner.model.named_parameters()
        if "_diffprune" not in name
    )
    assert "10 of 11" in pruner.summary()


def test_the_plan_depends_on_the_gates_values_alone():
    (one, _), (two, _) = make(), make()
    for pruner in (one, two):
        for name, gate in pruner.gates.items():
            gate.logits.data = torch.linspace(-3, 3, gate.size)
            gate.threshold.fill_(0.3 if name == "fc1" else 0.6)
        pruner.remove_closed_()
    assert one.plan == two.plan
    assert one.plan.kept["fc1"] != tuple(range(11))


def test_no_warning_on_the_way():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pruner, optimizer = make(remove_every=1)
        close_(pruner, fc1=[1])
        step_(pruner, optimizer)
        pruner.finalize(optimizer)


def test_groups_that_a_user_holds_do_not_change_when_units_are_removed():
    model = nn.Sequential(nn.Linear(8, 60), nn.ReLU(), nn.Linear(60, 4))
    pruner = dp.Pruner(model, torch.rand(8, 8), strength=1e-3)
    held = pruner.groups
    shown, macs, size = str(held), held.macs(), held[0].size
    pruner.gates["0"].logits.data[:30] -= 5.0
    pruner.remove_closed_()
    assert (str(held), held.macs(), held[0].size) == (shown, macs, size)
    assert pruner.groups.sizes == {"0": 30}
    assert pruner.groups.macs() == macs // 2
