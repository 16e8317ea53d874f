"""Make a model smaller in one call, without training: choose, remove, refit.

A few batches say what every unit is worth; units leave, the least worth per cost first,
until a budget holds; the layers that read them are fitted to what they returned before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from torch import Tensor, nn

from diffprune._budget.budget import Budget
from diffprune._budget.limits import (
    Limit,
    check_reachable,
    make_limits,
)
from diffprune._choice import (
    Batch,
    Leaving,
    Loss,
    Refit,
    measure,
    order_units,
)
from diffprune._choice.allocation import as_widths
from diffprune._choice.examples import batch_size
from diffprune._core.door import door
from diffprune._core.modules import check_has_no_pruner
from diffprune._core.own_modes import own_modes
from diffprune._core.types import Bool, Count
from diffprune._core.user_warnings import warn
from diffprune._costs.counts import macs
from diffprune._costs.network import Network
from diffprune._graph import (
    Groups,
    Norms,
    check_accepts,
    check_plain,
    find_groups,
)
from diffprune._shrink.batches import Batches
from diffprune._shrink.mean_loss import MeanLoss, mean_loss
from diffprune._shrink.timed_widths import fitting_units
from diffprune._surgery.plan import Plan
from diffprune._surgery.remove import removal
from diffprune.errors import ArgumentError

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

CHOOSING: Final = 128
FITTING: Final = 512
MOST_MACS: Final = 2e11
"""What forward passes for a fit take at most, unless more examples are asked for."""

_FEWEST: Final = 64
_EXAMPLES: Final = 2  # to trace a model, and to check a removal


@dataclass(frozen=True)
class GroupReport:
    """What became of one group.

    Attributes:
        name: The group.
        before: Units it had.
        after: Units it has now.
        worth: What the units that left were worth: the sum of their mean square effects
            on the loss of an example.
        is_compensated: Whether what the others could take over was measured; if not,
            units left by what they do themselves.
    """

    name: str
    before: int
    after: int
    worth: float
    is_compensated: bool


@dataclass(frozen=True)
class ShrinkReport:
    """What was cut, where, and what it costs.

    Attributes:
        groups: What became of each group.
        costs: For each limited cost, what the whole model costs, what is allowed, and
            what the small model costs.
        loss_before: Loss of the whole model on the batches that units were chosen by.
        loss_after: Loss of the small one on the same batches.
        plan: What was removed, with its certificate.
        refit: What was fitted again, if anything was.
    """

    groups: tuple[GroupReport, ...]
    costs: Mapping[str, tuple[float, float, float]]
    loss_before: float
    loss_after: float
    plan: Plan
    refit: Refit | None

    def __str__(self) -> str:
        wide = max((len(group.name) for group in self.groups), default=0)
        lines = [
            f"{name}: {whole:,.6g} -> {now:,.6g} of {most:,.6g} allowed"
            for name, (whole, most, now) in self.costs.items()
        ]
        lines.append(
            f"loss on the batches it was chosen by: {self.loss_before:.4g} -> "
            f"{self.loss_after:.4g}"
        )
        for group in self.groups:
            note = "" if group.is_compensated else "  (by gate gradients alone)"
            lines.append(
                f"{group.name:<{wide}}  {group.before:>5} -> {group.after:<5} "
                f"worth of what left {group.worth:.3g}{note}"
            )
        if self.refit is not None:
            lines.append(str(self.refit))
        return "\n".join(lines)


@dataclass(frozen=True)
class Shrinkage(Generic[ModuleT]):
    """A smaller model, and what was done for it."""

    model: ModuleT
    report: ShrinkReport


@door
def shrink(  # noqa: PLR0913 - the whole of it in one call
    model: ModuleT,
    data: Iterable[Any],
    loss: Loss,
    budget: Budget,
    *,
    refit: bool = True,
    norms: Norms | None = None,
    round_to: Count = 1,
    choosing: Count | None = None,
    fitting: Count | None = None,
    report: Callable[[ShrinkReport], object] | None = None,
    progress: Progress | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> ModuleT:
    """Return a smaller model of the same class that meets a budget, without training.

    A few batches are used to measure what units are worth to the loss. Those that are
    worth least for what they cost are removed. The layers that read them are then
    fitted to what they returned before, and the statistics of batch norms are estimated
    again.

    Args:
        model: Left as it is.
        data: Batches, each a pair of inputs and targets, or a dict of keyword arguments
            that holds both; inputs as for `find_groups`. The first batches are used, as
            many as are needed.
        loss: A function of the outputs of the model and the targets (or the dict) that
            returns the loss, a mean over examples.
        budget: What the model may cost. Its `steps` are ignored.
        refit: Whether to fit the layers that are left. Without it the result computes
            exactly what the model would compute with its removed units at zero.
        norms: Whether widths that norms run over, such as the stream of a transformer,
            are cut (`"narrow"`) or left whole (`"exact"`), as for `find_groups`. By
            default they are cut if layers are fitted afterwards.
        round_to: Every group keeps a multiple of so many units, or all it has.
        choosing: How many examples units are chosen by; by default 128, or half of
            those that layers are fitted to, if that is less.
        fitting: How many examples layers are fitted to; by default 512. It is less if
            512 examples need more than 200 billion multiply-adds, but at least 64.
        report: A function that is called with a `ShrinkReport`; `report=print` prints
            it.
        progress: A function that is called with what is being done, how much is done
            and how much there is to do.
        options: Passed to `find_groups`: `freeze`, `heads`, `rules`.

    Raises:
        ArgumentError: If there is no data, nothing to cut, or the budget cannot be met.
        RemovalError: If the smaller model would compute something else.

    Examples:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
        >>> data = [(torch.randn(64, 8), torch.randint(2, (64,))) for _ in range(8)]
        >>> budget = Budget(macs=0.5)
        >>> shrink(model, data, nn.functional.cross_entropy, budget)[0]
        Linear(in_features=8, out_features=16, bias=True)
    """
    found = shrinkage(
        model,
        data,
        loss,
        budget,
        refit=refit,
        norms=norms,
        round_to=round_to,
        choosing=choosing,
        fitting=fitting,
        progress=progress,
        **options,
    )
    if report is not None:
        report(found.report)
    fits = found.report.refit
    if fits is not None and fits.has_failed:
        warn(f"no layer that is left was fitted.\n{fits}")
    return found.model


@own_modes()
def shrinkage(  # noqa: PLR0913 - as above
    model: ModuleT,
    data: Iterable[Any],
    loss: Loss,
    budget: Budget,
    *,
    refit: bool = True,
    norms: Norms | None = None,
    round_to: int = 1,
    choosing: int | None = None,
    fitting: int | None = None,
    progress: Progress | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> Shrinkage[ModuleT]:
    """Like `shrink`, with the report beside the model."""
    tell = progress or _silent
    check_plain(model)
    check_has_no_pruner(model)
    batches = Batches(data, model)
    # A latency is that of a whole batch.
    is_timed = budget.latency is not None
    inputs = batches.inputs if is_timed else batches.example(_EXAMPLES)
    check_accepts(model, inputs, "the inputs in the first batch of data")
    tell("finding groups", 0, 1)
    norms = norms or ("narrow" if refit else "exact")
    groups = find_groups(model, inputs, norms=norms, **options)
    network = Network(model, inputs, groups, [*groups])
    limits = _limits(budget, network, round_to)
    fitting = fitting or _affordable(network)
    chosen_by = batches.first(choosing or min(CHOOSING, max(1, fitting // 2)))
    tell("measuring units", 0, 1)
    known_loss = MeanLoss(loss, model)
    leaving = choose_order(model, groups, chosen_by, known_loss, tell)
    keep, limits = fitting_units(network, leaving, limits, round_to)
    tell("removing units", 0, 1)
    fitted = [one for one, _ in batches.first(fitting)] if refit else None
    done = removal(model, inputs, groups, keep=keep, refit=fitted)
    report = ShrinkReport(
        _group_reports(leaving, keep),
        _costs(limits, keep),
        known_loss.mean,
        mean_loss(done.model, chosen_by, loss),
        done.plan,
        done.refit,
    )
    tell("done", 1, 1)
    return Shrinkage(done.model, report)


def _affordable(network: Network) -> int:
    """How many examples layers are fitted to: fewer of a model that takes long."""
    each = float(macs(network)(network.widths())) / batch_size(network.inputs)
    return max(_FEWEST, min(FITTING, int(MOST_MACS / max(1.0, each))))


def choose_order(
    model: nn.Module,
    groups: Groups,
    batches: Sequence[Batch],
    loss: Loss,
    progress: Progress,
) -> list[Leaving]:
    """Measure all units, and put those of each group in the order they should leave."""
    found, evidence = list[Leaving](), measure(model, groups, batches, loss)
    if not any(group.is_telling for group in evidence):
        warn(
            "the gradient of the loss is zero for every unit on this data, so it does "
            "not say what units are worth, and they leave by what they cost alone.\n"
            "Pass a loss that the model could be trained with, and examples of which "
            "some are not perfect yet.",
        )
    for number, group in enumerate(evidence):
        progress("ordering units", number, len(evidence))
        found.append(order_units(group))
    return found


def _silent(task: str, done: int, total: int) -> None:
    del task, done, total


def _limits(budget: Budget, network: Network, round_to: int) -> tuple[Limit, ...]:
    if not len(network.groups):
        raise ArgumentError(
            "nothing can be removed from this model; `print(dp.find_groups(model, x))` "
            "says why."
        )
    (limits,) = make_limits([budget], network)
    fewest = network.widths().clamp(max=round_to)
    advice = "or freeze less." if round_to == 1 else "or round to less, or freeze less."
    check_reachable(limits, fewest, advice=advice)
    return limits


def _group_reports(
    leaving: Sequence[Leaving], keep: Mapping[str, Bool[Tensor, " units"]]
) -> tuple[GroupReport, ...]:
    found = list[GroupReport]()
    for group in leaving:
        before, after = len(group.order), int(keep[group.name].sum())
        worth = float(group.worth[: before - after].sum())
        found.append(
            GroupReport(group.name, before, after, worth, group.is_compensated)
        )
    return tuple(found)


def _costs(
    limits: Sequence[Limit], keep: Mapping[str, Bool[Tensor, " units"]]
) -> dict[str, tuple[float, float, float]]:
    widths = as_widths(int(mask.sum()) for mask in keep.values())
    return {
        limit.name: (limit.whole, limit.most, float(limit.cost(widths)))
        for limit in limits
    }
