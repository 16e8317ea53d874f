import copy
import gc
import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune._graph import find_groups
from diffprune._surgery.diagnose import layout
from diffprune._surgery.equivalence import OutputCheck, certify
from diffprune._surgery.remove import removal
from diffprune.errors import RemovalError


class Net(nn.Module):
    """3 -> fc 5 -> ReLU -> `after` -> fc 2 -> `last`."""

    def __init__(self, after=nn.Identity, last=nn.Identity):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)
        self.after, self.last = after(), last()

    def forward(self, x):
        return self.last(self.fc2(self.after(F.relu(self.fc1(x)))))


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


X = torch.rand(4, 3)
KEEP = {"fc1": torch.tensor([True, True, False, True, True])}


def wrong(model, by):
    """A copy whose last layer is off by so much."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.fc2.bias += by
    return other


def test_equal_models_are_certified_in_double_precision():
    model = Net()
    certificate = certify(model, model, X)
    assert (certificate.max_absolute, certificate.dtype) == (0.0, "float64")


def test_a_difference_in_double_precision_is_final():
    """Float32 would hide it behind its own tolerance."""
    model = Net()
    with pytest.raises(RemovalError, match=r"something else.*\(float64\)"):
        certify(model, wrong(model, 3e-7), X)


def only_single(x):
    if x.dtype != torch.float32:
        raise TypeError("float32 only")
    return x


def test_models_that_only_run_in_single_precision_are_compared_in_it():
    model = Net(after=partial(Lambda, only_single))
    assert certify(model, wrong(model, 3e-7), X).dtype == "float32"
    with pytest.raises(RemovalError, match=r"something else.*\(float32\)"):
        certify(model, wrong(model, 1e-3), X)


def test_models_that_cast_inside_are_allowed_the_rounding_of_that_cast():
    model = Net(last=partial(Lambda, lambda x: x.float().double()))
    assert certify(model, wrong(model, 3e-7), X).dtype == "float32"
    assert certify(model, model, X).dtype == "float64"


def test_integers_have_to_be_equal():
    model = Net(last=partial(Lambda, lambda x: (x * 1e6).round().long()))
    certify(model, model, X)
    with pytest.raises(RemovalError, match="something else"):
        certify(model, wrong(model, 1e-6), X)


def test_random_outputs_are_reported_as_such():
    model = Net(after=partial(Lambda, partial(F.dropout, p=0.5)))
    with pytest.raises(RemovalError, match="random numbers in eval mode"):
        certify(model, wrong(model, 1e-3), X)


def test_a_failure_names_the_module_it_happened_in():
    model, small = Net(), Net()
    small.fc2 = nn.Linear(4, 2)
    message = "fails in `fc2`: RuntimeError"
    with pytest.raises(RemovalError, match=message):
        certify(model, small, X)


def test_a_failure_outside_all_layers_names_the_forward():
    small = Net()
    small.fc2 = None
    with pytest.raises(RemovalError, match="fails in the model's own forward"):
        certify(Net(), small, X)


def test_a_difference_names_the_first_module_that_disagrees():
    model = Net()
    groups = find_groups(model, X)
    other = wrong(model, 0.1)
    with pytest.raises(RemovalError, match="first in `fc2`"):
        certify(model, other, X, kept=partial(layout, groups, {}))


def test_a_weight_that_is_divided_by_its_length_is_said_to_be():
    class Normed(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight / self.weight.norm(dim=1, keepdim=True))

    model, x = nn.Sequential(Normed(3, 5), nn.Linear(5, 2)), torch.rand(4, 3)
    groups = find_groups(model, x)
    with pytest.raises(RemovalError, match="NaN where the weights of removed units"):
        removal(model, x, groups, keep={"0": torch.arange(5) < 3})


def test_other_output_structures_are_refused():
    model = Net()
    other = copy.deepcopy(model)
    other.last = Lambda(lambda x: (x, x))
    with pytest.raises(RemovalError, match="something else"):
        certify(model, other, X)


class Counts(Net):
    """Changes a buffer at every call, in eval mode too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("make", [Net, Counts])
def test_certifying_leaves_both_models_alone(make):
    model, small = make().train(), make().train()
    small.load_state_dict(model.state_dict())
    before = copy.deepcopy(model.state_dict())
    certify(model, small, X)
    for each in (model, small):
        torch.testing.assert_close(each.state_dict(), before, rtol=0, atol=0)
        assert each.training


class IntegerFirst(Net):
    """Returns a label before what it was computed from."""

    def forward(self, x):
        scores = super().forward(x)
        return scores.argmax(1), scores


class CoarseFirst(Net):
    """Returns a rounded copy before the precise numbers."""

    def forward(self, x):
        scores = super().forward(x)
        return scores.bfloat16(), scores


@pytest.mark.parametrize("kind", [Net, IntegerFirst, CoarseFirst])
def test_every_output_has_the_tolerance_of_its_own_type(kind):
    """What comes first says nothing about what comes after it."""
    model = kind()
    with torch.no_grad():
        model.fc2.bias.copy_(torch.tensor([10.0, 0.0]))
    check = OutputCheck(model, X)
    assert check.certify().max_absolute == 0
    with torch.no_grad():
        model.fc2.bias *= 1 + 5e-3
    with pytest.raises(RemovalError, match="something else"):
        check.certify()


def test_a_check_tells_where_a_changed_model_parted_from_the_restored_one():
    model = Net()
    groups, check = find_groups(model, X), OutputCheck(model, X)
    state = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model.fc1.weight += 1
    with pytest.raises(RemovalError, match="something else"):
        check.certify()
    model.load_state_dict(state)
    assert "`fc1`" in check.first_difference(layout(groups, {}))


