"""Training goes on from a folder as if it had never stopped."""

import json

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune._core import tensor_files
from diffprune.errors import ArgumentError

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "fused": lambda p: optim.Adam(p, lr=0.01, fused=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "Rprop": lambda p: optim.Rprop(p, lr=0.01),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.01),
}


def train_(model, optimizer, steps=3):
    model.train()
    for step in range(steps):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_continues_bit_for_bit(name, make, small, tmp_path):
    optimizer = OPTIMIZERS[name](small.parameters())
    train_(small, optimizer)
    dp.save_pruned(small, tmp_path, optimizer=optimizer)
    fresh = make()
    again = OPTIMIZERS[name](fresh.parameters())
    dp.load_pruned(fresh, tmp_path, optimizer=again)
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for model, steps in ((small, optimizer), (fresh, again)):
        train_(model, steps)
    assert all(map(torch.equal, fresh.parameters(), small.parameters()))


def test_parameters_go_by_name(make, small, tmp_path):
    def groups(model):
        biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
        rest = [p for n, p in model.named_parameters() if not n.endswith("bias")]
        return [{"params": rest, "lr": 0.1}, {"params": biases[::-1], "lr": 0.2}]

    optimizer = optim.SGD(groups(small), momentum=0.9)
    train_(small, optimizer)
    dp.save_pruned(small, tmp_path, optimizer=optimizer)
    fresh = make()
    again = optim.SGD(groups(fresh), momentum=0.9)
    dp.load_pruned(fresh, tmp_path, optimizer=again)
    assert [g["lr"] for g in again.param_groups] == [0.1, 0.2]
    for name, parameter in small.named_parameters():
        expected = optimizer.state[parameter]["momentum_buffer"]
        found = again.state[fresh.get_parameter(name)]["momentum_buffer"]
        assert torch.equal(found, expected)


def test_what_is_left_of_the_gates_is_left_out(make, tmp_path, inputs):
    pruner = dp.Pruner(make(), inputs, strength=1e-3)
    optimizer = optim.Adam(pruner.parameter_groups(lr=0.01))
    train_(pruner.model, optimizer)
    small = pruner.finalize(optimizer)
    dp.save_pruned(small, tmp_path, optimizer=optimizer)
    fresh = make()
    again = optim.Adam(fresh.parameters())
    dp.load_pruned(fresh, tmp_path, optimizer=again)
    assert len(again.param_groups) == 1
    assert len(again.state) == len(list(fresh.parameters()))


@pytest.fixture
def trained(small, tmp_path):
    optimizer = optim.Adam(small.parameters())
    train_(small, optimizer)
    return dp.save_pruned(small, tmp_path, optimizer=optimizer)


def assert_refused(folder, model, optimizer, match, kind=ArgumentError):
    before = {name: p.clone() for name, p in model.named_parameters()}
    held = [list(group["params"]) for group in optimizer.param_groups]
    with pytest.raises(kind, match=match):
        dp.load_pruned(model, folder, optimizer=optimizer)
    after = dict(model.named_parameters())
    assert all(torch.equal(after[name], before[name]) for name in before)
    now = [list(group["params"]) for group in optimizer.param_groups]
    assert all(
        a is b
        for one, two in zip(now, held, strict=True)
        for a, b in zip(one, two, strict=True)
    )
    assert not optimizer.state


def test_another_optimizer_is_refused(make, trained):
    model = make()
    optimizer = optim.SGD(model.parameters())
    assert_refused(
        trained, model, optimizer, "saved optimizer is Adam, this one is SGD"
    )


def test_other_groups_are_refused(make, trained):
    model = make()
    optimizer = optim.Adam(model.fc1.parameters())
    assert_refused(trained, model, optimizer, "other parameter groups: 8, where .* 2")


def test_a_model_saved_without_optimizer_has_none(make, trained, small):
    dp.save_pruned(small, trained)
    model = make()
    optimizer = optim.Adam(model.parameters())
    match = "saved without its optimizer"
    assert_refused(trained, model, optimizer, match, FileNotFoundError)


