import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups, remove
from diffprune._choice import refit_
from diffprune._surgery.compare import outputs
from diffprune._surgery.remove import removal
from diffprune.errors import ArgumentError
from zoo import ZOO, analysed

# Nothing there can be fitted, and the refit says so.
SAID = {
    "einsum_dots",
    "tied_autoencoder",
    "tied_convs",
    "ensemble",
    "bilinear",
    "cosine_classifier",
}
# The only reader has a weight that is computed, of columns and their lengths.
COMPUTED = {"weight_norm_columns"}


def halved(groups):
    """Masks that keep about half of the units."""
    torch.manual_seed(1)
    keep = {group.name: torch.rand(group.size) > 0.4 for group in groups}
    for mask in keep.values():
        mask[0] = True
    return keep


def error(model, small, batches):
    """How far outputs are from the whole model's, as a part of them."""
    gaps, whole = 0.0, 0.0
    for inputs in batches:
        for expected, actual in zip(
            outputs(model, inputs), outputs(small, inputs), strict=True
        ):
            if expected.is_floating_point():
                gaps += float((expected - actual).square().sum())
                whole += float(expected.square().sum())
    return gaps / whole


REFITTED = [
    pytest.param(name, marks=[] if i % 3 == 0 else pytest.mark.slow)
    for i, name in enumerate(n for n in ZOO if not ZOO[n].expect.frozen)
]


@pytest.mark.parametrize("name", REFITTED)
def test_readers_of_every_kind_come_closer_on_inputs_they_have_not_seen(name):
    model, inputs, groups = analysed(name)
    if not len(groups):
        pytest.skip("nothing can be removed")
    torch.manual_seed(2)
    batches = [ZOO[name].inputs() for _ in range(48)]
    plain = removal(model, inputs, groups, keep=halved(groups))
    found = removal(model, inputs, groups, keep=halved(groups), refit=batches)
    assert found.plan == plain.plan
    assert found.plan.certificate == plain.plan.certificate
    assert found.refit is not None
    for reader in found.refit.readers:
        assert reader.after <= reader.before
    if name in SAID:
        assert found.refit.skipped
    elif name in COMPUTED:
        assert not found.refit.readers
    else:
        assert found.refit.readers
        fresh = [ZOO[name].inputs() for _ in range(6)]
        before, after = (error(model, m.model, fresh) for m in (plain, found))
        assert after < 1.05 * before


def test_only_readers_of_removed_units_are_called_unfitted():
    model, batches = conv_net()
    groups = find_groups(model, batches[0])
    keep = {"3": torch.arange(6) < 3}  # its layer reads another group, which stays
    found = removal(model, batches[0], groups, keep=keep, refit=batches)
    assert found.refit is not None
    assert found.refit.readers
    assert not found.refit.skipped


def test_single_examples_are_fitted_as_one_batch():
    model, _ = conv_net()
    x = torch.randn(48, 2, 9, 9)
    groups = find_groups(model, x[:2])
    keep = halved(groups)
    one, other = (
        removal(model, x[:2], groups, keep=keep, refit=batches)
        for batches in ([x], [*x.split(1)])
    )
    assert one.refit == other.refit
    assert torch.equal(one.model(x), other.model(x))


def conv_net():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    ).eval()
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model, [torch.randn(32, 2, 8, 8) for _ in range(6)]


KEEP = {"0": torch.arange(8) % 2 == 0}


def test_what_can_be_written_by_the_others_is_not_missed():
    """Units that are sums of others: nothing is lost when they go."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)).double()
    with torch.no_grad():
        model[0].weight[5] = model[0].weight[0] - 2 * model[0].weight[1]
        model[0].weight[4] = 3 * model[0].weight[2]
    x = torch.randn(400, 5).double()
    keep = {"0": torch.tensor([True] * 4 + [False] * 2)}
    small = remove(model, x[:4], keep=keep, refit=[x])
    left = error(model, small, [torch.randn(50, 5).double()])
    assert left < 1e-3 * error(model, remove(model, x[:4], keep=keep), [x])


def test_norms_get_the_statistics_of_what_they_see():
    model, batches = conv_net()
    found = removal(
        model, batches[0], find_groups(model, batches[0]), keep=KEEP, refit=batches
    )
    # The first norm sees what it saw; the second behind the cut does not.
    assert found.refit.norms == ("4.running_mean",)
    seen = []
    found.model[3].register_forward_hook(lambda *args: seen.append(args[2]))
    with torch.no_grad():
        for x in batches:
            found.model(x)
    channels = torch.cat(seen).transpose(0, 1).flatten(1)
    torch.testing.assert_close(
        found.model[4].running_mean, channels.mean(1), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        found.model[4].running_var, channels.var(1), rtol=1e-4, atol=1e-5
    )
    assert torch.equal(found.model[1].running_mean, model[1].running_mean[KEEP["0"]])


def test_statistics_that_lag_behind_are_not_fitted_to_in_training():
    """What counts there are the outputs with statistics of the batch."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU()]
    layers += [nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)]
    whole = nn.Sequential(*layers).double()
    whole[4].running_mean += torch.randn(8)
    whole[4].running_var *= 1 + 3 * torch.rand(8)
    x = torch.randn(256, 4).double()
    keep = {"0": torch.arange(16) > 1}
    before, gaps = copy.deepcopy(whole.state_dict()), []
    for norms in ([], ["1.running_mean", "4.running_mean"]):
        cut = removal(whole, x, find_groups(whole, x), keep=keep)
        refit_(cut.model, whole, cut.plan.tensors, [x], normed_by_batch=norms)
        after = whole.state_dict()
        assert all(torch.equal(after[name], before[name]) for name in before)
        actual, expected = cut.model.train()(x), copy.deepcopy(whole).train()(x)
        gaps.append((actual - expected).detach().square().mean())
    assert gaps[1] < 0.2 * gaps[0]


