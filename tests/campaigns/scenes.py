"""Small, whole situations that campaigns break: a construction, a removal, a load."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import diffprune as dp
from diffprune import gates

INPUTS = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))


def net():
    """3 -> 8 -> norm -> relu -> 6 -> relu -> 2, the same every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(),
            nn.Linear(6, 2),
        )  # fmt: skip


def placed():
    """The same with gates of its own."""
    model = net()
    model.insert(3, dp.Gate(8))
    return model


def trained(make=net, **options):
    """A pruner and its optimizer after a step, with units that are closed."""
    torch.manual_seed(1)
    model = make()
    options = options or {"strength": 1e-3, "remove_every": 1}
    pruner = dp.Pruner(model, INPUTS, **options)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    (model(INPUTS).square().sum() + pruner.penalty()).backward()
    optimizer.step()
    with torch.no_grad():
        for gate in pruner.gates.values():
            gate.logits[:3] = -9.0
    return pruner, optimizer


def construction(make=net, **options):
    model = make()
    options = options or {"strength": 1e-3}
    return (model,), lambda: dp.Pruner(model, INPUTS, **options)


def removal(make=net, **options):
    pruner, optimizer = trained(make, **options)
    return (pruner, optimizer), lambda: pruner.step(optimizer)


def finish(make=net):
    pruner, optimizer = trained(make)
    return (pruner, optimizer), lambda: pruner.finalize(optimizer)


def resumption(folder=None):
    path = Path(folder or tempfile.mkdtemp()) / "run.pt"
    if not path.exists():
        pruner, optimizer = trained()
        pruner.step(optimizer)
        dp.save_checkpoint(path, pruner, optimizer)
    pruner = dp.Pruner(net(), INPUTS, strength=1e-3, remove_every=1)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    return (pruner, optimizer), lambda: dp.load_checkpoint(path, pruner, optimizer)


def loading(folder=None):
    path = Path(folder or tempfile.mkdtemp()) / "small"
    if not path.exists():
        pruner, optimizer = trained()
        dp.save_pruned(pruner.finalize(optimizer), path, optimizer=optimizer)
    model = net()
    optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": []}])
    return (model, optimizer), lambda: dp.load_pruned(model, path)


def other_numbers_(model):
    """Give a model numbers that a file does not have."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)


def in_place(folder=None):
    """Into a model that keeps its shapes, with the state of an optimizer."""
    path, model = Path(folder or tempfile.mkdtemp()) / "whole", net()
    optimizer = torch.optim.Adam(model.parameters())
    model(INPUTS).square().sum().backward()
    optimizer.step()
    dp.save_pruned(model, path, optimizer=optimizer)
    other_numbers_(model)
    optimizer.step()
    return (model, optimizer), lambda: dp.load_pruned(model, path, optimizer=optimizer)


def resumption_in_place(folder=None):
    """A checkpoint of the same units."""
    path = Path(folder or tempfile.mkdtemp()) / "same.pt"
    pruner, optimizer = trained()
    dp.save_checkpoint(path, pruner, optimizer)
    other_numbers_(pruner.model)
    optimizer.step()
    return (pruner, optimizer), lambda: dp.load_checkpoint(path, pruner, optimizer)


def sparse(folder=None):
    path, model = Path(folder or tempfile.mkdtemp()) / "sparse.safetensors", net()
    gates.save_sparse(model, path)
    other_numbers_(model)
    return (model,), lambda: gates.load_sparse(model, path)


SCENES = {
    "construction": construction,
    "construction, placed gates": lambda: construction(placed),
    "construction, budget": lambda: construction(budget=dp.Budget(macs=0.5, steps=20)),
    "removal": removal,
    "removal, placed gates": lambda: removal(placed),
    "removal, budget": lambda: removal(budget=dp.Budget(macs=0.5, steps=1)),
    "finalize": finish,
    "load_checkpoint": resumption,
    "load_checkpoint, in place": resumption_in_place,
    "load_pruned": loading,
    "load_pruned, in place": in_place,
    "load_sparse": sparse,
}