def test_the_optimizer_of_an_earlier_save_is_refused(make, trained):
    """What a failure between two renames leaves behind, or a copy of some files."""
    earlier = (trained / "optimizer.safetensors").read_bytes()
    model = make()
    optimizer = optim.Adam(model.parameters())
    small = dp.load_pruned(model, trained, optimizer=optimizer)
    with torch.no_grad():
        next(small.parameters()).mul_(2)
    dp.save_pruned(small, trained, optimizer=optimizer)
    (trained / "optimizer.safetensors").write_bytes(earlier)
    fresh = make()
    match = "(?s)optimizer.safetensors` and what is beside it.*not saved together"
    assert_refused(trained, fresh, optim.Adam(fresh.parameters()), match)


def rewritten(path, change_header, change_tensors):
    """Change a state as someone would who knows how its digest is made."""
    tensors, header = tensor_files.read_tensors(path)
    data = json.loads(header["optimizer"])
    change_header(data)
    change_tensors(tensors)
    header["optimizer"] = json.dumps(data)
    with path.with_name("model.safetensors").open("rb") as weights:
        digest = tensor_files.stored_digest(weights)
    header["blueprint"] = path.with_name("blueprint.json").read_text() + digest
    path.write_bytes(tensor_files.packed(tensors, **header))


def nothing(_):
    """Leave it as it is."""


@pytest.mark.parametrize(
    ("header", "tensors", "match"),
    [
        (lambda d: d.pop("kind"), nothing, "is damaged: KeyError.'kind'"),
        (lambda d: d.update(parameters=3), nothing, "is damaged"),
        (lambda d: d.update(options=[]), nothing, "is damaged"),
        (lambda d: d["options"][0].update(lr={"a": 1}), nothing, "plain values, got"),
        (lambda d: d["options"][0].update(params=[9]), nothing, "plain values, got"),
        (lambda d: d["numbers"].update(fc9={"step": 1}), nothing, "is damaged: .*fc9"),
        (nothing, lambda t: t.update({"../x": torch.ones(1)}), "is damaged: KeyErr"),
        (
            nothing,
            lambda t: t.update({"fc1.bias/exp_avg": torch.ones(1)}),
            r"remembers `exp_avg` of shape .1. for `fc1.bias` of shape .8.",
        ),
        (
            nothing,
            lambda t: t.update({"fc1.bias/exp_avg": torch.ones(99)}),
            r"remembers `exp_avg` of shape .99. for `fc1.bias` of shape .8.",
        ),
    ],
)
def test_tampered_states_are_refused(make, trained, header, tensors, match):
    rewritten(trained / "optimizer.safetensors", header, tensors)
    model = make()
    assert_refused(trained, model, optim.Adam(model.parameters()), match)


@pytest.mark.parametrize("size", [0, 9, -1])
def test_a_truncated_state_is_refused(make, trained, size):
    path = trained / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    model = make()
    assert_refused(trained, model, optim.Adam(model.parameters()), "is damaged")


def test_the_state_of_another_save_is_refused(make, trained, tmp_path):
    other = make()
    optimizer = optim.Adam(other.parameters())
    train_(other, optimizer)
    elsewhere = dp.save_pruned(other, tmp_path / "other", optimizer=optimizer)
    (elsewhere / "optimizer.safetensors").replace(trained / "optimizer.safetensors")
    model = make()
    match = "were not saved together"
    assert_refused(trained, model, optim.Adam(model.parameters()), match)


def test_states_that_only_pickle_could_hold_are_refused(tmp_path):
    model = nn.Linear(3, 1)
    optimizer = optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with pytest.raises(ArgumentError, match=r"LBFGS keeps `\w+` as list, which a"):
        dp.save_pruned(model, tmp_path / "new", optimizer=optimizer)
    assert not (tmp_path / "new").exists()