@pytest.mark.parametrize("rows_per_feature", [8, 9])
def test_layers_that_are_given_too_few_rows_are_left(rows_per_feature):
    """Of 50 rows an eighth is to judge by."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
    x, keep = torch.randn(50, 3), {"0": torch.arange(6) > 0}
    cut = removal(whole, x, find_groups(whole, x), keep=keep)
    before = cut.model[2].weight.clone()
    found = refit_(
        cut.model,
        whole,
        cut.plan.tensors,
        [x],
        read=["2.weight"],
        rows_per_feature=rows_per_feature,
    )
    is_fitted = rows_per_feature == 8
    assert bool(found.readers) == is_fitted
    assert torch.equal(cut.model[2].weight, before) != is_fitted
    assert is_fitted or "44 rows for 5 features" in str(found)


def test_twice_the_same_is_the_same_bit_for_bit():
    model, batches = conv_net()
    one, other = (remove(model, batches[0], keep=KEEP, refit=batches) for _ in range(2))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


def test_how_data_is_divided_into_batches_hardly_matters():
    model, batches = conv_net()
    x = torch.cat(batches)
    one = remove(model, x[:2], keep=KEEP, refit=[x])
    many = remove(model, x[:2], keep=KEEP, refit=[*x.split(8)])
    assert error(one, many, [x]) < 1e-2 * error(model, one, [x])


def test_the_model_is_left_as_it_was():
    model, batches = conv_net()
    state = copy.deepcopy(model.state_dict())
    model.train()
    remove(model, batches[0], keep=KEEP, refit=batches)
    assert model.training
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_of_numbers(dtype):
    model, batches = conv_net()
    model, batches = model.to(dtype), [x.to(dtype) for x in batches]
    small = remove(model, batches[0], keep=KEEP, refit=batches)
    assert small[3].weight.dtype == dtype
    plain = remove(model, batches[0], keep=KEEP)
    assert error(model, small, batches) < 0.5 * error(model, plain, batches)


def test_no_batches_is_an_error():
    model, batches = conv_net()
    with pytest.raises(ArgumentError, match="at least one batch"):
        remove(model, batches[0], keep=KEEP, refit=[])


def test_a_batch_that_the_model_does_not_accept_is_named_and_no_thread_stays():
    import threading

    model, batches = conv_net()
    before = threading.active_count()
    with pytest.raises(ArgumentError, match=r"accept batch 1: RuntimeError.*channels"):
        remove(model, batches[0], keep=KEEP, refit=[batches[0], torch.rand(2, 5, 8, 8)])
    assert threading.active_count() == before


def test_an_example_that_is_not_finite_is_left_out():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
    ).eval()
    rows = torch.randn(40, 3)
    holed = torch.cat([rows[:9], torch.full((1, 3), torch.nan), rows[9:]])
    found, expected = (
        remove(model, rows[:4], keep=KEEP, refit=[some]) for some in (holed, rows)
    )
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value)


def test_where_nothing_is_finite_nothing_is_fitted():
    model, batches = conv_net()
    groups = find_groups(model, batches[0])
    none = [batch * torch.nan for batch in batches]
    found = removal(model, batches[0], groups, keep=KEEP, refit=none)
    expected = remove(model, batches[0], keep=KEEP)
    assert torch.equal(found.model(batches[0]), expected(batches[0]))
    assert found.refit is not None
    assert "never finite" in found.refit.skipped["3.weight"]


def test_a_layer_that_stands_twice_is_fitted_once_and_said_once():
    torch.manual_seed(0)
    twice = nn.Linear(8, 8)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), twice, nn.ReLU(), twice)
    model.append(nn.Linear(8, 2))
    x = torch.randn(64, 3)
    found = removal(model, x, find_groups(model, x), keep=KEEP, refit=[x])
    assert found.refit is not None
    assert [fit.weight for fit in found.refit.readers] == ["2.weight", "5.weight"]
    assert not found.refit.skipped


class Random(nn.Module):
    """Runs another layer for other inputs."""

    def __init__(self):
        super().__init__()
        self.first, self.one, self.two = (
            nn.Linear(3, 8),
            nn.Linear(8, 2),
            nn.Linear(8, 2),
        )

    def forward(self, x):
        h = F.relu(self.first(x))
        return self.one(h) if x.shape[0] == 4 else self.two(h)


def test_batches_that_run_different_layers_are_refused():
    model = Random()
    small = copy.deepcopy(model)
    with pytest.raises(ArgumentError, match="not every batch runs"):
        refit_(small, model, {}, [torch.rand(4, 3), torch.rand(5, 3)])


class Remembers(nn.Module):
    """Keeps something in itself while it runs."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 16), nn.Linear(16, 3)
        self.kept = []

    def forward(self, x):
        self.kept.append(x)
        return self.second(F.relu(self.first(x))) + self.kept.pop()


def test_what_a_module_keeps_is_not_mixed_up_between_batches():
    torch.manual_seed(0)
    model = Remembers()
    batches = [torch.randn(8 + n, 3) for n in range(6)]
    small = remove(
        model, batches[0], keep={"first": torch.arange(16) > 4}, refit=batches
    )
    assert small(batches[0]).shape == (8, 3)
    assert error(model, small, batches) < 0.2


def test_the_result_reads_well():
    model, batches = conv_net()
    found = removal(
        model, batches[0], find_groups(model, batches[0]), keep=KEEP, refit=batches
    )
    text = str(found.refit)
    assert "3.weight: output error" in text
    assert "4.running_mean: statistics estimated again" in text
