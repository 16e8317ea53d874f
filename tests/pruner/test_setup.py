"""Pruners with a budget: what users ask for, and what they get."""

import copy
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune._budget import limits
from diffprune._budget.controller import rounds
from diffprune._budget.limits import Measured
from diffprune._core import timing
from diffprune._costs import latency
from diffprune._pruner import setup
from diffprune.errors import ArgumentError
from paper.models.lenet5 import LeNet5

STEPS = 40
X = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = (X.mean((1, 2, 3)) > 0).long()
OPTIMIZERS = {
    "adam": partial(torch.optim.Adam, lr=1e-3),
    "fast adam": partial(torch.optim.Adam, lr=3e-2),
    "sgd": partial(torch.optim.SGD, lr=1e-2, momentum=0.9),
}


def convolutional():
    """conv 16 -> norm -> conv 24 -> norm -> fc 40 -> fc 2."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 16, 40),
        nn.ReLU(),
        nn.Linear(40, 2),
    )


def weights(model):
    return sum(parameter.numel() for parameter in model.parameters())


def begin(budget, make_optimizer=OPTIMIZERS["adam"], **options):
    strength = 1e-5 if budget is None else None
    pruner = dp.Pruner(
        convolutional(), X[:4], budget=budget, **{"strength": strength, **options}
    )
    return pruner, make_optimizer(pruner.parameter_groups())


def train(pruner, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (cross_entropy(pruner.model(X), Y) + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("macs", [0.9, 0.05])
def test_what_is_asked_for_is_what_the_model_costs(macs, optimizer):
    pruner, optimizer = begin(dp.Budget(macs=macs, steps=STEPS), optimizer)
    whole = pruner.groups.macs()
    train(pruner, optimizer, STEPS)
    small = pruner.finalize()
    left = dp.find_groups(small, X[:4]).macs()
    assert 0.97 * macs * whole <= left <= macs * whole


def test_parameters_are_counted_in_the_model_itself():
    pruner, optimizer = begin(dp.Budget(parameters=2_000, steps=STEPS))
    train(pruner, optimizer, STEPS)
    small = pruner.finalize()
    assert 0.97 * 2_000 <= weights(small) <= 2_000


def test_latency_is_that_of_the_plain_model(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seen = []
    monkeypatch.setattr(timing, "best_seconds", lambda run, *_: seen.append(run) or 1.0)
    with pytest.raises(
        ArgumentError, match=r"latency='1 ms' cannot be met.* at least 1 "
    ):
        begin(dp.Budget(latency="1 ms", steps=STEPS))
    assert seen  # every op took a second, however narrow, and so did the model


def test_what_takes_longer_than_predicted_is_cut_further(monkeypatch):
    whole = weights(convolutional())
    pruner, optimizer = begin(dp.Budget(parameters=0.3, steps=STEPS))

    def measured(keep):
        left = weights(pruner._gated.without_gates(keep))
        return {"parameters": Measured(1.3 * left, whole)}

    monkeypatch.setattr(pruner.controller, "_measure", measured)
    train(pruner, optimizer, STEPS)
    left = weights(pruner.finalize())
    assert 0.97 * 0.3 * whole <= 1.3 * left <= 0.3 * whole
    assert pruner.controller.phase == "met"
    state = pruner.controller.state_dict()
    assert state["factors"] == [pytest.approx(1.3, rel=1e-3)]


def test_the_whole_model_is_timed_again_with_what_is_left(monkeypatch):
    cost = limits.COSTS["parameters"]  # real seconds of so small a model hardly shrink
    monkeypatch.setitem(limits.COSTS, "latency", cost)
    timed = []

    def in_turns(models, inputs):
        sizes = [weights(model) for model in models]
        assert torch.equal(inputs, X[:4])
        timed.append(sizes)
        return [size / 1e6 for size in sizes]

    monkeypatch.setattr(setup, "measure_in_turns", in_turns)
    whole = weights(convolutional())
    pruner, optimizer = begin(dp.Budget(latency=0.9, steps=20))
    train(pruner, optimizer, 20)
    assert {size for _, size in timed} == {whole}
    assert timed[-1][0] == weights(pruner.finalize())


@pytest.mark.parametrize("make_gate", [None, dp.Gate], ids=["attached", "placed"])
def test_what_would_be_left_is_tried_without_a_trace(make_gate):
    model = LeNet5(make_gate) if make_gate else LeNet5()
    digits = torch.rand(2, 1, 28, 28)
    pruner = dp.Pruner(model, digits, strength=1e-5)
    before, widths = dict(model.named_parameters()), pruner.shape()
    values = {name: value.clone() for name, value in before.items()}
    expected = model.eval()(digits)
    keep = {n: torch.arange(gate.size) <= 2 for n, gate in pruner.gates.items()}
    small = pruner._gated.without_gates(keep)
    assert small.conv1.out_channels == small.conv2.in_channels == 3
    assert small(digits).shape == (2, 10)
    after = dict(model.named_parameters())
    assert all(after[name] is before[name] for name in before)
    assert all(torch.equal(after[name], values[name]) for name in before)
    assert pruner.shape() == widths
    assert torch.equal(model(digits), expected)


def test_latency_can_be_asked_of_placed_gates(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Twenty times in this run the whole model is timed; a glance will do here.
    monkeypatch.setattr(latency, "THOROUGHLY", timing.BRIEFLY)
    model = nn.Sequential(nn.Linear(256, 600), dp.Gate(600), nn.Linear(600, 10))
    x = torch.rand(64, 256)
    whole = dp.find_groups(nn.Sequential(model[0], model[2]), x).macs()
    pruner = dp.Pruner(model, x, budget=dp.Budget(latency=0.8, steps=10))
    optimizer = OPTIMIZERS["adam"](pruner.parameter_groups())
    for _ in range(10):
        (model(x).square().mean() + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)
    assert pruner.controller.phase == "met"
    assert dp.find_groups(pruner.finalize(), x).macs() < whole


def test_nothing_changes_while_the_model_recovers():
    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS))
    train(pruner, optimizer, STEPS // 2)
    before = pruner.shape().units
    assert pruner.controller.phase == "recovery"
    for gate in pruner.gates.values():
        gate.logits.data[0] = -5.0  # as low as it gets
    train(pruner, optimizer, STEPS // 2)
    assert pruner.shape().units == before
    assert pruner.penalty().item() == 0.0


def test_a_run_that_ends_early_meets_its_budget_and_says_so():
    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS))
    train(pruner, optimizer, 3)
    whole = pruner.groups.macs()
    with pytest.warns(UserWarning, match=r"only now, after 3 steps.*steps=3"):
        small = pruner.finalize(optimizer)
    assert 0.97 * 0.3 <= dp.find_groups(small, X[:4]).macs() / whole <= 0.3


@pytest.mark.parametrize(
    "cut",
    [
        lambda model: dp.remove(model, X[:4], keep={}),
        lambda model: dp.compact(model, X[:4]),
        lambda model: dp.shrink(model, [(X, X)], torch.dist, dp.Budget(macs=0.5)),
    ],
    ids=["remove", "compact", "shrink"],
)
def test_nobody_else_cuts_a_model_that_a_pruner_is_at_work_on(cut):
    pruner, _ = begin(dp.Budget(macs=0.3, steps=STEPS))
    with pytest.raises(ArgumentError, match="already has a pruner"):
        cut(pruner.model)


@pytest.mark.parametrize(
    "cut",
    [
        lambda model: dp.Pruner(model, X[:4], strength=1e-3),
        lambda model: dp.remove(model, X[:4], keep={}),
    ],
    ids=["Pruner", "remove"],
)
def test_models_that_share_a_gated_layer_have_one_pruner(cut):
    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS))
    other = nn.Sequential(*pruner.model, nn.Linear(pruner.model[-1].out_features, 2))
    before = vars(other).keys()
    with pytest.raises(ArgumentError, match="is a part of another model, whose pruner"):
        cut(other)
    assert vars(other).keys() == before
    train(pruner, optimizer, STEPS)
    pruner.finalize(optimizer)
    cut(other)


def test_a_pruner_that_was_never_called_says_how():
    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS))
    with pytest.warns(UserWarning, match=r"only now.*`pruner.step\(optimizer\)` after"):
        pruner.finalize(optimizer)


def test_budgets_in_turn_leave_a_plain_model_each():
    met = {}

    def keep(budget, model):
        met[budget.macs] = copy.deepcopy(model)

    budgets = [dp.Budget(macs=part, steps=20) for part in (0.5, 0.2)]
    pruner, optimizer = begin(budgets, on_budget=keep)
    whole = pruner.groups.macs()
    train(pruner, optimizer, 40)
    assert list(met) == [0.5, 0.2]
    for part, model in met.items():
        assert 0.97 * part <= dp.find_groups(model, X[:4]).macs() / whole <= part
        assert model.state_dict().keys() == convolutional().state_dict().keys()
    small = pruner.finalize().eval()
    torch.testing.assert_close(small(X), met[0.2].eval()(X))


@pytest.mark.parametrize("steps", [1, 10, 25])
def test_a_run_that_ends_early_meets_all_its_budgets(steps):
    budgets = [dp.Budget(macs=part, steps=20) for part in (0.5, 0.2)]
    pruner, optimizer = begin(budgets)
    whole = pruner.groups.macs()
    train(pruner, optimizer, steps)
    with pytest.warns(UserWarning, match="the last budget was met only now, after"):
        small = pruner.finalize(optimizer)
    assert 0.97 * 0.2 <= dp.find_groups(small, X[:4]).macs() / whole <= 0.2


@pytest.mark.parametrize(
    ("steps", "is_late"), [(3, True), (12, True), (39, False)], ids=str
)
def test_a_run_that_ends_early_tells_of_every_budget(steps, is_late):
    """Be it that units still have to leave for it, or that the model recovers."""
    budgets, told = [dp.Budget(macs=part, steps=20) for part in (0.5, 0.2)], {}
    pruner, optimizer = begin(
        budgets, on_budget=lambda budget, small: told.update({budget.macs: small})
    )
    whole = pruner.groups.macs()
    train(pruner, optimizer, steps)
    with pytest.warns(UserWarning, match="met only now") if is_late else nullcontext():
        pruner.finalize(optimizer)
    used = {part: dp.find_groups(s, X[:4]).macs() / whole for part, s in told.items()}
    assert [*used] == [0.5, 0.2]
    assert used == pytest.approx({0.5: 0.49, 0.2: 0.195}, abs=0.01)
    assert pruner.controller.phase == "met"


RESUMED = dp.Budget(macs=0.2, parameters=0.3, steps=STEPS)
SAVED = (2, 11, 30)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run to its end, and the folder of what it saved on the way."""
    folder, done = tmp_path_factory.mktemp("run"), 0
    pruner, optimizer = begin(RESUMED)
    for when in SAVED:
        train(pruner, optimizer, when - done)
        dp.save_checkpoint(folder / f"{when}.pt", pruner, optimizer)
        done = when
    train(pruner, optimizer, STEPS - done)
    return pruner, folder


