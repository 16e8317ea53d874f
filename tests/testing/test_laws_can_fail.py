"""Each law finds the fault it is there for; a law that cannot fail says nothing."""

import dataclasses
from functools import partial

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune import surgery, testing
from diffprune.errors import ArgumentError, RemovalError
from diffprune.testing import outcomes
from zoo import ZOO, analysed


def perceptron():
    return nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2)).double()


X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)


class Peaks(nn.Module):
    """An op without a rule between two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, signal):
        return self.down(torch.cummax(self.up(signal), dim=1).values)


def cummax(call, x, dim):
    call.freeze(x.axes[dim], "its elements depend on their order")
    return x.axes


class TestGroups:
    def test_a_tensor_that_is_missing_from_a_group_is_found(self):
        model = perceptron()
        groups, others = (dp.find_groups(model, X) for _ in range(2))
        missing = {**groups.tensors, "2.weight": others.tensors["2.weight"]}
        groups = dataclasses.replace(groups, tensors=missing)
        with pytest.raises(AssertionError, match="units changed places"):
            testing.check_groups(model, X, groups=groups)

    def test_it_returns_the_groups_so_that_none_is_noticed(self):
        assert [g.name for g in testing.check_groups(perceptron(), X)] == ["0"]


class TestRule:
    def test_a_right_rule_passes(self):
        rules = {torch.ops.aten.cummax: cummax}
        found = testing.check_rule(rules, Peaks(), torch.randn(2, 5, 4))
        assert [group.name for group in found] == ["up"]

    def test_a_rule_for_another_op_is_noticed(self):
        rules = {torch.ops.aten.cummin: cummax}
        with pytest.raises(AssertionError, match=r"does the model use .*cummin"):
            testing.check_rule(rules, Peaks(), torch.randn(2, 5, 4))

    def test_a_wrong_rule_is_found(self):
        """A roll over channels moves units; this rule says that it does not."""
        rules = {torch.ops.aten.roll: lambda _, x, *__: x.axes}
        model, inputs = ZOO["roll_over_channels"]()
        with pytest.raises((AssertionError, RemovalError)):
            testing.check_rule(rules, model, inputs)


class TestRemoval:
    @pytest.mark.parametrize("training", [False, True])
    def test_a_difference_in_either_mode_is_found(self, monkeypatch, training):
        """The certificate is switched off and one weight of the result is moved."""
        model = nn.Sequential(nn.Linear(3, 7), nn.BatchNorm1d(7), nn.Linear(7, 2))
        model = model.double().eval()

        def wrong(model, example_inputs, groups, keep):
            result = surgery.removal(model, example_inputs, groups, keep=keep)
            moved = result.model[1]
            (moved.bias if training else moved.running_mean).data += 1e-6
            return result

        monkeypatch.setattr("diffprune.testing.removal_laws.removal", wrong)
        mode = "" if training else "in eval mode"
        with pytest.raises(AssertionError, match=f"outputs of the smaller .*{mode}"):
            testing.check_removal(model, X)

    def test_other_inputs_show_what_the_example_does_not(self, monkeypatch):
        def wrong(model, example_inputs, groups, keep):
            result = surgery.removal(model, example_inputs, groups, keep=keep)
            result.model[0].weight.data += 1.0
            return result

        monkeypatch.setattr("diffprune.testing.removal_laws.removal", wrong)
        with pytest.raises(AssertionError, match="outputs of the smaller"):
            testing.check_removal(perceptron(), torch.zeros_like(X))

    def test_a_changed_original_is_found(self, monkeypatch):
        def wrong(model, *rest, **options):
            result = surgery.removal(model, *rest, **options)
            model[0].bias.data[0] += 1.0
            return result

        monkeypatch.setattr("diffprune.testing.removal_laws.removal", wrong)
        with pytest.raises(AssertionError, match=r"original .* `0.bias`"):
            testing.check_removal(perceptron(), X)

    def test_dropout_is_no_obstacle(self):
        model = nn.Sequential(*perceptron()[:2], nn.Dropout(0.5), perceptron()[2])
        assert testing.check_removal(model, X).model[0].out_features < 7


class TestComposition:
    def test_another_order_of_units_is_found(self, monkeypatch):
        def backwards(model, plan):
            small = surgery.apply_plan(model, plan)
            for p in small.parameters():
                p.data = p.data.flip(0)
            return small

        monkeypatch.setattr("diffprune.testing.removal_laws.apply_plan", backwards)
        with pytest.raises(AssertionError, match="another tensor"):
            testing.check_composition(perceptron(), X)


class TestRoundTrip:
    def test_a_loaded_model_is_the_saved_one(self):
        testing.check_round_trip(perceptron, perceptron(), X)

    def test_a_tensor_that_was_not_loaded_is_found(self, monkeypatch):
        def forgetful(fresh, folder):
            loaded = dp.load_pruned(fresh, folder)
            nn.init.ones_(loaded[0].bias)
            return loaded

        monkeypatch.setattr("diffprune.testing.removal_laws.load_pruned", forgetful)
        with pytest.raises(AssertionError, match=r"loaded model: `0.bias`"):
            testing.check_round_trip(perceptron, perceptron(), X)


class Coupled(optim.SGD):
    """Divides every update by the width, which a removal changes."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad /= p.numel()
        return super().step(closure)


