"""What decides how well a cut network trains: networks that the comparison lacks.

A pretrained network is cut to a part of its multiply-adds and trained on. Widths are
even, or follow what units are worth; within a layer those units stay that are worth
most, or that have the largest weights; and the weights that are left are as they were,
fitted, or fitted and then brought back to the norms they had. All get the same compute,
and what choosing and fitting take is charged. `python -m benchmarks.choice_factors`
trains what has no record yet and prints the means. Errors are those of 10,000 training
images that no network learns from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy, relu

import diffprune as dp
from benchmarks.choice import ours, training
from benchmarks.choice.table import COMPUTES as TRAININGS, estimate
from benchmarks.choice.tasks import BATCH, Data, Task, calibration, cifar10
from benchmarks.closing_plans import COLOUR, NETWORKS as PLAIN, held_out, make_task
from diffprune._budget.limits import as_costs, make_limits
from diffprune._choice import Leaving, allocate
from diffprune._costs.network import Network
from diffprune._graph import find_groups
from diffprune._shrink.shrink import CHOOSING, FITTING, choose_order
from diffprune.lab.image_batches import Examples

from ._command import command, one_of
from ._records import RESULTS
from ._run_record import RunRecord

TARGET: Final = 0.2
SEEDS: Final = (0, 1)
COMPUTES: Final = (0.0, 0.25, 1.0)
WORTH, EVEN, SIZE = "worth", "even", "size"
SLICED, FITTED, RESCALED = "sliced", "fitted", "rescaled"
WAYS: Final = (
    (WORTH, WORTH, FITTED),
    (WORTH, WORTH, RESCALED),
    (WORTH, WORTH, SLICED),
    (EVEN, WORTH, RESCALED),
    (EVEN, SIZE, SLICED),
)
"""Widths, order and weights: the first is what `dp.shrink` does."""

TITLES: Final = tuple(
    f"{'even widths' if widths == EVEN else 'widths by worth'}, units by {order}, "
    f"{weights}"
    for widths, order, weights in WAYS
)


@final
class _Bottleneck(nn.Module):
    """Three convolutions, the middle one narrow, beside a short cut."""

    def __init__(self, inputs: int, middle: int, outputs: int, stride: int) -> None:
        super().__init__()
        sizes = ((inputs, middle, 1, 1), (middle, middle, 3, stride))
        layers = list[nn.Module]()
        for before, after, kernel, step in sizes:
            layers += [*_normed(before, after, kernel, step), nn.ReLU()]
        self.body = nn.Sequential(*layers, *_normed(middle, outputs, 1, 1))
        same = inputs == outputs and stride == 1
        short = [] if same else _normed(inputs, outputs, 1, stride)
        self.short = nn.Sequential(*short)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.body(x) + self.short(x))


@final
class _Basic(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        first, second = (
            _normed(inputs, outputs, 3, stride),
            _normed(outputs, outputs, 3, 1),
        )
        self.body = nn.Sequential(*first, nn.ReLU(), *second)
        same = inputs == outputs and stride == 1
        short = [] if same else _normed(inputs, outputs, 1, stride)
        self.short = nn.Sequential(*short)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.body(x) + self.short(x))


def _normed(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class _Stages(nn.Module):
    """A stem, blocks, and a mean over all places."""

    def __init__(self, width: int, *blocks: nn.Module, outputs: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_normed(3, width, 3, 2), nn.ReLU())
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(outputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def _basic() -> nn.Module:
    blocks = (
        _Basic(12, 12, 1),
        _Basic(12, 12, 1),
        _Basic(12, 24, 2),
        _Basic(24, 24, 1),
        _Basic(24, 48, 2),
    )
    return _Stages(12, *blocks, outputs=48)


def _bottlenecks() -> nn.Module:
    blocks = (
        _Bottleneck(16, 12, 32, 1),
        _Bottleneck(32, 16, 64, 2),
        _Bottleneck(64, 24, 64, 1),
        _Bottleneck(64, 32, 96, 2),
    )
    return _Stages(16, *blocks, outputs=96)


@cache
def thumbnails() -> Data:
    """CIFAR-10 at half its size, so that a network takes a quarter of the time."""
    data = cifar10()
    return Data(*map(_halved, (data.train, data.held_out, data.test)))


def _halved(examples: Examples) -> Examples:
    return Examples(avg_pool2d(examples.images, 2), examples.labels)


@cache
def judges(task: Task) -> Examples:
    """Training images that no network learns from."""
    if task.data is not thumbnails:
        return held_out(is_colour=task.data is cifar10)
    return _halved(held_out(is_colour=True))


_NORMED: Final = (
    PLAIN["convolutions, batch norm"],
    PLAIN["residual, norms first"],
    make_task("residual, norms last", _basic, 0.1, **COLOUR),
    make_task("residual, bottlenecks", _bottlenecks, 0.1, **COLOUR),
)
_OTHERS: Final = (PLAIN["convolutions, no norm"], PLAIN["perceptron"])
NETWORKS: Final = {
    task.name: task
    for task in (
        *_OTHERS,
        *(replace(one, data=thumbnails) for one in _NORMED),
        *(replace(one, name=f"{one.name}, 32 pixels") for one in _NORMED),
    )
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One network that was cut and trained.

    Attributes:
        network: Its name.
        seed: Of weights and data.
        target: Part of the multiply-adds that may be left.
        compute: Of the training, as a part of the pretraining.
        widths: How many units each layer keeps: `even` parts, or by `worth`.
        order: Which units stay: by `worth`, or by the `size` of their weights.
        weights: `sliced`, `fitted`, or `rescaled` after the fit.
        units: How many units each group has.
        steps: Of the training.
        error: On held-out images, in per cent.
        loss: On held-out images.
    """

    network: str
    seed: int
    target: float
    compute: float
    widths: str
    order: str
    weights: str
    units: Sequence[int]
    steps: int
    error: float
    loss: float


