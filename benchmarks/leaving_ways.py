"""How units should leave for a gradual budget: at once, faded, or with a refit.

Networks that the comparison lacks are trained from scratch to a fifth of their
multiply-adds, in the eight rounds that `dp.Budget` has. In each round the chosen units
are dropped at once; or their readers' weights fall to zero over the sixteen steps
before it; or the readers are fitted again when they are dropped, as in a `Pruner`.
Everything else is the same, and so is the number of steps. Norms get the statistics of
the examples that units are chosen by, as they have them in training, before anything is
measured or fitted. `python -m benchmarks.leaving_ways` trains what has no record yet
and prints the means. Errors are those of 10,000 training images that no network learns
from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, relu
from torch.optim import Optimizer
from torch.optim.swa_utils import update_bn

import diffprune as dp
from benchmarks.choice import training
from benchmarks.choice.table import estimate
from benchmarks.choice.tasks import BATCH, Task, adam, batches, calibration
from benchmarks.choice_factors import NETWORKS as KNOWN, judges
from benchmarks.closing_plans import COLOUR, DIGITS, make_task
from diffprune._budget.controller import WINDOW, rounds
from diffprune._budget.limits import as_costs, make_limits
from diffprune._choice import allocate, refit_
from diffprune._costs.network import Network
from diffprune._graph import Groups, find_groups
from diffprune._graph.zeros import unit_numbers
from diffprune._pruner.measuring import CHOOSING, FITTING
from diffprune._pruner.refitting import ROWS_PER_FEATURE
from diffprune._shrink.shrink import choose_order
from diffprune._surgery.remove import removal

from ._command import command, one_of
from ._records import RESULTS
from ._run_record import RunRecord

TARGET: Final = 0.2
SEEDS: Final = (0, 1)
LENGTH: Final = 2
"""How often as long as the pretraining of other benchmarks."""

AT_ONCE, FADED, REFITTED = WAYS = ("at once", "faded", "refitted")


class _Deep(nn.Module):
    """Five convolutions without norms, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        layers, inputs = list[nn.Module](), 3
        for width, stride in ((16, 2), (32, 1), (32, 2), (64, 1), (64, 2)):
            layers += [nn.Conv2d(inputs, width, 3, stride, padding=1), nn.ReLU()]
            inputs = width
        self.body, self.head = nn.Sequential(*layers), nn.Linear(inputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean((2, 3)))


class _Rows(nn.Module):
    """A recurrent layer that reads the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.GRU(28, 64, batch_first=True)
        self.hidden, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        states, _ = self.rows(images.squeeze(1))
        return self.head(relu(self.hidden(states[:, -1])))


@final
class _Mixing(nn.Module):
    """Two hidden layers, each behind a layer norm: across places, and at each."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(48), nn.LayerNorm(48)
        self.across = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.up, self.down = nn.Linear(48, 96), nn.Linear(96, 48)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(gelu(self.up(self.norm2(x))))


class _Mixer(nn.Module):
    """Patches that are mixed by layers with layer norms."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        self.body = nn.Sequential(*(_Mixing() for _ in range(3)))
        self.head = nn.Linear(48, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.body(patches).mean(1))


_COLOUR: Final = COLOUR | {"optimizer": adam}
NETWORKS: Final = KNOWN | {
    task.name: task
    for task in (
        make_task("deep convolutions, no norm", _Deep, 2e-3, **_COLOUR),
        make_task("recurrent", _Rows, 2e-3, **DIGITS),
        make_task("mixer, layer norms", _Mixer, 1e-3, **_COLOUR),
    )
}
_AT_32_PIXELS: Final = ", 32 pixels"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One network, trained while its units left.

    Attributes:
        network: Its name.
        seed: Of weights and data.
        way: How units left.
        steps: Of the training.
        macs: Part of the multiply-adds it has.
        error: On held-out images, in per cent.
        loss: On held-out images.
    """

    network: str
    seed: int
    way: str
    steps: int
    macs: float
    error: float
    loss: float


Key = tuple[str, int, str]


def key(result: Result) -> Key:
    """What a run is about."""
    return result.network, result.seed, result.way


def run(asked: Key) -> Result:
    """Train one network while its units leave in one way."""
    network, seed, way = asked
    task = NETWORKS[network]
    torch.manual_seed(seed)
    model, steps = task.make(), LENGTH * task.steps
    image = task.data().train.images[:1]
    whole = training.macs(model, image)
    small = _train(model, task, seed, steps, way)
    found = training.quality(small, judges(task))
    return Result(
        network=network,
        seed=seed,
        way=way,
        steps=steps,
        macs=round(training.macs(small, image) / whole, 4),
        error=round(found.error, 2),
        loss=round(found.loss, 4),
    )


def _train(model: nn.Module, task: Task, seed: int, steps: int, way: str) -> nn.Module:
    optimizer = task.optimizer(model.parameters(), task.rate)
    stream, due = batches(task, seed), rounds(dp.Budget(macs=TARGET, steps=steps))
    chosen_at = [one - WINDOW if way == FADED else one for one in due]
    plan, cut = _Plan(model, task, seed), None
    for step in range(steps):
        if step in chosen_at:
            cut = plan.choose(model, (chosen_at.index(step) + 1) / len(due))
        if cut is not None and way == FADED:
            left = min(one - step for one in due if one >= step)
            fade_(model, cut, left / (left + 1))
        if cut is not None and step in due:
            model, optimizer = removed(model, optimizer, task, cut, way)
            cut = None
        for group in optimizer.param_groups:
            group["lr"] = task.rate * training.schedule(step, steps)
        images, labels = next(stream)
        optimizer.zero_grad()
        cross_entropy(model.train()(images), labels).backward()
        optimizer.step()
    return model.eval()


