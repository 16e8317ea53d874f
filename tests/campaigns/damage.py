"""Flip bits of files, cut them short, swap them: a clear error, or the same content.

A format is something that is written into a folder, and a way to load it. What is
loaded into is made once, and again only after something was loaded: a refusal has to
leave it as it was.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import diffprune as dp
from diffprune import gates, surgery
from diffprune.errors import DiffpruneError
from tests.campaigns.injection import difference, everything
from tests.campaigns.scenes import INPUTS, net, trained


@dataclass(frozen=True)
class Format:
    """How something is stored.

    Attributes:
        files: What there is to damage.
        write: Writes them into a folder; a seed makes another one of the same kind.
        target: Makes what is loaded into.
        load: Loads, and returns all that was loaded.
    """

    files: tuple[str, ...]
    write: Callable[[Path, int], None]
    target: Callable[[], tuple[Any, ...]]
    load: Callable[..., Any]


def _small(seed):
    pruner, optimizer = trained()
    small = pruner.finalize(optimizer)
    with torch.no_grad():
        small[0].weight += seed
    return small, optimizer


def _write_pruned(folder, seed):
    groups = dp.find_groups(net(), INPUTS)
    plan = surgery.plan_removal(groups, keep={"0": torch.arange(8) < 5 + seed})
    dp.save_pruned(surgery.apply_plan(net(), plan), folder)


def _write_optimizer(folder, seed):
    small, optimizer = _small(seed)
    dp.save_pruned(small, folder, optimizer=optimizer)


def _write_checkpoint(folder, seed):
    pruner, optimizer = trained()
    for _ in range(1 + seed):
        pruner.step(optimizer)
    dp.save_checkpoint(folder / "run.pt", pruner, optimizer, extra={"epoch": seed})


def _sparse(seed):
    model = net()
    with torch.no_grad():
        model[0].weight[: 6 - seed] = 0.0
    return model


def _write_plan(folder, seed):
    groups = dp.find_groups(net(), INPUTS)
    plan = surgery.plan_removal(groups, keep={"0": torch.arange(8) < 5 + seed})
    (folder / "plan.json").write_text(plan.to_json())


def _with_optimizer():
    model = net()
    return model, torch.optim.Adam(model.parameters())


def _resumable():
    pruner = dp.Pruner(net(), INPUTS, strength=1e-3, remove_every=1)
    return pruner, torch.optim.Adam(pruner.parameter_groups(lr=1e-2))


def _load_optimizer(folder, model, optimizer):
    dp.load_pruned(model, folder, optimizer=optimizer)
    return model.state_dict(), optimizer.state_dict()["state"]


def _load_checkpoint(folder, pruner, optimizer):
    extra = dp.load_checkpoint(folder / "run.pt", pruner, optimizer)
    return extra, pruner.model.state_dict(), optimizer.state_dict(), pruner.steps


def _load_sparse(folder, model):
    return gates.load_sparse(model, folder / "it.safetensors").state_dict()


def _load_plan(folder):
    try:
        return surgery.Plan.from_json((folder / "plan.json").read_text())
    except UnicodeDecodeError as error:  # the user reads this file, not the library
        raise dp.errors.ArgumentError("the text is not a removal plan") from error


FORMATS = {
    "pruned model": Format(
        ("model.safetensors", "blueprint.json"),
        _write_pruned,
        lambda: (net(),),
        lambda folder, model: dp.load_pruned(model, folder).state_dict(),
    ),
    "checkpoint": Format(("run.pt",), _write_checkpoint, _resumable, _load_checkpoint),
    "optimizer": Format(
        ("optimizer.safetensors",), _write_optimizer, _with_optimizer, _load_optimizer
    ),
    "sparse": Format(
        ("it.safetensors",),
        lambda folder, seed: gates.save_sparse(
            _sparse(seed), folder / "it.safetensors"
        ),
        lambda: (net(),),
        _load_sparse,
    ),
    "plan": Format(("plan.json",), _write_plan, tuple, _load_plan),
}


class Patient:
    """One format on disk, what it holds, and what it is loaded into."""

    def __init__(self, name: str, folder: Path) -> None:
        self.format, self.folder = FORMATS[name], folder / name.replace(" ", "-")
        self.folder.mkdir()
        self.format.write(self.folder, 0)
        self.whole = everything(self.format.load(self.folder, *self.format.target()))
        self.target = self.format.target()

    def verdict(self) -> str:
        """`refused`, `same`, or what went wrong."""
        before = everything(*self.target)
        try:
            found = everything(self.format.load(self.folder, *self.target))
        except DiffpruneError as error:
            changed = difference(before, everything(*self.target))
            words = (*self.format.files, "removal plan", str(self.folder))
            is_named = any(word in str(error) for word in words)
            if changed or not is_named:
                return f"changed {changed}" if changed else f"nameless: {error}"
            return "refused"
        except Exception as error:  # noqa: BLE001 - which is what we are looking for
            return f"inner {type(error).__name__}: {error}"
        self.target = self.format.target()
        # Loaded again, tensors are other objects of the same values.
        same = difference(_values(self.whole), _values(found)) is None
        return "same" if same else "another content was loaded"

    def each(self, damages: Iterator[tuple[str, bytes]]) -> Counter[str]:
        """Try damaged files, one at a time, and put each back."""
        found = Counter[str]()
        for name, data in damages:
            whole = (self.folder / name).read_bytes()
            (self.folder / name).write_bytes(data)
            found[self.verdict()] += 1
            (self.folder / name).write_bytes(whole)
        return found


def _values(noted):
    return [(name, None, value, None) for name, _, value, _ in noted]


def flips(patient: Patient, number: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """One bit of one file, anywhere."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    for turn in range(number):
        name = patient.format.files[turn % len(patient.format.files)]
        data = bytearray((patient.folder / name).read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        yield name, bytes(data)


def truncations(patient: Patient, number: int) -> Iterator[tuple[str, bytes]]:
    """The first part of a file, from nothing to all but one byte; and one byte more."""
    for name in patient.format.files:
        data = (patient.folder / name).read_bytes()
        for turn in range(number):
            yield name, data[: (len(data) - 1) * turn // max(1, number - 1)]
        yield name, data + b"\0"


def swaps(patient: Patient, folder: Path) -> Iterator[tuple[str, bytes]]:
    """A file of another save of the same kind, alone among those of this one."""
    other = folder / f"other-{patient.folder.name}"
    other.mkdir()
    patient.format.write(other, 1)
    if len(list(other.iterdir())) > 1:
        for name in patient.format.files:
            yield name, (other / name).read_bytes()
    shutil.rmtree(other)
