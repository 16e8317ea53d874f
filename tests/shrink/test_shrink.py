import copy
import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import diffprune as dp
from diffprune._shrink import shrinkage
from diffprune.errors import ArgumentError


def net():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


@pytest.fixture(scope="module")
def digits():
    """A network that was trained on digits, its data, and digits it has not seen."""
    datasets = pytest.importorskip("sklearn.datasets")
    found = datasets.load_digits()
    x = torch.tensor(found.images).float()[:, None] / 16
    y = torch.tensor(found.target)
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(12):
        for some in torch.randperm(1400).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(x[some]), y[some]).backward()
            optimizer.step()
    model.eval()
    data = list(zip(x[:1024].split(64), y[:1024].split(64), strict=True))
    return model, data, (x[1400:], y[1400:])


@torch.no_grad()
def accuracy(model, seen):
    return float((model.eval()(seen[0]).argmax(1) == seen[1]).float().mean())


@torch.no_grad()
def loss(model, seen):
    return float(F.cross_entropy(model.eval()(seen[0]), seen[1]))


def test_a_third_of_the_macs_without_training_is_nearly_as_good(digits):
    model, data, held_out = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(macs=0.3))
    whole, most, now = found.report.costs["macs"]
    assert 0.95 * most < now <= most
    assert accuracy(found.model, held_out) > accuracy(model, held_out) - 0.04
    bare = dp.shrink(model, data, F.cross_entropy, dp.Budget(macs=0.3), refit=False)
    assert accuracy(found.model, held_out) > accuracy(bare, held_out) + 0.05
    assert whole == dp.find_groups(model, data[0][0][:1]).macs()


def test_it_beats_the_same_cut_of_the_smallest_weights(digits):
    model, data, held_out = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(macs=0.3))
    groups = dp.find_groups(model, data[0][0])
    layers = {"0": model[0], "4": model[4], "9": model[9]}
    keep = {}
    for report in found.report.groups:
        norms = layers[report.name].weight.detach().flatten(1).norm(dim=1)
        keep[report.name] = torch.zeros(groups[report.name].size, dtype=torch.bool)
        keep[report.name][norms.topk(report.after).indices] = True
    fit = [x for x, _ in data]
    other = dp.remove(model, data[0][0], keep=keep, refit=fit)
    assert loss(found.model, held_out) < loss(other, held_out)


@pytest.mark.parametrize(
    "limit", [{"macs": 0.4}, {"parameters": 0.4}, {"memory": 0.6}, {"size": 0.4}]
)
def test_every_cost_can_be_limited(digits, limit):
    model, data, held_out = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(**limit))
    ((_, most, now),) = found.report.costs.values()
    assert 0.9 * most < now <= most
    assert accuracy(found.model, held_out) > 0.8


def test_several_limits_hold_at_once(digits):
    model, data, _ = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(macs=0.5, parameters=0.2))
    assert all(now <= most for _, most, now in found.report.costs.values())


def test_latency_can_be_limited(digits, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, data, _ = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(latency=0.8))
    assert sum(group.after for group in found.report.groups) < 60


def test_what_comes_out_is_plain_and_what_went_in_is_as_it_was(digits):
    model, data, _ = digits
    model.train()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    state = copy.deepcopy(model.state_dict())
    small = dp.shrink(model, data, F.cross_entropy, dp.Budget(macs=0.5))
    assert type(small) is nn.Sequential
    assert [*small.state_dict()] == [*state]
    assert model.training
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert float(model[0].weight.grad.sum()) == model[0].weight.numel()
    model.zero_grad()
    model.eval()


def test_twice_the_same_is_the_same_bit_for_bit(digits):
    model, data, _ = digits
    one, other = (
        dp.shrink(model, data, F.cross_entropy, dp.Budget(macs=0.3)) for _ in range(2)
    )
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


def test_without_a_refit_it_is_an_exact_removal(digits):
    model, data, _ = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(macs=0.3), refit=False)
    assert found.report.refit is None
    assert found.report.plan.certificate.max_relative < 1e-9


def test_widths_are_multiples(digits):
    model, data, _ = digits
    found = shrinkage(model, data, F.cross_entropy, dp.Budget(macs=0.5), round_to=4)
    assert all(group.after % 4 == 0 for group in found.report.groups)