@dataclass(frozen=True)
class Cut:
    """Units that are to leave.

    Attributes:
        groups: All groups of the present network.
        keep: By group, the units that stay.
        data: Inputs to fit with.
    """

    groups: Groups
    keep: Mapping[str, Tensor]
    data: list[Tensor]


@final
class _Plan:
    """Says which units are the next to leave."""

    def __init__(self, model: nn.Module, task: Task, seed: int) -> None:
        self._data = calibration(task, seed, FITTING)
        self._widths = [group.size for group in find_groups(model, self._data[0][0])]
        self._macs = training.macs(model, self._data[0][0][:1])

    def choose(self, model: nn.Module, progress: float) -> Cut:
        """By worth and cost, as far as the plan is by now."""
        images = self._data[0][0]
        update_bn(self._data, model)
        groups = find_groups(model, images)
        chosen_by = self._data[: CHOOSING // len(images)]
        leaving = choose_order(model, groups, chosen_by, cross_entropy, _silent)
        network = Network(model, images, groups, [*groups])
        now = training.macs(model, images[:1]) / self._macs
        asked = dp.Budget(macs=min(1.0, TARGET**progress / now))
        (limits,) = make_limits([asked], network)
        widths = allocate(leaving, as_costs(limits), whole=self._widths)
        pairs = zip(leaving, widths, strict=True)
        keep = {group.name: group.keep(width) for group, width in pairs}
        return Cut(groups, keep, [inputs for inputs, _ in self._data])


def _silent(*_: object) -> None:
    """Tell nobody how far it is."""


@torch.no_grad()
def fade_(model: nn.Module, cut: Cut, factor: float) -> None:
    """Scale what reads the units that are to leave."""
    tensors = dict(model.named_parameters())
    for group in cut.groups:
        factors = torch.ones(group.size).masked_fill(~cut.keep[group.name], factor)
        for place in group.axes:
            if place.is_read and place.tensor in tensors:
                numbers = unit_numbers(place.axis, group.atom)
                each = torch.where(numbers >= 0, factors[numbers.clamp(min=0)], 1.0)
                rows = tensors[place.tensor].movedim(place.dim, -1)
                rows.mul_(each)


def removed(
    model: nn.Module, optimizer: Optimizer, task: Task, cut: Cut, way: str
) -> tuple[nn.Module, Optimizer]:
    """The network without these units, and an optimizer that remembers the others."""
    done = removal(model, cut.data[0][:2], cut.groups, keep=cut.keep)
    if way == REFITTED:
        kept = done.plan.tensors
        refit_(done.model, model, kept, cut.data, rows_per_feature=ROWS_PER_FEATURE)
    fresh = task.optimizer(done.model.parameters(), task.rate)
    small = dict(done.model.named_parameters())
    for name, parameter in model.named_parameters():
        for what, value in optimizer.state[parameter].items():
            new = value
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                for dim, kept in done.plan.tensors.get(name, {}).items():
                    new = new.index_select(dim, torch.tensor(kept))
            fresh.state[small[name]][what] = new
    return done.model, fresh


def wanted(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Key]:
    """All runs, seed by seed."""
    for seed in seeds:
        for network in networks:
            yield from ((network, seed, way) for way in WAYS)


def means(found: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Errors of each network, and how far other ways are from dropping units."""
    for network in dict.fromkeys(one.network for one in found):
        errors = {one.way: dict[int, float]() for one in found}
        for one in found:
            if one.network == network:
                errors[one.way][one.seed] = one.error
        yield network, *(_cell(errors[way], errors[AT_ONCE]) for way in WAYS)


def _cell(errors: Mapping[int, float], others: Mapping[int, float]) -> str:
    seeds = [seed for seed in errors if seed in others]
    mean = estimate(errors[seed] for seed in seeds).mean
    if errors is others:
        return f"{mean:.2f}"
    return f"{mean:.2f} ({estimate(errors[s] - others[s] for s in seeds)})"


RUNS: Final = RunRecord(
    RESULTS / "leaving_ways.json",
    "python -m benchmarks.leaving_ways",
    {"macs": TARGET, "batch": BATCH, "faded_over": WINDOW, "held_out": 10_000},
    Result,
    key,
    run,
)


def main() -> None:
    """Train what is missing, keep the record up to date, print the means."""
    parser = command(__doc__)
    parser.add_argument("networks", nargs="*", type=one_of(NETWORKS))
    parser.add_argument("--seed", action="append", type=int, default=[])
    given = parser.parse_args()
    usual = [name for name in NETWORKS if not name.endswith(_AT_32_PIXELS)]
    asked = wanted(given.networks or usual, given.seed or SEEDS)
    RUNS.show(means(RUNS.completed(asked)))


if __name__ == "__main__":
    main()