@pytest.mark.parametrize("when", SAVED)
def test_a_run_is_resumed_bit_for_bit(uninterrupted, when):
    pruner, folder = uninterrupted
    fresh, other = begin(RESUMED)
    dp.load_checkpoint(folder / f"{when}.pt", fresh, other)
    train(fresh, other, STEPS - when)
    assert fresh.controller.state_dict() == pruner.controller.state_dict()
    expected, found = pruner.model.state_dict(), fresh.model.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("budget", "message"),
    [(None, "state has a budget and the pruner has none"), (0.4, "asked for .*0.4")],
)
def test_the_state_of_another_budget_is_refused(budget, message):
    state = begin(dp.Budget(macs=0.5, steps=STEPS))[0].state_dict()
    other, _ = begin(budget and dp.Budget(macs=budget, steps=STEPS))
    with pytest.raises(ArgumentError, match=message):
        other.load_state_dict(state)


def test_the_summary_says_what_was_asked_and_got():
    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS))
    assert "macs=0.3:" in pruner.summary()
    train(pruner, optimizer, STEPS)
    used, most = pruner.controller.used()["macs"], 0.3 * pruner.dense.macs / 4
    assert f"{used * most:,.6g} of {most:,.6g} allowed (met)" in pruner.summary()


def test_widths_are_multiples_if_asked():
    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS), round_to=4)
    train(pruner, optimizer, STEPS)
    assert pruner.controller.used()["macs"] <= 1
    assert all(width % 4 == 0 for width in pruner.shape().units.values())


