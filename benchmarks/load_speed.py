"""What loading takes, digests and checks included, against plain safetensors.

The reference holds the same tensors in plain safetensors files, read with `load_file`
and copied into the same model, and optimizer, by torch's own `load_state_dict`.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import diffprune as dp
from diffprune import gates

from ._timing import Measurement, ratio

WIDTH = 1536
ROUNDS = 21
RECIPE = {
    "network": f"two linear layers of {WIDTH} x {WIDTH}",
    "optimizer": "Adam after one step",
    "sparse": "four fifths of the weights are zero",
}
TARGET = 1.3


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.rand(2, WIDTH)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def _flat(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{number}/{key}": value
        for number, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def _plain(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> Callable[[], object]:
    """Load the same by torch and safetensors alone."""
    save_file(model.state_dict(), folder / "plain.safetensors")
    if optimizer is not None:
        save_file(_flat(optimizer), folder / "state.safetensors")

    def load() -> None:
        model.load_state_dict(load_file(folder / "plain.safetensors"))
        if optimizer is None:
            return
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in load_file(folder / "state.safetensors").items():
            number, _, key = name.partition("/")
            state.setdefault(int(number), {})[key] = value
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})

    return load


def _pruned(folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(), _model()
    dp.save_pruned(model, folder / "small")
    return lambda: dp.load_pruned(model, folder / "small"), _plain(folder, other)


def _optimizer(folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(), _model()
    optimizer, plain = (torch.optim.Adam(m.parameters()) for m in (model, other))
    _step(model, optimizer)
    _step(other, plain)
    dp.save_pruned(model, folder / "small", optimizer=optimizer)
    return (
        lambda: dp.load_pruned(model, folder / "small", optimizer=optimizer),
        _plain(folder, other, plain),
    )


def _checkpoint(folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(), _model()
    pruner = dp.Pruner(model, torch.rand(2, WIDTH), strength=1e-5)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-4))
    plain = torch.optim.Adam(other.parameters())
    _step(model, optimizer)
    _step(other, plain)
    dp.save_checkpoint(folder / "run.pt", pruner, optimizer)
    return (
        lambda: dp.load_checkpoint(folder / "run.pt", pruner, optimizer),
        _plain(folder, other, plain),
    )


def _sparse(folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(), _model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[torch.rand_like(parameter) < 0.8] = 0.0
    gates.save_sparse(model, folder / "it.safetensors")
    return (
        lambda: gates.load_sparse(model, folder / "it.safetensors"),
        _plain(folder, other),
    )


FORMATS = {
    "pruned model": _pruned,
    "pruned model with optimizer": _optimizer,
    "checkpoint": _checkpoint,
    "sparse weights": _sparse,
}


def measure() -> tuple[Measurement, ...]:
    """Load every format, and the same tensors plainly, in turns."""
    found = list[Measurement]()
    for name, make in FORMATS.items():
        with tempfile.TemporaryDirectory() as folder:
            ours, plain = make(Path(folder))
            names = name, "plain safetensors"
            found.append(ratio(ours, plain, names=names, rounds=ROUNDS, target=TARGET))
    return tuple(found)