Key = tuple[str, int, float, float, str, str, str]
Run = tuple[str, int]
Way = tuple[str, str, str]


def key(result: Result) -> Key:
    """What a run is about."""
    return (
        result.network,
        result.seed,
        result.target,
        result.compute,
        result.widths,
        result.order,
        result.weights,
    )


@cache
def pretrained(network: str, seed: int) -> nn.Module:
    """The whole network, trained."""
    task = NETWORKS[network]
    torch.manual_seed(seed)
    model = task.make()
    training.train_(model, task, seed, task.steps, task.rate)
    return model


@cache
def _orders(network: str, seed: int) -> dict[str, list[Leaving]]:
    """In which order units leave, by worth and by the size of their weights."""
    model, data = pretrained(network, seed), calibration(NETWORKS[network], seed, 128)
    groups = find_groups(model, data[0][0])
    by_worth = choose_order(model, groups, data, cross_entropy, lambda *_: None)
    by_size = list[Leaving]()
    for group in groups:
        worth, order = ours.magnitudes(model, group, 2).double().sort()
        by_size.append(Leaving(group.name, order, worth, is_compensated=False))
    return {WORTH: by_worth, SIZE: by_size}


def cut(asked: Key) -> tuple[nn.Module, list[int], float]:
    """The small network, its widths, and what choosing and fitting took, in images."""
    network, seed, target, _, widths, order, weights = asked
    task, whole = NETWORKS[network], pretrained(network, seed)
    data = [images for images, _ in calibration(task, seed, FITTING)]
    orders = _orders(network, seed)
    if widths == EVEN:
        units = ours.uniform_widths(whole, data[0], target)
    else:
        groups = find_groups(whole, data[0])
        costs = Network(whole, data[0], groups, [*groups])
        (limits,) = make_limits([dp.Budget(macs=target)], costs)
        units = allocate(orders[WORTH], as_costs(limits))
    keep = {
        group.name: group.keep(width)
        for group, width in zip(orders[order], units, strict=True)
    }
    small = dp.remove(whole, data[0], keep=keep)
    charged = CHOOSING if WORTH in (widths, order) else 0
    if weights != SLICED:
        sliced = small
        small = dp.remove(whole, data[0], keep=keep, refit=data)
        charged += ours.fitting_charge(target)
        if weights == RESCALED:
            rescale_(small, sliced, data[0][:2])
    return small, units, charged


@torch.no_grad()
def rescale_(model: nn.Module, reference: nn.Module, images: Tensor) -> None:
    """Bring each filter in front of a batch norm to the norm of another network's."""
    others: dict[str, Any] = dict(reference.named_modules())
    for name, conv, norm in _before_norms(model, images):
        old, new = (
            layer.weight.flatten(1).norm(dim=1) for layer in (others[name], conv)
        )
        scale = (old / new).where(new > 0, 1.0)
        conv.weight.mul_(scale.view(-1, 1, 1, 1))
        norm.running_mean.mul_(scale)
        var = norm.running_var
        var.copy_(((var + norm.eps) * scale.square() - norm.eps).clamp(min=0))


