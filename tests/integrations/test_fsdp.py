"""Divided models are saved by all processes, and loaded by any number of them."""

import pytest
import torch
from torch import nn, optim
from torch.distributed.fsdp import fully_shard

import diffprune as dp
from diffprune.errors import ArgumentError, ProcessError, StorageError
from diffprune.integrations.fsdp import load_checkpoint, save_checkpoint
from several_processes import run

X = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))
STEPS = 24
OPTIONS = {
    "budget": {"budget": dp.Budget(macs=0.4, steps=STEPS)},
    "strength": {"strength": 0.002, "remove_every": 4},
}


def make(kind, seed=0, *, shard=True):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1)
    )
    pruner = dp.Pruner(model, X[:2], **OPTIONS[kind])
    if shard:
        pruner.shard_(fully_shard)
    return model, pruner, optim.AdamW(pruner.parameter_groups(lr=0.02, gate_lr=0.1))


def train_(made, steps, rank, count):
    model, pruner, optimizer = made
    for _ in range(steps):
        x = X[rank::count]
        loss = nn.functional.mse_loss(model(x), x[:, :1].relu()) + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)


def numbers(made):
    def whole(tensor):
        return getattr(tensor, "full_tensor", lambda: tensor)().tolist()

    model, pruner, optimizer = made
    moments = {
        name: whole(optimizer.state[p]["exp_avg_sq"])
        for name, p in model.named_parameters()
    }
    weights = {name: whole(p) for name, p in model.named_parameters()}
    return weights, moments, pruner.steps, pruner.worth["0"].tolist()


def saved(rank, folder, kind, steps):
    going_on = make(kind)
    train_(going_on, 3, rank, 2)
    save_checkpoint(folder, *going_on[1:])  # it will be replaced
    train_(going_on, steps - 3, rank, 2)
    save_checkpoint(folder, *going_on[1:], extra={"epoch": 3})
    then = numbers(going_on)
    train_(going_on, STEPS - steps, rank, 2)
    again = make(kind, seed=5)
    assert load_checkpoint(folder, *again[1:]) == {"epoch": 3}
    assert numbers(again) == then
    train_(again, STEPS - steps, rank, 2)
    assert going_on[1].history
    return then, numbers(going_on), numbers(again)


def loaded(rank, folder, kind, count):
    made = make(kind, seed=rank)
    load_checkpoint(folder, *made[1:])
    found = numbers(made)
    train_(made, STEPS - made[1].steps, rank, count)
    return found, [p.tolist() for p in made[1].finalize().parameters()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "steps"), [("budget", 10), ("budget", 16), ("strength", 10)]
)
def test_a_run_goes_on_with_as_many_processes_or_others(tmp_path, kind, steps):
    folder = tmp_path / "run"
    first, second = run(saved, folder, kind, steps)
    assert first == second
    assert first[1] == first[2]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    for count in (1, 3):
        found = run(loaded, folder, kind, count, count=count)
        assert all(one[0] == first[0] for one in found)
        assert all(one == found[0] for one in found)
    alone = make(kind, seed=7, shard=False)
    load_checkpoint(folder, *alone[1:])
    assert numbers(alone) == first[0]


def test_one_process_saves_and_damage_is_refused(tmp_path):
    made = make("strength", shard=False)
    train_(made, 5, 0, 1)
    save_checkpoint(tmp_path / "run", *made[1:])
    again = make("strength", seed=3, shard=False)
    assert load_checkpoint(tmp_path / "run", *again[1:]) == {}
    assert numbers(again) == numbers(made)
    path = tmp_path / "run" / "pruner.pt"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ArgumentError, match="damaged"):
        load_checkpoint(tmp_path / "run", *again[1:])


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.png").write_bytes(b"a cat")
    with pytest.raises(StorageError, match="photos` holds something else"):
        save_checkpoint(folder, *make("strength", shard=False)[1:])
    assert [path.name for path in tmp_path.rglob("*.*")] == ["cat.png"]


def test_damaged_tensors_are_found_before_anything_is_loaded(tmp_path):
    folder = tmp_path / "run"
    save_checkpoint(folder, *make("strength", shard=False)[1:])
    part = max((folder / "tensors").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    model, *fresh = make("strength", seed=4, shard=False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ArgumentError, match=f"{part.name}` is damaged"):
        load_checkpoint(folder, *fresh)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def failing(_, folder):
    with pytest.raises((StorageError, ProcessError), match="holds something else"):
        save_checkpoint(folder, *make("strength")[1:])
    return True


def test_what_the_first_process_cannot_write_all_hear_of(tmp_path):
    (tmp_path / "letter").write_text("Dear Sir or Madam")
    assert run(failing, tmp_path) == [True, True]