def test_layers_can_be_left_alone(digits):
    model, data, _ = digits
    budget = dp.Budget(macs=0.7)
    small = dp.shrink(model, data, F.cross_entropy, budget, freeze=["0"])
    assert small[0].out_channels == 12


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_of_numbers(digits, dtype):
    model, data, held_out = digits
    model = copy.deepcopy(model).to(dtype)
    data = [(x.to(dtype), y) for x, y in data]
    small = dp.shrink(model, data, F.cross_entropy, dp.Budget(macs=0.4))
    assert small[0].weight.dtype == dtype
    assert accuracy(small, (held_out[0].to(dtype), held_out[1])) > 0.8


def test_a_data_loader_is_read_no_further_than_needed(digits):
    model, data, _ = digits
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    loader, taken = DataLoader(TensorDataset(x, y), batch_size=32), []

    def counted():
        for batch in loader:
            taken.append(1)
            yield batch

    budget = dp.Budget(macs=0.5)
    dp.shrink(model, counted(), F.cross_entropy, budget, choosing=64, fitting=128)
    assert len(taken) == 4


class Pair(nn.Module):
    """Takes two inputs, by place or by name, and returns a dict with its loss."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 24), nn.Linear(3, 24)
        self.out = nn.Linear(24, 2)

    def forward(self, a, b, labels=None):
        logits = self.out(F.relu(self.a(a) + self.b(b)))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return {"logits": logits, "loss": loss}


def pairs():
    torch.manual_seed(0)
    for _ in range(8):
        yield torch.randn(32, 5), torch.randn(32, 3), torch.randint(2, (32,))


def test_several_inputs_and_outputs_that_are_dicts():
    model, budget = Pair(), dp.Budget(macs=0.5)
    data = [((a, b), labels) for a, b, labels in pairs()]
    small = dp.shrink(
        model, data, lambda out, y: F.cross_entropy(out["logits"], y), budget
    )
    assert small.out.in_features == 12


def test_batches_that_are_dicts():
    model, budget = Pair(), dp.Budget(macs=0.5)
    data = [{"a": a, "b": b, "labels": labels} for a, b, labels in pairs()]
    small = dp.shrink(model, data, lambda out, _: out["loss"], budget)
    assert small.out.in_features == 12


class Encoder(nn.Module):
    def __init__(self, *, batch_first=True):
        super().__init__()
        self.first = batch_first
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.inside, self.out = nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, x):
        return self.out(self.encoder(self.inside(x)).mean(1 if self.first else 0))


class Convolutions(nn.Module):
    """Depthwise, then grouped."""

    def __init__(self):
        super().__init__()
        self.a, self.deep = nn.Conv2d(3, 24, 3), nn.Conv2d(24, 24, 3, groups=24)
        self.b, self.grouped = nn.Conv2d(24, 32, 1), nn.Conv2d(32, 32, 3, groups=4)
        self.norm, self.out = nn.BatchNorm2d(32), nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.b(F.relu(self.deep(F.relu(self.a(x))))))
        return self.out(F.relu(self.norm(self.grouped(x))).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 24, batch_first=True)
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def labelled(*shape, classes=3, batches=8, size=32):
    torch.manual_seed(0)
    for _ in range(batches):
        yield torch.randn(size, *shape), torch.randint(classes, (size,))


@pytest.mark.parametrize(
    ("make", "shape", "target", "options"),
    [
        (Encoder, (7, 8), 0.6, {}),
        (Encoder, (7, 8), 0.7, {"round_to": 8}),
        (Convolutions, (3, 12, 12), 0.4, {}),
        (Convolutions, (3, 12, 12), 0.7, {"round_to": 8}),
        (Recurrent, (5, 6), 0.5, {}),
    ],
)
def test_layers_of_many_kinds_from_a_generator(make, shape, target, options):
    torch.manual_seed(0)
    data, budget = labelled(*shape), dp.Budget(macs=target)
    found = shrinkage(make(), data, F.cross_entropy, budget, **options)
    _, most, now = found.report.costs["macs"]
    assert 0.8 * most < now <= most
    assert not found.report.refit.skipped
    assert abs(found.report.loss_after - found.report.loss_before) < 0.05


@pytest.mark.parametrize("make", [Encoder, Convolutions])
def test_a_single_example_is_enough_to_run(make):
    torch.manual_seed(0)
    shape = (7, 8) if make is Encoder else (3, 12, 12)
    data = labelled(*shape, batches=1, size=1)
    found = shrinkage(make(), data, F.cross_entropy, dp.Budget(macs=0.6))
    _, most, now = found.report.costs["macs"]
    assert now <= most
    assert next(iter(found.model.parameters())).isfinite().all()


def test_time_may_come_first_and_be_as_long_as_the_batch():
    torch.manual_seed(0)
    model, budget = Encoder(batch_first=False), dp.Budget(macs=0.6)
    data = labelled(32, 8)  # 32 steps of 32 examples, and 40 are asked for
    found = shrinkage(model, data, F.cross_entropy, budget, choosing=40, fitting=40)
    assert not found.report.refit.skipped


def test_what_cannot_be_rounded_is_said():
    torch.manual_seed(0)
    model, budget = Convolutions(), dp.Budget(macs=0.2)
    with pytest.raises(ArgumentError, match="or round to less, or freeze less"):
        dp.shrink(model, labelled(3, 12, 12), F.cross_entropy, budget, round_to=32)


def test_a_language_model_with_batches_that_are_dicts():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=16,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    data = [
        {
            "input_ids": torch.randint(50, (16, 12)),
            "attention_mask": torch.ones(16, 12, dtype=torch.long),
            "labels": torch.randint(2, (16,)),
        }
        for _ in range(4)
    ]
    budget = dp.Budget(macs=0.7)
    found = shrinkage(model, data, lambda out, _: out.loss, budget, fitting=40)
    _, most, now = found.report.costs["macs"]
    assert 0.9 * most < now <= most
    assert not found.report.refit.skipped
    assert found.model(**data[0]).logits.shape == (16, 2)


def test_a_model_that_takes_long_is_shown_fewer_examples(monkeypatch):
    module = importlib.import_module("diffprune._shrink.shrink")
    monkeypatch.setattr(module, "MOST_MACS", 100 * 12 * 24)
    model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))
    taken = []

    def data():
        for batch in labelled(8, batches=20):
            taken.append(len(batch[0]))
            yield batch

    dp.shrink(model, data(), F.cross_entropy, dp.Budget(macs=0.5))
    assert sum(taken) == 128  # enough for a hundred, which is less than 512


def test_a_report_can_be_printed(digits, capsys):
    model, data, _ = digits
    dp.shrink(model, data, F.cross_entropy, dp.Budget(macs=0.5), report=print)
    text = capsys.readouterr().out
    assert "macs: " in text
    assert "9.weight: output error" in text


def test_progress_is_told(digits):
    model, data, _ = digits
    told = []
    budget = dp.Budget(macs=0.5)
    dp.shrink(model, data, F.cross_entropy, budget, progress=lambda *a: told.append(a))
    assert told[0][0] == "finding groups"
    assert told[-1] == ("done", 1, 1)


def test_errors_say_what_to_do(digits):
    model, data, _ = digits
    with pytest.raises(ArgumentError, match="data has no batches"):
        dp.shrink(model, [], F.cross_entropy, dp.Budget(macs=0.5))
    with pytest.raises(ArgumentError, match="a pair of inputs and targets"):
        dp.shrink(model, [data[0][0]], F.cross_entropy, dp.Budget(macs=0.5))
    with pytest.raises(ArgumentError, match=r"cannot be met[^`]*or freeze less\.$"):
        dp.shrink(model, data, F.cross_entropy, dp.Budget(macs=0.001))
    with pytest.raises(ArgumentError, match="nothing can be removed"):
        dp.shrink(
            nn.Linear(64, 10),
            [(torch.rand(2, 64), data[0][1][:2])],
            F.cross_entropy,
            dp.Budget(macs=0.5),
        )


def small_net():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)
    )
    data = [(torch.randn(16, 8), torch.randint(3, (16,))) for _ in range(4)]
    return model, data


HALF = dp.Budget(macs=0.5)


@pytest.mark.parametrize(
    "around",
    [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu")],
    ids=["inference", "no_grad", "autocast"],
)
def test_what_is_around_the_call_changes_nothing(around):
    model, data = small_net()
    expected = dp.shrink(model, data, F.cross_entropy, HALF)
    with around():
        small = dp.shrink(
            model, [(x.clone(), y.clone()) for x, y in data], F.cross_entropy, HALF
        )
    for one, other in zip(small.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)
    F.cross_entropy(small.train()(data[0][0]), data[0][1]).backward()


def test_batches_may_be_made_in_inference_mode():
    model, data = small_net()
    with torch.inference_mode():
        made = [(x.clone(), y.clone()) for x, y in data]
    dp.shrink(model, made, F.cross_entropy, HALF)


@pytest.mark.parametrize(
    "batch",
    [torch.randn(16, 7), torch.randn(16, 8).double(), None, "text"],
    ids=["shape", "type", "none", "text"],
)
def test_a_later_batch_that_the_model_does_not_accept_is_named(batch):
    model, data = small_net()
    before = copy.deepcopy(model.state_dict())
    data[2] = batch, data[2][1]
    with pytest.raises(ArgumentError, match="does not accept batch 2 of data: "):
        dp.shrink(model, data, F.cross_entropy, HALF)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def twice_backward(outputs, targets):
    value = F.cross_entropy(outputs, targets)
    value.backward()
    return value


LOSSES = {
    "key": (lambda *_: {}["logits"], "batch 0 of data: KeyError: 'logits'"),
    "division": (lambda *_: 1 / 0, "batch 0 of data: ZeroDivisionError"),
    "number": (lambda o, _: float(o.detach().mean()), "tensor of real numbers, got"),
    "whole": (lambda o, y: (o.argmax(1) == y).sum(), "real numbers, got a tensor of i"),
    "complex": (lambda o, _: o.mean() * 1j, "real numbers, got a tensor of complex"),
    "nan": (lambda o, _: o.mean() * torch.nan, "loss of batch 0 of data is nan"),
    "empty": (lambda o, _: o[:0], "loss of batch 0 of data is nan"),
    "detached": (lambda o, _: o.detach().mean(), "the loss has no gradient"),
    "accuracy": (lambda o, y: (o.argmax(1) == y).float().mean(), "no gradient"),
    "no_grad": (torch.no_grad()(F.cross_entropy), "the loss has no gradient"),
    "backward": (twice_backward, "gradient of the loss cannot be computed"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_tells_nothing_is_refused(name):
    model, data = small_net()
    loss, message = LOSSES[name]
    with pytest.raises(ArgumentError, match=message):
        dp.shrink(model, data, loss, HALF)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_the_model_is_looked_at_before_the_data():
    model, data = small_net()
    with pytest.raises(ArgumentError, match="wrapped in DataParallel"):
        dp.shrink(nn.DataParallel(model), data, F.cross_entropy, HALF)
    with pytest.raises(ArgumentError, match="on the meta device"):
        dp.shrink(model.to("meta"), data, F.cross_entropy, HALF)


class Writes(nn.Module):
    """Changes its buffers, attributes and weights whenever it runs."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8, max_norm=0.5)
        self.make, self.read = nn.Linear(8, 12), nn.Linear(12, 3)
        self.register_buffer("runs", torch.tensor(0))
        self.seen = []

    def forward(self, x):
        self.runs += 1
        self.seen.append(x.shape)
        return self.read(self.make(self.table(x)).relu())