@pytest.mark.parametrize("options", [{"u": "softmax"}, {"dropout": 0.3}])
def test_gates_that_compete_or_have_noise_are_steered_too(options):
    def gate(group):
        return dp.Gate(group.size, **options)

    pruner, optimizer = begin(dp.Budget(macs=0.3, steps=STEPS), gate=gate)
    train(pruner, optimizer, STEPS)
    pruner.finalize()
    assert 0.97 <= pruner.controller.used()["macs"] <= 1


def test_budgets_find_their_own_strengths():
    with pytest.raises(ArgumentError, match="leave `strength=` out"):
        begin(dp.Budget(macs=0.5, steps=STEPS), strength=1e-4)


def test_no_budgets_are_no_budget():
    with pytest.raises(ArgumentError, match="asks for nothing"):
        begin([])


def test_numbers_that_are_not_finite_remove_nothing():
    budget = dp.Budget(macs=0.3, steps=STEPS)
    pruner, optimizer = begin(budget)
    due = rounds(budget)[1]
    train(pruner, optimizer, due - 1)
    before = pruner.shape().units
    next(pruner.model.parameters()).data[0] = torch.nan
    assert pruner.controller.is_due(due)
    with pytest.warns(UserWarning, match="nothing is removed"):
        pruner.step(optimizer)
    assert pruner.shape().units == before


@pytest.mark.parametrize("damage", [[], 3, {}, {"budgets": None}])
def test_a_state_whose_budget_is_damaged_is_refused(damage):
    pruner, optimizer = begin(dp.Budget(macs=0.5, steps=STEPS))
    state = pruner.state_dict() | {"budget": damage}
    with pytest.raises(ArgumentError, match=r"state of a budget|on its way to None"):
        pruner.load_state_dict(state, optimizer)
