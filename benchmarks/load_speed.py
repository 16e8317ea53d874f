"""What loading takes, digests and checks included, against plain safetensors.

The reference of every row is what one would write without this library to have the same
tensors in the same places: plain safetensors files, read with `load_file` and loaded by
torch's own `load_state_dict`. `load_file` only maps a file into memory; what is kept
has to be copied. A model copies what it is given. An optimizer keeps it, so the
reference copies its tensors first, or the next step would wait for the disk.

- *pruned model*: half of the hidden units are gone. Here a fresh model of full size
  becomes the small one; the reference is a fresh model that was built small. Memory of
  neither was used yet.
- *pruned model, in place*: into a model that has these shapes and its memory already.
- *with optimizer*: the same with the state of Adam.
- *checkpoint*: the reference is the same gated model and its optimizer. It loads their
  tensors, and nothing of the pruner and of random numbers.
- *sparse weights*: the reference holds the same values and places, and makes them
  dense.

What is left is one more pass over all bytes, for the digest, and milliseconds that do
not depend on size: names, shapes and types are compared, and what everything holds is
noted, so that it can be put back. The smallest width shows these alone. It has no
target.
"""

import copy
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import diffprune as dp
from diffprune import gates

from ._timing import Measurement, ratio

SMALLEST = 16
WIDTHS = SMALLEST, 1536, 3072
ROUNDS = 21
RECIPE = {
    "network": f"two square linear layers, {', '.join(map(str, WIDTHS))} wide",
    "optimizer": "Adam after one step",
    "sparse": "four fifths of the weights are zero",
    "cache": "warm: what is read was written a moment ago",
}
TARGET = 1.3


def _model(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    width = next(model.parameters()).shape[1]
    model(torch.rand(2, width)).square().sum().backward()
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
            state.setdefault(int(number), {})[key] = value.clone()
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})

    return load


def _pruned(
    folder: Path, width: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(width), _model(width)
    dp.save_pruned(model, folder / "small")
    return lambda: dp.load_pruned(model, folder / "small"), _plain(folder, other)


def _fresh(
    folder: Path, width: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Both into a model whose memory was not used yet."""
    model = _model(width)
    half = torch.arange(width) % 2 == 0
    small = dp.remove(model, torch.rand(2, width), keep={"0": half})
    dp.save_pruned(small, folder / "small")
    save_file(small.state_dict(), folder / "plain.safetensors")
    empty, empty_small = model.to("meta"), small.to("meta")

    def fresh(like: nn.Module) -> nn.Module:
        return copy.deepcopy(like).to_empty(device="cpu")

    def plain() -> None:
        fresh(empty_small).load_state_dict(load_file(folder / "plain.safetensors"))

    return lambda: dp.load_pruned(fresh(empty), folder / "small"), plain


def _optimizer(
    folder: Path, width: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(width), _model(width)
    optimizer, plain = (torch.optim.Adam(m.parameters()) for m in (model, other))
    _step(model, optimizer)
    _step(other, plain)
    dp.save_pruned(model, folder / "small", optimizer=optimizer)
    return (
        lambda: dp.load_pruned(model, folder / "small", optimizer=optimizer),
        _plain(folder, other, plain),
    )


def _checkpoint(
    folder: Path, width: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    (pruner, optimizer), (other, plain) = (_training(width) for _ in range(2))
    dp.save_checkpoint(folder / "run.pt", pruner, optimizer)
    return (
        lambda: dp.load_checkpoint(folder / "run.pt", pruner, optimizer),
        _plain(folder, other.model, plain),
    )


def _training(width: int) -> tuple[dp.Pruner[nn.Module], torch.optim.Optimizer]:
    pruner = dp.Pruner(_model(width), torch.rand(2, width), strength=1e-5)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-4))
    _step(pruner.model, optimizer)
    return pruner, optimizer


def _sparse(
    folder: Path, width: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    model, other = _model(width), _model(width)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[torch.rand_like(parameter) < 0.8] = 0.0
    gates.save_sparse(model, folder / "it.safetensors")
    places = {n: p.flatten().nonzero()[:, 0].int() for n, p in model.named_parameters()}
    values = {n: p.flatten()[places[n]].detach() for n, p in model.named_parameters()}
    save_file(places, folder / "places.safetensors")
    save_file(values, folder / "values.safetensors")

    def plain() -> None:
        found = load_file(folder / "places.safetensors")
        known = load_file(folder / "values.safetensors")
        state = {
            name: torch.zeros(like.numel())
            .scatter_(0, found[name].long(), known[name])
            .view(like.shape)
            for name, like in other.state_dict().items()
        }
        other.load_state_dict(state)

    return lambda: gates.load_sparse(model, folder / "it.safetensors"), plain


FORMATS = {
    "pruned model": _fresh,
    "pruned model, in place": _pruned,
    "pruned model with optimizer": _optimizer,
    "checkpoint": _checkpoint,
    "sparse weights": _sparse,
}


def measure() -> tuple[Measurement, ...]:
    """Load every format, and the same tensors plainly, in turns."""
    found = list[Measurement]()
    for (name, make), width in product(FORMATS.items(), WIDTHS):
        with tempfile.TemporaryDirectory() as folder:
            ours, plain = make(Path(folder), width)
            names = f"{name}, {width} wide", "plain safetensors"
            target = None if width == SMALLEST else TARGET
            found.append(ratio(ours, plain, names=names, rounds=ROUNDS, target=target))
    return tuple(found)
