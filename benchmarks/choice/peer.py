"""Cuts of Torch-Pruning: every importance it has, global and isomorphic.

The ratio of units to remove is found by bisection, so that the multiply-adds come as
close to the target as they can from below.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch
import torch_pruning as tp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.choice.names import PEER
from benchmarks.choice.ours import Cut, fitting_charge
from benchmarks.choice.tasks import BATCH, Task, calibration
from benchmarks.choice.training import macs, train_
from diffprune._choice import refit_
from diffprune._shrink.shrink import FITTING

VERSION = version("torch-pruning")
HALVINGS = 10
MOST_PRUNED = 0.95
_SLOPES = 512  # images for Taylor's gradients
_CURVES = 128  # images, one by one, for Hessian's
_LASSO = 5e-4

Kept = Mapping[str, Mapping[int, list[int]]]


class CannotError(Exception):
    """What Torch-Pruning cannot do here."""


@dataclass(frozen=True)
class Way:
    """An importance, and over which units it is compared.

    Attributes:
        importance: Name of the importance.
        isomorphic: Whether it is compared among like layers only.
    """

    importance: str
    isomorphic: bool

    @property
    def name(self) -> str:
        """Its name in records."""
        scope = "isomorphic" if self.isomorphic else "global"
        return f"{PEER}{self.importance} {scope}"


IMPORTANCES: Mapping[str, Callable[[], Any]] = {
    "L1": lambda: tp.importance.GroupMagnitudeImportance(p=1),
    "L2": lambda: tp.importance.GroupMagnitudeImportance(p=2),
    "Taylor": tp.importance.GroupTaylorImportance,
    "Hessian": tp.importance.GroupHessianImportance,
    "BN scale": tp.importance.BNScaleImportance,
    "LAMP": tp.importance.LAMPImportance,
    "FPGM": tp.importance.FPGMImportance,
}
WAYS = {
    way.name: way
    for way in (Way(name, flag) for name in IMPORTANCES for flag in (False, True))
}


def cut(
    model: nn.Module, task: Task, seed: int, target: float, way: Way, *, refit: bool
) -> Cut:
    """Cut a network to a part of its multiply-adds, from below.

    Raises:
        CannotError: If no ratio gets there.
    """
    found = _nearest(model, task, seed, target, way)
    small, charged = copy.deepcopy(found.model), found.charged
    start = time.process_time()
    if refit:
        data = [images for images, _ in calibration(task, seed, FITTING)]
        kept = _kept(model, data[0][:1], found.removals)
        refit_(small, model, kept, data)
        charged += fitting_charge(found.part)
    return Cut(small, charged, found.seconds + time.process_time() - start)


def sparse_cut(
    model: nn.Module, task: Task, seed: int, target: float, *, steps: int, rate: float
) -> Cut:
    """Train with Torch-Pruning's group lasso, then cut by the norms of groups.

    This is what its own recipe does for CIFAR-10, strength included. The steps are
    charged; they pass through the whole network.

    Raises:
        CannotError: If no ratio gets there.
    """
    begin = time.process_time()
    sparse = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    image = task.data().train.images[:1]
    pruner = tp.pruner.GroupNormPruner(
        sparse,
        image,
        importance=tp.importance.GroupMagnitudeImportance(p=2),
        reg=_LASSO,
        global_pruning=True,
        ignored_layers=[sparse.get_submodule(task.head)],
        num_heads=_heads(sparse),
        in_channel_groups={},
        out_channel_groups={},
    )
    train_(sparse, task, 200 + seed, steps, rate, pruner.regularize)
    seconds = time.process_time() - begin
    found = cut(sparse, task, seed, target, Way("L2", isomorphic=False), refit=False)
    charged = found.charged + steps * BATCH
    return Cut(found.model, charged, found.seconds + seconds)


@dataclass(frozen=True)
class _Found:
    """What a bisection found."""

    model: nn.Module
    removals: "Removals"
    part: float
    charged: float
    seconds: float


@lru_cache(maxsize=8)
def _nearest(
    model: nn.Module, task: Task, seed: int, target: float, way: Way
) -> _Found:
    begin = time.process_time()
    data = calibration(task, seed, FITTING)
    image = data[0][0][:1]
    start = copy.deepcopy(model).eval()
    importance, charged = IMPORTANCES[way.importance](), 0.0
    if way.importance == "Taylor":
        charged = _taylor_(start, data)
    if way.importance == "Hessian":
        charged = _hessian_(start, importance, data)
    whole = macs(model, image)
    best, low, high = None, 0.0, 1.0
    for _ in range(HALVINGS):
        ratio = (low + high) / 2
        small, removals = _pruned(start, importance, image, task.head, way, ratio)
        part = macs(small, image) / whole
        if part <= target:
            best, high = (small, removals, part), ratio
        else:
            low = ratio
    if best is None:
        raise CannotError(f"{way.name} does not get to {target} of the multiply-adds")
    best[0].zero_grad(set_to_none=True)
    return _Found(*best, charged, time.process_time() - begin)


def _taylor_(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> float:
    """Leave the gradients of a few batches, as its examples do."""
    model.zero_grad()
    for images, labels in _first(data, _SLOPES):
        cross_entropy(model(images), labels).backward()
    return _SLOPES


def _hessian_(
    model: nn.Module,
    importance: Any,  # noqa: ANN401 - Torch-Pruning has no types
    data: list[tuple[Tensor, Tensor]],
) -> float:
    """Square the gradients of single images, as its documentation does."""
    importance.zero_grad()
    for images, labels in _first(data, _CURVES):
        for loss in cross_entropy(model(images), labels, reduction="none"):
            model.zero_grad()
            loss.backward(retain_graph=True)
            importance.accumulate_grad(model)
    return _CURVES


def _first(
    data: list[tuple[Tensor, Tensor]], count: int
) -> Iterator[tuple[Tensor, Tensor]]:
    for images, labels in data:
        if count > 0:
            yield images[:count], labels[:count]
        count -= len(labels)


Removals = list[tuple[str, str, list[int]]]
"""Name of a layer, whether its inputs or outputs are removed, and which."""


def _pruned(
    start: nn.Module,
    importance: Any,  # noqa: ANN401 - as above
    image: Tensor,
    head: str,
    way: Way,
    ratio: float,
) -> tuple[nn.Module, Removals]:
    """One cut at a ratio, on a copy of the model and of what was gathered."""
    model, score = copy.deepcopy((start, importance))
    for parameter, old in zip(model.parameters(), start.parameters(), strict=True):
        parameter.grad = old.grad  # which a copy of a parameter lacks
    names = {module: name for name, module in model.named_modules()}
    pruner = tp.pruner.BasePruner(
        model,
        image,
        importance=score,
        global_pruning=True,
        isomorphic=way.isomorphic,
        pruning_ratio=ratio,
        max_pruning_ratio=MOST_PRUNED,
        ignored_layers=[model.get_submodule(head)],
        num_heads=_heads(model),
        # Fresh dictionaries: the defaults are shared between pruners and filled.
        in_channel_groups={},
        out_channel_groups={},
    )
    removals: Removals = []
    for group in pruner.step(interactive=True):
        dependency, indices = group[0]
        side = (
            "out" if pruner.DG.is_out_channel_pruning_fn(dependency.handler) else "in"
        )
        removals.append((names[dependency.target.module], side, list(indices)))
        group.prune()
    return model, removals


def _heads(model: nn.Module) -> dict[nn.Module, int]:
    return {
        block.qkv: block.num_heads
        for block in model.modules()
        if isinstance(getattr(block, "qkv", None), nn.Linear)
    }


def _kept(model: nn.Module, image: Tensor, removals: Removals) -> Kept:
    """Which indices of every tensor are left: cut one whose elements are numbered."""
    numbered = copy.deepcopy(model).double()
    graph = tp.DependencyGraph().build_dependency(numbered, image.double())
    shapes = {name: p.shape for name, p in numbered.named_parameters()}
    with torch.no_grad():
        for parameter in numbered.parameters():
            numbers = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(numbers.view(parameter.shape))
    for name, side, indices in removals:
        layer = numbered.get_submodule(name)
        pruner = graph.get_pruner_of_module(layer)
        function = (
            pruner.prune_out_channels if side == "out" else pruner.prune_in_channels
        )
        graph.get_pruning_group(layer, function, indices).prune()
    found = {
        name: _left(parameter.detach(), shapes[name])
        for name, parameter in numbered.named_parameters()
    }
    norms = {
        f"{name}.{statistic}": found[f"{name}.weight"]
        for name, module in numbered.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for statistic in ("running_mean", "running_var")
    }
    return {name: dims for name, dims in (found | norms).items() if dims}


def _left(numbers: Tensor, shape: torch.Size) -> dict[int, list[int]]:
    """For each dimension that shrank, the indices that are left."""
    places = torch.unravel_index(numbers.long(), shape)
    return {
        dim: torch.unique(places[dim]).tolist()
        for dim in range(len(shape))
        if numbers.shape[dim] < shape[dim]
    }
