import copy

import pytest
import torch
from torch import nn

from diffprune._surgery.apply import apply_plan, apply_plan_, select, shrink
from diffprune._surgery.plan import Plan
from diffprune._surgery.replacement_modules import Stub
from diffprune.errors import ArgumentError

CUT = {
    "0.weight": {0: (0, 2)},
    "0.bias": {0: (0, 2)},
    "2.weight": {1: (0, 2)},
}
WIDTHS = {"0.out_features": 2, "2.in_features": 2}
PLAN = Plan({"0": (0, 2)}, CUT, WIDTHS)


@pytest.fixture
def model():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    model.width = 5
    return model


def state(model):
    attributes = [
        {k: v for k, v in vars(m).items() if isinstance(v, int)}
        for m in model.modules()
    ]
    return {k: v.clone() for k, v in model.state_dict().items()}, attributes


def assert_same_state(one, other):
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=0)
    assert one[1] == other[1]


def test_select_keeps_indices_of_each_dimension():
    tensor = torch.arange(12).view(3, 4)
    kept = select(tensor, {0: (0, 2), 1: (1,)})
    assert kept.tolist() == [[1], [9]]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pixels", [1, 5])
@pytest.mark.parametrize(
    ("dims", "layout"), [(2, torch.channels_last), (3, torch.channels_last_3d)]
)
def test_channels_that_lie_last_still_do(channels, pixels, dims, layout):
    tensor = torch.rand(4, channels, *[pixels] * dims)
    moved = torch.empty_like(tensor, memory_format=layout).copy_(tensor)
    cuts = {0: (1, 3), 1: tuple(range(channels))}
    small = select(moved, cuts)
    like = torch.empty_like(small, memory_format=layout)
    assert small.stride() == like.stride()
    assert select(tensor, cuts).stride() == tensor[:2].stride()
    assert torch.equal(small, select(tensor, cuts))


def test_dimensions_in_another_order_stay_in_it():
    tensor = torch.arange(60).view(3, 4, 5).permute(2, 0, 1)
    small = select(tensor, {0: (4, 1), 2: (0, 3)})
    assert small.tolist() == tensor[[4, 1]][:, :, [0, 3]].tolist()
    assert small.permute(1, 2, 0).is_contiguous()


def test_a_shrunk_parameter_keeps_gradient_flags_and_notes():
    parameter = nn.Parameter(torch.arange(3.0), requires_grad=False)
    parameter.grad, parameter.no_decay = torch.arange(3.0), True
    small = shrink(parameter, {0: (2,)})
    assert (small.grad.tolist(), small.requires_grad) == ([2.0], False)
    assert small.no_decay
    assert isinstance(small, nn.Parameter)


def test_a_copy_is_cut_and_the_original_left(model):
    before = state(model)
    small = apply_plan(model, PLAN)
    assert_same_state(state(model), before)
    assert torch.equal(small[2].weight, model[2].weight[:, [0, 2]])
    assert (small[0].out_features, small[2].in_features) == (2, 2)
    shared = set(map(id, small.parameters())) & set(map(id, model.parameters()))
    assert not shared


def test_gradients_stay_with_the_model_that_has_them(model):
    model(torch.rand(2, 3)).sum().backward()
    gradient = model[2].weight.grad
    small = apply_plan(model, PLAN)
    assert all(parameter.grad is None for parameter in small.parameters())
    apply_plan_(model, PLAN)
    assert torch.equal(model[2].weight.grad, gradient[:, [0, 2]])
    assert model[2].bias.grad is not None


def test_in_place_gives_what_the_copy_gives(model):
    small = apply_plan(model, PLAN)
    apply_plan_(model, PLAN)
    assert_same_state(state(model), state(small))


def test_in_place_returns_new_objects_for_old_ones(model):
    old, bias = model[0].weight, model[2].bias
    replaced = apply_plan_(model, PLAN)
    assert model[0].weight is replaced[old]
    assert old.shape == (5, 3)
    assert model[2].bias is bias


def test_an_older_loss_can_still_be_differentiated(model):
    loss = model(torch.rand(2, 3)).sum()
    old = model[0].weight
    apply_plan_(model, PLAN)
    loss.backward()
    assert old.grad.shape == (5, 3)


def test_attributes_are_set_as_planned(model):
    plan = Plan({}, {}, {"width": 3})
    assert apply_plan(model, plan).width == 3


def test_only_attributes_of_the_plan_change(model):
    model[2].out_features = 99  # a subclass may mean something of its own by it
    small = apply_plan(model, PLAN)
    assert (small[2].in_features, small[2].out_features) == (2, 99)


@pytest.mark.parametrize("apply", [apply_plan, apply_plan_])
def test_tied_weights_stay_tied(apply):
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 5))
    model[2].weight = model[1].weight
    both = {0: (0, 2), 1: (0, 2)}
    cut = {**CUT, "1.weight": both, "2.weight": both, "1.bias": {0: (0, 2)}}
    small = apply(model, Plan({}, cut, {}))
    small = model if apply is apply_plan_ else small
    assert small[1].weight is small[2].weight
    assert small[1].weight.shape == (2, 2)