class TestTraining:
    def test_an_optimizer_that_couples_units_is_found(self):
        with pytest.raises(AssertionError, match="in the middle of training"):
            testing.check_training_commutes(perceptron(), X, Coupled)

    def test_momentum_that_is_lost_is_found(self, monkeypatch):
        forget = dp.Pruner.remove_closed_

        def wrong(self, optimizer):
            done = forget(self, optimizer)
            for state in optimizer.state.values():
                state["exp_avg"].zero_()
            return done

        monkeypatch.setattr(dp.Pruner, "remove_closed_", wrong)
        with pytest.raises(AssertionError, match="in the middle of training"):
            testing.check_training_commutes(perceptron(), X)

    def test_a_model_without_groups_is_refused(self):
        model, inputs, _ = analysed("softmax_over_channels")
        with pytest.raises(ArgumentError, match="nothing in this model can be removed"):
            testing.check_training_commutes(model, inputs)


class Leaky(dp.Gate):
    """A closed unit lets a little through."""

    def values(self):
        return super().values() + 1e-12


class Forgetful(dp.Gate):
    """The survivors of a removal notice it."""

    def keep_(self, keep):
        super().keep_(keep)
        self.logits.data += 0.1


class Late(dp.Gate):
    """One unit is closed from the start."""

    def __init__(self, size):
        super().__init__(size, min_open=1)
        self.logits.data[0] -= 9.0


class TestGate:
    @pytest.mark.parametrize("u", ["sigmoid", "softmax", torch.special.ndtr])
    def test_our_gates_obey(self, u):
        testing.check_gate(partial(dp.Gate, u=u))

    def test_a_gate_that_is_not_exactly_zero_is_found(self):
        with pytest.raises(AssertionError, match="closed is not zero"):
            testing.check_gate(Leaky)

    def test_a_gate_whose_survivors_move_is_found(self):
        with pytest.raises(AssertionError, match="what stays after a removal"):
            testing.check_gate(Forgetful)

    def test_a_gate_that_starts_closed_is_found(self):
        with pytest.raises(AssertionError, match="a fresh gate has closed units"):
            testing.check_gate(Late)


class TestPrecision:
    def test_rounding_in_single_precision_breaks_no_law(self):
        model = nn.Sequential(
            *(nn.Conv2d(3, 23, 3), nn.BatchNorm2d(23), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(23 * 16, 37), nn.ReLU(), nn.Linear(37, 2)),
        )
        images = 1000 * torch.rand(4, 3, 6, 6)
        testing.check_groups(model, images)
        testing.check_removal(model, images)
        testing.check_training_commutes(model, images)

    @pytest.mark.parametrize("other", [torch.tensor([0.5]), torch.tensor([3])])
    def test_a_large_output_hides_no_fault_of_another(self, other):
        large = torch.tensor([1e6])
        outcomes.assert_close([large + 1, other], [large, other], what="", atol=1e-5)
        with pytest.raises(AssertionError, match="outputs"):
            outcomes.assert_close(
                [large, other + 1], [large, other], what="outputs", atol=1e-5
            )

    def test_another_number_of_outputs_is_found(self):
        x = torch.ones(2)
        with pytest.raises(AssertionError, match="outputs"):
            outcomes.assert_close([x], [x, x], what="outputs", atol=1e-5)

    @pytest.mark.parametrize("value", [0.0, torch.finfo().max])
    def test_nan_and_infinity_are_no_numbers(self, value):
        for odd in (torch.nan, torch.inf):
            assert outcomes.is_equal(torch.tensor([odd]), torch.tensor([odd]))
            assert not outcomes.is_equal(torch.tensor([odd]), torch.tensor([value]))