def test_what_forward_passes_write_is_put_back():
    torch.manual_seed(0)
    model = Writes()
    state = copy.deepcopy(model.state_dict())
    data = [(torch.randint(9, (16,)), torch.randint(3, (16,))) for _ in range(3)]
    small = dp.shrink(model, data, F.cross_entropy, HALF)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert model.seen == small.seen == []
    assert small.runs == 0
    assert torch.equal(small.table.weight, state["table.weight"])


def test_batches_may_be_of_different_lengths():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 12), nn.ReLU())
    model.append(nn.Linear(12, 9))
    data = [(torch.randint(9, (6, n)),) * 2 for n in (7, 3, 1)]
    found = shrinkage(model, data, lambda o, y: F.cross_entropy(o.mT, y), HALF)
    assert all(group.is_compensated for group in found.report.groups)


def test_an_empty_batch_is_named():
    model, data = small_net()
    data[1] = data[1][0][:0], data[1][1][:0]
    loss = nn.CrossEntropyLoss(reduction="sum")
    with pytest.raises(ArgumentError, match="batch 1 of data holds no examples"):
        dp.shrink(model, data, loss, HALF)


def test_one_example_may_be_all_that_is_fitted_to():
    model, data = small_net()
    small = dp.shrink(model, data, F.cross_entropy, HALF, fitting=1)
    assert small[0].out_features == 6