@pytest.mark.parametrize("apply", [apply_plan, apply_plan_])
def test_recurrent_layers_run_after_the_cut(apply):
    model = nn.LSTM(3, 5)
    small = apply(model, Plan({}, {"weight_ih_l0": {1: (0, 2)}}, {"input_size": 2}))
    small = model if apply is apply_plan_ else small
    assert small(torch.rand(4, 1, 2))[0].shape == (4, 1, 5)
    assert small.input_size == 2


@pytest.mark.parametrize("apply", [apply_plan, apply_plan_])
def test_buffers_stay_as_persistent_as_they_were(apply):
    model = nn.Module()
    model.register_buffer("kept", torch.arange(3.0))
    model.register_buffer("passing", torch.arange(3.0), persistent=False)
    plan = Plan({}, {"kept": {0: (1,)}, "passing": {0: (1,)}}, {})
    small = apply(model, plan)
    small = model if apply is apply_plan_ else small
    assert list(small.state_dict()) == ["kept"]
    assert (small.kept.tolist(), small.passing.tolist()) == ([1.0], [1.0])


@pytest.mark.parametrize("apply", [apply_plan, apply_plan_])
def test_a_module_is_replaced_under_all_its_names(apply):
    model = nn.Sequential(nn.Linear(3, 3), nn.ModuleList([nn.Linear(3, 3)]))
    model.alias = model[1][0]
    small = apply(model, Plan({}, {}, {}, {"1.0": Stub()}))
    small = model if apply is apply_plan_ else small
    assert isinstance(small[1][0], nn.Threshold)
    assert list(small.state_dict()) == ["0.weight", "0.bias"]


def test_parametrized_layers_report_their_new_width():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 5))
    rows = {0: (0, 2)}
    names = ["bias", "parametrizations.weight.original0"]
    names += ["parametrizations.weight.original1"]
    plan = Plan({}, dict.fromkeys(names, rows), {"out_features": 2})
    small = apply_plan(layer, plan)
    assert small.weight.shape == (2, 3)
    assert small.out_features == 2


@pytest.mark.parametrize("apply", [apply_plan, apply_plan_])
@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan({}, {"9.weight": {0: (0,)}}, {}), r"cuts `9\.weight`, which this model"),
        (Plan({}, {**CUT, "2.bias": {0: (7,)}}, {}), "index 7 of dimension 0 of `2.b"),
        (Plan({}, {**CUT, "2.bias": {1: (0,)}}, {}), r"dimension 1 .* shape is \(2,\)"),
        (Plan({}, {**CUT, "2.bias": {0: (10**30,)}}, {}), "made for another model"),
        (Plan({}, CUT, {"width": 6}), "sets `width` to 6, where this model has 5"),
        (Plan({}, CUT, {"width": 0}), "sets `width` to 0"),
        (Plan({}, CUT, {"forward": 3}), "sets `forward` to 3, .* has None"),
        (Plan({}, CUT, {"training": 1}), "sets `training` to 1, .* has True"),
        (Plan({}, CUT, {"9.width": 3}), r"sets `9\.width` to 3"),
        (Plan({}, CUT, {"_parameters": 1}), "sets `_parameters` to 1"),
        (Plan({}, {}, {}, {"9": Stub()}), "replaces `9`, which this model does not"),
        (Plan({}, {}, {}, {"": Stub()}), "replaces ``, which this model does not"),
    ],
)
def test_a_plan_for_another_model_changes_nothing(model, apply, plan, message):
    before = state(model)
    with pytest.raises(ArgumentError, match=message):
        apply(model, plan)
    assert_same_state(state(model), before)


def test_a_plan_is_not_applied_twice(model):
    apply_plan_(model, PLAN)
    before = state(copy.deepcopy(model))
    with pytest.raises(ArgumentError, match="or was applied already"):
        apply_plan_(model, PLAN)
    assert_same_state(state(model), before)


def test_an_entry_of_a_tuple_is_set_alone():
    model = nn.Sequential(nn.LayerNorm((3, 5)))
    cut = {"0.weight": {1: (0, 2)}, "0.bias": {1: (0, 2)}}
    small = apply_plan(model, Plan({}, cut, {"0.normalized_shape[1]": 2}))
    assert small[0].normalized_shape == (3, 2)
    assert model[0].normalized_shape == (3, 5)


def test_an_entry_of_a_list_is_set_in_another_list():
    model = nn.Sequential(nn.Linear(2, 3))
    model.widths = mine = [3, 5]
    small = apply_plan(model, Plan({}, {}, {"widths[1]": 2}))
    assert small.widths == [3, 2]
    assert model.widths is mine
    assert mine == [3, 5]


@pytest.mark.parametrize(
    "name",
    ["normalized_shape[2]", "normalized_shape[x]", "normalized_shape[", "eps[0]"],
)
def test_an_entry_that_is_not_there_is_refused(name):
    model = nn.Sequential(nn.LayerNorm((3, 5)))
    with pytest.raises(ArgumentError, match="made for another model"):
        apply_plan(model, Plan({}, {}, {f"0.{name}": 2}))
