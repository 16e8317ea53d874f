"""Save, load into a fresh vanilla model: the same outputs, bit for bit."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

import diffprune as dp
from diffprune._core.copying import copied
from diffprune._core.modules import named_tensors
from diffprune._io.blueprint import Blueprint
from diffprune._surgery import apply_plan, plan_removal
from diffprune._surgery.replacement_modules import Select, Stub
from diffprune.gates import BaseGate
from zoo import ZOO, analysed, call


def outputs(model, inputs):
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return pytree.tree_leaves(call(copied(model), inputs))


def round_trip(small, fresh, folder):
    assert dp.load_pruned(fresh, dp.save_pruned(small, folder)) is fresh
    return fresh


def assert_same(one, other):
    """The same tensors under the same names, tied in the same way."""
    state, again = one.state_dict(keep_vars=True), other.state_dict(keep_vars=True)
    assert sorted(again) == sorted(state)
    for name, tensor in state.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name].nan_to_num(), tensor.nan_to_num())
    assert repr(other) == repr(one)

    def ties(tensors):
        return [[a is b for a in tensors.values()] for b in tensors.values()]

    assert ties(again) == ties(state)


def shrink_everything_(model):
    """Cut every tensor and every integer, whether or not the model still runs."""
    for name, tensor in named_tensors(model).items():
        path, _, attribute = name.rpartition(".")
        smaller = tensor.detach()[tuple(slice(-n // 2, None) for n in tensor.shape)]
        is_parameter = isinstance(tensor, nn.Parameter)
        kept = nn.Parameter(smaller.clone()) if is_parameter else smaller.clone()
        setattr(model.get_submodule(path), attribute, kept)
    for module in model.modules():
        numbers = {k: v for k, v in vars(module).items() if type(v) is int}
        vars(module).update({k: -(-v // 2) for k, v in numbers.items() if v > 0})


@pytest.mark.parametrize("name", ZOO)
def test_all_tensors_and_widths_are_those_that_were_saved(name, tmp_path):
    small, fresh = ZOO[name]()[0], ZOO[name].build()
    shrink_everything_(small)
    assert_same(small, round_trip(small, fresh, tmp_path))
    assert Blueprint.of(fresh) == Blueprint.of(small)


# Finding groups takes most of the time; the others are as good on another day.
REMOVED = [
    pytest.param(name, marks=[] if i % 5 == 0 else pytest.mark.slow)
    for i, name in enumerate(ZOO)
]


@pytest.mark.parametrize("name", REMOVED)
def test_a_fresh_model_computes_what_the_saved_one_does(name, tmp_path):
    model, inputs, groups = analysed(name)
    masks = {g.name: torch.arange(g.size) % 3 != 1 for g in groups}
    small = apply_plan(model, plan_removal(groups, keep=masks))
    fresh = round_trip(small, ZOO[name].build().eval(), tmp_path)
    assert_same(small, fresh)
    for one, other in zip(outputs(small, inputs), outputs(fresh, inputs), strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0, equal_nan=True)


class Residual(nn.Module):
    """stem -> gate -> (+ conv) -> gate -> mean -> fc: layouts differ on the stream."""

    def __init__(self):
        super().__init__()
        self.stem, self.gate1 = nn.Conv2d(1, 8, 3, padding=1), dp.Gate(8)
        self.conv, self.gate2 = nn.Conv2d(8, 8, 3, padding=1), dp.Gate(8)
        self.norm, self.head = nn.InstanceNorm2d(8), nn.Linear(8, 4)

    def forward(self, images):
        x = self.gate1(self.stem(images).relu())
        x = self.gate2(x + self.conv(x).relu())
        return self.head(x.tanh().mean((2, 3)))


def test_placed_gates_give_way_to_what_became_of_them(tmp_path):
    images = torch.rand(2, 1, 8, 8)
    pruner = dp.Pruner(Residual(), images, remove_every=lambda _: False, strength=1e-5)
    pruner.gates["gate1"].logits.data[:4] = -2.0
    pruner.gates["gate2"].logits.data[2:6] = -2.0
    small = pruner.finalize().eval()
    assert any(isinstance(module, Select) for module in small.modules())
    fresh = round_trip(small, Residual().eval(), tmp_path)
    assert_same(small, fresh)
    assert torch.equal(fresh(images), small(images))


class SparseNet(nn.Sequential):
    """Single weights are gated, by the class itself or not."""

    def __init__(self, *, gated):
        super().__init__(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 2))
        if gated:
            dp.gate_weight(self[0])


@pytest.mark.parametrize("gated", [False, True])
def test_folded_gates_on_weights(gated, tmp_path):
    model, x = SparseNet(gated=True), torch.rand(3, 5)
    model[0].parametrizations.weight[0].logits.data[::2] = -3.0
    small = dp.fold_gates(model)
    assert (small[0].weight == 0).sum() == 23
    fresh = round_trip(small, SparseNet(gated=gated), tmp_path)
    assert_same(small, fresh)
    assert torch.equal(fresh(x), small(x))


class Share(BaseGate):
    """The gate of another method: what each number is multiplied by, itself."""

    def __init__(self, like):
        super().__init__(dim=0, index=torch.arange(like.numel()).view(like.shape))
        self.share = nn.Parameter(torch.linspace(-1, 1, like.numel()))

    @property
    def size(self):
        return len(self.share)

    def values(self):
        return self.share.relu()

    def margin(self):
        return self.share

    def penalty(self):
        return self.share.relu().sum()


def test_folded_gates_of_another_method(tmp_path):
    model, fresh, x = SparseNet(gated=False), SparseNet(gated=False), torch.rand(3, 5)
    for net in (model, fresh):
        gate = Share(net[0].weight)
        parametrize.register_parametrization(net[0], "weight", gate)
    small = dp.fold_gates(model)
    fresh = round_trip(small, fresh, tmp_path)
    assert torch.equal(fresh(x), small(x))


class Stubbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch, self.short = nn.Conv2d(3, 5, 1, 2), nn.Conv2d(3, 5, 3)
        self.gone, self.pool = nn.Linear(4, 4), nn.MaxPool2d(2)

    def forward(self, x):
        return self.gone(self.pool(self.branch(x)))


def test_stubs_of_branches_that_are_gone(tmp_path):
    small = Stubbed()
    small.branch = Stub(strides=(2, 2)).build()
    small.short = Stub(strides=(1, 1), wider=2).build()
    small.gone = nn.Identity()
    x = torch.rand(2, 3, 16, 16)
    fresh = round_trip(small, Stubbed(), tmp_path)
    assert_same(small, fresh)
    assert torch.equal(fresh(x), small(x))
    assert torch.equal(fresh.short(x), small.short(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_numbers_keep_their_type(dtype, make, small, tmp_path, inputs):
    fresh = round_trip(small.to(dtype), make(), tmp_path)
    assert_same(small, fresh)
    assert fresh.scale.dtype == dtype
    x = inputs.to(dtype)
    assert torch.equal(fresh.eval()(x), small.eval()(x))


def test_buffers_outside_the_state_dict_are_saved_too(make, small, tmp_path):
    fresh = round_trip(small, make(), tmp_path)
    assert "scale" not in small.state_dict()
    assert torch.equal(fresh.scale, small.scale)


def test_weights_tied_after_construction_are_tied_again(tmp_path):
    small = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    small[1].weight = small[0].weight
    fresh = round_trip(small, nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), tmp_path)
    assert fresh[1].weight is fresh[0].weight
    assert torch.equal(fresh[1].bias, small[1].bias)


def test_weights_untied_after_construction_are_not_tied_again(tmp_path):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    small = copy.deepcopy(tied)
    small[1].weight = nn.Parameter(torch.rand(3, 3))
    assert_same(small, round_trip(small, tied, tmp_path))


def test_a_bias_that_pruning_added_is_loaded(tmp_path):
    small, fresh = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    small.bias = nn.Parameter(torch.rand(2))
    assert torch.equal(round_trip(small, fresh, tmp_path).bias, small.bias)


def test_frozen_parameters_stay_frozen(make, small, tmp_path):
    fresh = make()
    fresh.fc1.weight.requires_grad_(requires_grad=False)
    fresh.fc2.weight.tag = "mine"
    round_trip(small, fresh, tmp_path)
    assert not fresh.fc1.weight.requires_grad
    assert fresh.fc2.weight.requires_grad
    assert fresh.fc2.weight.tag == "mine"


def test_loading_twice_is_loading_once(make, small, folder, inputs):
    fresh = dp.load_pruned(make(), folder)
    dp.load_pruned(fresh, folder)
    assert_same(small, fresh)
    assert torch.equal(fresh.eval()(inputs), small.eval()(inputs))


def test_the_files_can_be_overwritten_under_a_loaded_model(make, folder, inputs):
    fresh = dp.load_pruned(make(), folder).eval()
    before = fresh(inputs)
    path = folder / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(fresh(inputs), before)


class Rotating(nn.Module):
    """Its rotation lies in memory column by column, as factors of matrices do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 61, 3), nn.Linear(61, 2)
        self.rotation = nn.Parameter(torch.linalg.qr(torch.randn(61, 61))[0])

    def forward(self, x):
        return self.last(self.first(x).mean((2, 3)).relu() @ self.rotation)


@pytest.mark.parametrize("fraction", [0.0, 0.4])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_tensors_lie_in_memory_as_they_did(fraction, layout, tmp_path):
    x = torch.rand(17, 3, 9, 9)
    model = Rotating().to(memory_format=layout)
    groups = dp.find_groups(model, x)
    keep = {group.name: torch.rand(group.size) >= fraction for group in groups}
    small = dp.remove(model, x, keep=keep)
    again = round_trip(small, Rotating().to(memory_format=layout), tmp_path)
    for name, parameter in again.named_parameters():
        assert parameter.stride() == small.get_parameter(name).stride()
    assert torch.equal(again(x), small(x))