def test_a_check_names_the_layer_in_which_a_changed_model_fails():
    model = Net()
    check = OutputCheck(model, X)
    model.fc2 = nn.Linear(4, 2)
    with pytest.raises(RemovalError, match="fails in `fc2`"):
        check.certify()
    assert not check.first_difference({})


def test_a_check_costs_five_runs_of_the_model():
    """With the example as large as a training batch, that is below two steps."""
    model, runs = Net(), list[bool]()
    model.register_forward_hook(lambda module, *_: runs.append(module.training))
    check = OutputCheck(model, X)
    assert runs == [False, False, True]
    assert check.certify().compared == (
        "drawn inputs (eval mode)",
        "drawn inputs (train mode)",
    )
    assert runs[3:] == [False, True]


class Strict(Net):
    """Takes nothing but the example in train mode."""

    def forward(self, x):
        if self.training and not torch.equal(x, X):
            raise ValueError("never seen")
        return super().forward(x)


def test_a_check_runs_on_the_example_where_a_model_refuses_all_else():
    found = OutputCheck(Strict(), X).certify()
    assert found.compared == ("drawn inputs (eval mode)", "the example (train mode)")
    assert found.doubts == (
        "drawn inputs (train mode): the model does not run on them",
    )


class Mixed(nn.Module):
    """Reads places as channels, which is exact for images of four by four alone."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 32, 1), nn.Conv2d(3, 32, 1)
        self.last = nn.Conv2d(32, 2, 1)

    def forward(self, x):
        one, other = self.one(x), self.other(x)
        other = other.flatten(2).transpose(1, 2).reshape(one.shape)
        return self.last(one.relu() + other.relu())


def test_a_difference_on_inputs_of_another_size_is_told():
    model, x = Mixed(), torch.rand(2, 3, 4, 4)
    groups = find_groups(model, x)
    keep = {group.name: torch.arange(group.size) != 1 for group in groups}
    with pytest.raises(RemovalError, match="something else on inputs of another size"):
        removal(model, x, groups, keep=keep)


class FarAway(Net):
    """Batch statistics take away what is large, and leave what rounding made of it."""

    def __init__(self):
        super().__init__(last=partial(nn.BatchNorm1d, 2))
        nn.init.constant_(self.fc2.bias, 1e3)


def test_a_check_doubts_what_rounding_alone_would_change():
    model = FarAway()
    check = OutputCheck(model, X)
    with torch.no_grad():
        model.fc2.bias += 1e-4
    found = check.certify()
    assert found.compared == ("drawn inputs (eval mode)",)
    (doubt,) = found.doubts
    assert "drawn inputs (train mode): rounding alone changes outputs by" in doubt
    with torch.no_grad():
        model.fc2.weight.neg_()
    with pytest.raises(RemovalError, match="something else"):
        check.certify()


class Counted(nn.Module):
    """Knows how many of its kind there are when it runs, and the most there were."""

    alive, most = weakref.WeakSet(), 0

    def __new__(cls, *_, **__):
        one = super().__new__(cls)
        cls.alive.add(one)
        return one

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        if len(Counted.alive) > Counted.most:  # or garbage could not matter
            gc.collect()
            Counted.most = max(Counted.most, len(Counted.alive))
        return self.down(self.up(x).relu())


def test_a_removal_needs_room_for_five_models_at_a_time():
    """The given one, it with zeros, the small one, and two copies of these."""
    model, x = Counted(), torch.rand(2, 3)
    groups = find_groups(model, x)
    Counted.most = 0
    removal(model, x, groups, keep={"up": torch.arange(5) < 3})
    assert Counted.most == 5


MANY = 3 * torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


def rows_seen(last=nn.Identity, after=nn.Identity):
    """How many rows the layers of a model see while it is certified."""
    seen, model = list[int](), Net(after, last)
    model.fc1.register_forward_hook(lambda _, args, __: seen.append(len(args[0])))
    assert certify(model, copy.deepcopy(model), MANY).max_relative == 0
    return seen


def test_of_many_rows_that_do_not_see_each_other_a_few_are_tried_in_every_way():
    """All of them run once through either model: their number may choose the way."""
    seen = rows_seen()
    assert seen.count(40) == 2
    assert len(seen) > 12
    assert set(seen) - {40} == {2, 3}


def test_many_rows_that_see_each_other_are_all_tried_in_every_way():
    seen = rows_seen(after=partial(Lambda, lambda x: x - x.mean(0)))
    assert seen.count(40) > 10


def test_integers_that_rounding_changes_are_decided_in_double_precision():
    """Were they compared in float32 alone, a right removal would be refused."""
    model = Net(last=partial(Lambda, lambda x: ((x * 1e6).round().long(), x)))
    keep = torch.tensor([True, True, False, True, True])
    small = removal(model, MANY, find_groups(model, MANY), keep={"fc1": keep})
    assert small.plan.certificate.dtype == "float64"


class Chunked(Net):
    """Many rows take another way through the model than a few."""

    def forward(self, x):
        h = F.relu(self.fc1(x))
        return self.fc2(h) + (self.fc1.out_features == 5 if len(x) > 16 else 0)


def test_a_difference_that_only_many_rows_show_is_found():
    model = Chunked()
    small = copy.deepcopy(model)
    small.fc1.out_features = 4
    with pytest.raises(RemovalError, match="something else"):
        certify(model, small, MANY)


def test_a_difference_in_one_of_many_rows_is_found():
    model = Net()
    small, row = copy.deepcopy(model), model(MANY)[20].detach()
    small.last = Lambda(lambda x: x + 1e-2 * ((x - row).abs() < 1e-6))
    with pytest.raises(RemovalError, match="something else"):
        certify(model, small, MANY)
