"""Cuts of ours, and units chosen by lot; each says what preparing it cost."""

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from benchmarks.choice.tasks import Task, calibration
from benchmarks.choice.training import macs
from diffprune._budget.limits import as_costs, make_limits
from diffprune._choice.allocation import Costs, uniform_part
from diffprune._costs.network import Network
from diffprune._graph import PruneGroup, find_groups
from diffprune._graph.zeros import unit_numbers
from diffprune._shrink.shrink import CHOOSING, FITTING, shrinkage

FORWARD = 1 / 3
"""What a forward pass costs, as a part of a forward and a backward pass."""


@dataclass(frozen=True)
class Cut:
    """A smaller network.

    Attributes:
        model: The network.
        charged: What choosing and fitting it cost, in images that pass forward and
            backward through the whole network.
        seconds: Processor seconds that it took.
    """

    model: nn.Module
    charged: float
    seconds: float


def fitting_charge(part: float) -> float:
    """What a refit costs: the images pass forward through both networks."""
    return FITTING * FORWARD * (1 + part)


def shrink(model: nn.Module, task: Task, seed: int, target: float) -> Cut:
    """`dp.shrink` with its defaults; asked for less where torch counts more."""
    start = time.process_time()
    data = calibration(task, seed, FITTING)
    image = data[0][0][:1]
    whole, asked = macs(model, image), target
    for _ in range(5):
        found = shrinkage(model, data, cross_entropy, dp.Budget(macs=asked))
        part = macs(found.model, image) / whole
        if part <= target:
            break
        asked *= 0.999 * target / part
    choosing = CHOOSING * (1 + FORWARD * (1 + part))  # measured, then judged
    charged = choosing + fitting_charge(part)
    return Cut(found.model, charged, time.process_time() - start)


def lot(model: nn.Module, task: Task, seed: int, target: float, *, refit: bool) -> Cut:
    """Units drawn by lot, the same part of every group."""
    start = time.process_time()
    data = [images for images, _ in calibration(task, seed, FITTING)]
    groups = find_groups(model, data[0])
    widths = uniform_widths(model, data[0], target)
    generator = torch.Generator().manual_seed(seed)
    keep = dict[str, Tensor]()
    for group, width in zip(groups, widths, strict=True):
        order = torch.randperm(group.size, generator=generator)
        keep[group.name] = torch.zeros(group.size, dtype=torch.bool)
        keep[group.name][order[:width]] = True
    small = dp.remove(model, data[0], keep=keep, refit=data if refit else None)
    charged = fitting_charge(target) if refit else 0.0
    return Cut(small, charged, time.process_time() - start)


def by_magnitude(
    model: nn.Module, task: Task, seed: int, target: float, *, power: int, refit: bool
) -> Cut:
    """The units of the largest weights, compared over all groups, removed by us.

    This is what `GroupMagnitudeImportance` does: norms of the slices of a unit,
    averaged over its tensors, as parts of the mean of its group; no group loses more
    than 95 %.
    """
    start = time.process_time()
    data = [images for images, _ in calibration(task, seed, FITTING)]
    groups = find_groups(model, data[0])
    scores = {group.name: magnitudes(model, group, power) for group in groups}
    ranks = torch.cat([*scores.values()]).sort().values
    costs = _mac_costs(model, data[0], target)

    def kept(count: int) -> dict[str, Tensor]:
        found = dict[str, Tensor]()
        for name, score in scores.items():
            least = max(1, round(0.05 * len(score)))
            cut = min(float(ranks[count]), float(score.sort().values[-least]))
            found[name] = score >= cut
        return found

    def fits(count: int) -> bool:
        widths = [int(mask.sum()) for mask in kept(count).values()]
        return costs.fit(torch.tensor(widths, dtype=torch.float64))

    count = bisect_left(range(len(ranks) - 1), x=True, key=fits)
    keep = kept(count)
    small = dp.remove(model, data[0], keep=keep, refit=data if refit else None)
    charged = fitting_charge(target) if refit else 0.0
    return Cut(small, charged, time.process_time() - start)


def magnitudes(model: nn.Module, group: PruneGroup, power: int) -> Tensor:
    """How large the weights of each unit are, as a part of the group's mean."""
    tensors, found = dict(model.named_parameters()), list[Tensor]()
    for place in group.axes:
        if place.tensor in tensors and tensors[place.tensor].ndim > 1:
            numbers = unit_numbers(place.axis, group.atom)
            rows = tensors[place.tensor].detach().movedim(place.dim, 0).flatten(1)
            norms = rows.abs().pow(power).sum(1)[numbers >= 0]
            sums = torch.zeros(group.size).index_add(0, numbers[numbers >= 0], norms)
            found.append(sums)
    score = torch.stack(found).mean(0)
    return score / score.mean()


def uniform_widths(model: nn.Module, x: Tensor, target: float) -> list[int]:
    """Widths that are the same part of every group, then one more where it fits."""
    costs, sizes = _mac_costs(model, x, target), [g.size for g in find_groups(model, x)]
    part = uniform_part(sizes, costs)
    if not costs.fit(torch.ones(len(sizes), dtype=torch.float64)):
        raise RuntimeError(f"no widths cost {target} of the multiply-adds")
    widths = [max(1, int(part * size)) for size in sizes]
    for number in sorted(range(len(sizes)), key=lambda n: widths[n] - part * sizes[n]):
        widths[number] += 1
        if not costs.fit(torch.tensor(widths, dtype=torch.float64)):
            widths[number] -= 1
    return widths


def _mac_costs(model: nn.Module, x: Tensor, target: float) -> Costs:
    groups = find_groups(model, x)
    network = Network(model, x, groups, [*groups])
    (limits,) = make_limits([dp.Budget(macs=target)], network)
    return as_costs(limits)


def from_scratch(model: nn.Module, task: Task, seed: int, target: float) -> Cut:
    """A network of the same part of every width, with fresh weights."""
    torch.manual_seed(seed)
    if task.narrow is not None:
        return Cut(_narrowed(model, task.narrow, task, target), 0.0, 0.0)
    found = lot(model, task, seed, target, refit=False)
    for module in found.model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    return found


def _narrowed(
    model: nn.Module, narrow: Callable[[float], nn.Module], task: Task, target: float
) -> nn.Module:
    """The widest network of those that have the same part of all widths."""
    image = task.data().train.images[:1]
    most = target * macs(model, image)
    parts = [number / 64 for number in range(64, 0, -1)]
    return next(small for part in parts if macs(small := narrow(part), image) <= most)
