"""How the time for groups, plans, certificates and pruners grows with the groups."""

import gc
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import diffprune as dp
from diffprune.surgery import Groups, plan_removal, removal

from ._timing import Measurement, milliseconds, one_thread

RECIPE = {
    "network": "residual blocks x + W2 relu(W1 x) of width 4, one group each, and the "
    "group of the stream that runs along all of them",
    "groups": (100, 1_000, 10_000),
    "removed": "one unit of every group, compared in full: example, drawn inputs, "
    "scrambled weights, eval and train mode",
    "ratio": "milliseconds per group over those with the fewest groups; 1 is linear",
    "left out": "torch.export by itself and Pruner beyond 1,000 groups, to save time",
}
TARGET = 1.5
_TIMED_IN_FULL = 1_000


class Block(nn.Module):
    """What a residual block adds is small, so that deep stacks stay finite."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)
        self.share = 1 / depth

    def forward(self, x: Tensor) -> Tensor:
        """Add to the stream."""
        return x + self.share * self.down(self.up(x).relu())


def network(groups: int) -> nn.Module:
    """A network of so many groups."""
    depth = groups - 1
    blocks = [Block(depth) for _ in range(depth)]
    return nn.Sequential(nn.Linear(3, 4), *blocks, nn.Linear(4, 2))


def measure() -> tuple[Measurement, ...]:
    """Times of every number of groups, each over those of the first, per group."""
    torch.manual_seed(0)
    with one_thread():
        dict(_times(10))  # whatever torch does only once
        times = {groups: dict(_times(groups)) for groups in RECIPE["groups"]}
    fewest = RECIPE["groups"][0]
    return tuple(
        _growth(f"{what}, {groups:,} groups", taken, times[fewest][what], groups)
        for groups, each in times.items()
        for what, taken in each.items()
    )


def _times(groups: int) -> Iterator[tuple[str, float]]:
    model, x = network(groups).eval(), torch.rand(2, 3)
    if groups <= _TIMED_IN_FULL:
        yield "torch.export", _alone(lambda: _export(model, x))
    finding = list[Groups]()
    yield "find_groups", _alone(lambda: finding.append(dp.find_groups(model, x)))
    (found,) = finding
    if len(found) != groups:
        raise AssertionError(f"expected {groups} groups, found {len(found)}")
    keep = {group.name: torch.arange(group.size) > 0 for group in found}
    yield "plan", _alone(lambda: plan_removal(found, keep=keep))
    yield "plan, cut, certificate", _alone(lambda: removal(model, x, found, keep=keep))
    if groups <= _TIMED_IN_FULL:
        yield "Pruner", _alone(lambda: dp.Pruner(model, x, strength=1e-4))


def _alone(work: Callable[[], object]) -> float:
    gc.collect()
    return milliseconds(work)


def _export(model: nn.Module, x: Tensor) -> object:
    with torch.no_grad():
        return torch.export.export(model, (x,), strict=False)


def _growth(subject: str, taken: float, first: float, groups: int) -> Measurement:
    linear = first * groups / RECIPE["groups"][0]
    ratio = taken / linear
    return Measurement(
        subject=subject,
        reference=f"as many times that of {RECIPE['groups'][0]} groups",
        subject_ms=taken,
        reference_ms=linear,
        ratio=ratio,
        spread=(ratio, ratio),
        undisturbed=ratio,
        rounds=1,
        target=TARGET,
    )