def _before_norms(model: nn.Module, images: Tensor) -> list[tuple[str, Any, Any]]:
    """The convolutions whose outputs go straight into a batch norm, with it."""
    made, found = dict[int, tuple[str, nn.Module, Tensor]](), list[Any]()
    names = {module: name for name, module in model.named_modules()}

    def look(module: nn.Module, args: tuple[Tensor, ...], y: Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            made[id(y)] = names[module], module, y  # held, so that its id stays its own
        if isinstance(module, nn.BatchNorm2d) and id(args[0]) in made:
            found.append((*made[id(args[0])][:2], module))

    hooks = [module.register_forward_hook(look) for module in names]
    model.eval()(images)
    for hook in hooks:
        hook.remove()
    return found


def run(asked: Key) -> Result:
    """Cut one network in one way, and train it."""
    network, seed, target, compute, widths, order, weights = asked
    task = NETWORKS[network]
    small, units, charged = cut(asked)
    image = task.data().train.images[:1]
    part = training.macs(small, image) / training.macs(pretrained(network, seed), image)
    steps = max(0, int((compute * task.examples - charged) / part / BATCH))
    if steps:
        training.train_(small, task, 100 + seed, steps, task.rate)
    found = training.quality(small, judges(task))
    return Result(
        network=network,
        seed=seed,
        target=target,
        compute=compute,
        widths=widths,
        order=order,
        weights=weights,
        units=units,
        steps=steps,
        error=round(found.error, 2),
        loss=round(found.loss, 4),
    )


def wanted(
    networks: Sequence[str],
    seeds: Sequence[int],
    computes: Sequence[float],
    ways: Sequence[Way],
) -> Iterator[Key]:
    """All runs, seed by seed."""
    for seed in seeds:
        for compute in computes:
            for network in networks:
                for way in ways:
                    yield network, seed, TARGET, compute, *way


def means(found: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Errors by training, network and way; then how far each way is from the first.

    Means are over seeds; differences are paired, and over networks as well.
    """
    for compute in COMPUTES:
        errors = _errors(found, compute)
        present = {network for runs in errors.values() for network, _ in runs}
        for network in (name for name in NETWORKS if name in present):
            cells = (_mean(errors[way], network) for way in WAYS)
            yield TRAININGS[compute], network, *cells
        if present:
            gaps = (_gap(errors[way], errors[WAYS[0]]) for way in WAYS[1:])
            yield TRAININGS[compute], "difference", "", *gaps


def _mean(runs: Mapping[Run, float], network: str) -> str:
    some = [error for (name, _), error in runs.items() if name == network]
    return f"{fmean(some):.2f}" if some else ""


def _gap(runs: Mapping[Run, float], first: Mapping[Run, float]) -> str:
    """How far errors are from others; in brackets, over how many runs."""
    both = first.keys() & runs.keys()
    if not both:
        return ""
    gap = estimate(runs[run] - first[run] for run in both)
    return f"{'+' if gap.mean > 0 else ''}{gap} ({gap.count})"


def _errors(found: Sequence[Result], compute: float) -> dict[Way, dict[Run, float]]:
    errors = {way: dict[Run, float]() for way in WAYS}
    for one in found:
        if one.compute == compute:
            way = one.widths, one.order, one.weights
            errors[way][one.network, one.seed] = one.error
    return errors


RUNS: Final = RunRecord(
    RESULTS / "choice_factors.json",
    "python -m benchmarks.choice_factors",
    {"macs": TARGET, "batch": BATCH, "held_out": 10_000},
    Result,
    key,
    run,
)


def main() -> None:
    """Train what is missing, keep the record up to date, print the means."""
    parser = command(__doc__)
    parser.add_argument("networks", nargs="*", type=one_of(NETWORKS))
    parser.add_argument("--seed", action="append", type=int, default=[])
    parser.add_argument("--compute", action="append", type=float, default=[])
    parser.add_argument("--way", action="append", type=int, default=[], help="number")
    given = parser.parse_args()
    ways = [WAYS[number] for number in given.way] or WAYS
    networks, seeds = given.networks or [*NETWORKS], given.seed or SEEDS
    asked = wanted(networks, seeds, given.compute or COMPUTES, ways)
    RUNS.show(means(RUNS.completed(asked)))


if __name__ == "__main__":
    main()