def test_single_units_are_left_where_two_are_too_many(digits):
    model, data, _ = digits
    budget = dp.Budget(macs=0.03)
    found = shrinkage(model, data, F.cross_entropy, budget)
    assert min(group.after for group in found.report.groups) == 1
    _, most, now = found.report.costs["macs"]
    assert now <= most


def transformer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(24, 3, 48, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(8, 24), encoder, nn.Flatten(), nn.Linear(192, 10))


def test_the_stream_of_a_transformer_shrinks_if_layers_are_fitted(digits):
    _, data, _ = digits
    rows = [(x[:, 0], y) for x, y in data]
    budget = dp.Budget(macs=0.1)
    small = dp.shrink(transformer(), rows, F.cross_entropy, budget)
    width = small[0].out_features
    assert width < 24
    assert small[1].layers[0].norm1.normalized_shape == (width,)
    for options in ({"refit": False}, {"norms": "exact"}):
        with pytest.raises(ArgumentError, match="cannot be met"):
            dp.shrink(transformer(), rows, F.cross_entropy, budget, **options)


def test_a_time_that_is_exceeded_is_said_where_it_was_asked_for(digits, monkeypatch):
    model, data, _ = digits
    monkeypatch.setattr(
        importlib.import_module("diffprune._shrink.timed_widths"),
        "measure_in_turns",
        lambda *_: (2.0, 1.0),
    )
    with pytest.warns(UserWarning, match="always took longer") as caught:
        dp.shrink(model, data, F.cross_entropy, dp.Budget(latency=0.9))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "loss", [lambda o, _: 0 * o.mean(), lambda o, _: (o - 1e6).relu().mean()]
)
def test_a_loss_whose_gradient_is_zero_is_said(loss):
    model, data = small_net()
    with pytest.warns(UserWarning, match="zero for every unit") as caught:
        dp.shrink(model, data, loss, HALF)
    assert caught[0].filename == __file__


def test_weights_that_are_not_finite_are_named():
    model, data = small_net()
    name, weight = next(model.named_parameters())
    with torch.no_grad():
        weight[1] = torch.inf
    with pytest.raises(ArgumentError, match=f"`{name}` holds numbers that are not fin"):
        dp.shrink(model, data, F.cross_entropy, HALF)


class Recomputed(nn.Module):
    """Computes a part a second time on the way back, in eval mode too."""

    def __init__(self, *, reentrant, is_checkpointed):
        super().__init__()
        self.first, self.make = nn.Linear(8, 11), nn.Linear(11, 12)
        self.read, self.head = nn.Linear(12, 7), nn.Linear(7, 3)
        self.reentrant, self.is_checkpointed = reentrant, is_checkpointed

    def part(self, x):
        return self.read(self.make(x).relu()).relu()

    def forward(self, x):
        x = self.first(x).relu()
        if self.is_checkpointed:
            return self.head(checkpoint(self.part, x, use_reentrant=self.reentrant))
        return self.head(self.part(x))


@pytest.mark.parametrize("reentrant", [True, False])
def test_parts_that_are_computed_again_are_looked_at_like_others(reentrant):
    found = []
    for is_checkpointed in (True, False):
        torch.manual_seed(0)
        model = Recomputed(reentrant=reentrant, is_checkpointed=is_checkpointed)
        data = [(torch.rand(64, 8), torch.randint(3, (64,)))]
        found.append(dp.shrink(model, data, F.cross_entropy, HALF).state_dict())
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_targets_may_be_empty_where_the_loss_needs_none():
    data = [(torch.randn(8, 6), torch.empty(0)) for _ in range(4)]
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    budget = dp.Budget(macs=0.5)
    small = dp.shrink(model, data, lambda y, _: y.square().mean(), budget)
    assert small[0].out_features == 8
