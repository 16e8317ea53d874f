"""Make a model smaller in one call, without training: choose, remove, refit.

A few batches say what every unit is worth; units leave, the least worth per cost first,
until a budget holds; the layers that read them are fitted to what they returned before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from diffprune._budget.budget import Budget
from diffprune._budget.limits import (
    Limit,
    Measured,
    as_costs,
    check_reachable,
    make_limits,
)
from diffprune._choice import (
    Batch,
    Leaving,
    Loss,
    Refit,
    allocate,
    measure,
    order_units,
)
from diffprune._choice.allocation import LEAST_UNITS, Widths
from diffprune._choice.evidence import batch_size
from diffprune._core.arguments import shown
from diffprune._core.door import door
from diffprune._core.types import Bool, Count
from diffprune._costs.latency import measure_in_turns
from diffprune._costs.network import Network
from diffprune._graph import (
    Groups,
    call_arguments,
    check_accepts,
    find_groups,
    mode,
)
from diffprune._surgery.plan import Plan
from diffprune._surgery.remove import removal
from diffprune.errors import ArgumentError

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

CHOOSING: Final = 128
FITTING: Final = 512
_TRIALS: Final = 4


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
    round_to: Count = 1,
    choosing: Count = CHOOSING,
    fitting: Count = FITTING,
    report: Callable[[ShrinkReport], object] | None = None,
    progress: Progress | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> ModuleT:
    """Return a smaller model of the same class that meets a budget, without training.

    Units leave by what they are worth to the loss per cost, measured on a few batches;
    the layers that read them are then fitted to what they returned before, and the
    statistics of batch norms are estimated again.

    Args:
        model: Left as it is.
        data: Batches, each a pair of inputs and targets, or a dict of keyword arguments
            that holds both; inputs as for `find_groups`. As many are taken as needed,
            from the beginning.
        loss: From what the model returns and the targets (or the dict) to the loss, a
            mean over examples.
        budget: What the model may cost. Its `steps` mean nothing here.
        refit: Whether to fit the layers that are left. Without it the result computes
            exactly what the model would with its removed units at zero.
        round_to: Every group keeps a multiple of so many units, or all it has.
        choosing: How many examples units are chosen by.
        fitting: How many examples layers are fitted to.
        report: Called with a `ShrinkReport`; `report=print` prints it.
        progress: Called with what is being done, how much is done and how much there
            is to do.
        options: Passed to `find_groups`: `freeze`, `heads`, `rules`.

    Raises:
        ArgumentError: If there is no data, nothing to cut, or the budget cannot be met.
        RemovalError: If the smaller model would compute something else.

    Examples:
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
        round_to=round_to,
        choosing=choosing,
        fitting=fitting,
        progress=progress,
        **options,
    )
    if report is not None:
        report(found.report)
    return found.model


def shrinkage(  # noqa: PLR0913 - as above
    model: ModuleT,
    data: Iterable[Any],
    loss: Loss,
    budget: Budget,
    *,
    refit: bool = True,
    round_to: Count = 1,
    choosing: Count = CHOOSING,
    fitting: Count = FITTING,
    progress: Progress | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> Shrinkage[ModuleT]:
    """Like `shrink`, with the report beside the model."""
    tell = progress or _silent
    batches = _taken(data, max(choosing, fitting if refit else 0))
    inputs = batches[0][0]
    _check_data(model, batches, loss)
    tell("finding groups", 0, 1)
    groups = find_groups(model, inputs, **options)
    network = Network(model, inputs, groups, [*groups])
    limits = _limits(budget, network, round_to)
    chosen_by = _first(batches, choosing)
    tell("measuring units", 0, 1)
    leaving = choose_order(model, groups, chosen_by, loss, tell)
    keep, limits = _fitting(network, leaving, limits, round_to)
    tell("removing units", 0, 1)
    fitted = [one for one, _ in _first(batches, fitting)] if refit else None
    done = removal(model, inputs, groups, keep=keep, refit=fitted)
    report = ShrinkReport(
        _group_reports(leaving, keep),
        _costs(limits, keep),
        mean_loss(model, chosen_by, loss),
        mean_loss(done.model, chosen_by, loss),
        done.plan,
        done.refit,
    )
    tell("done", 1, 1)
    return Shrinkage(done.model, report)


def _check_data(model: nn.Module, batches: Sequence[Batch], loss: Loss) -> None:
    """Refuse batches that the model or the loss does not take, before all the work."""
    for number, (inputs, _) in enumerate(batches):
        check_accepts(model, inputs, f"the inputs in batch {number} of data")
    inputs, targets = batches[0]
    args, kwargs = call_arguments(inputs)
    with mode(model, training=False), torch.no_grad():
        outputs = model(*args, **kwargs)
    try:
        found: Any = loss(outputs, targets)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ArgumentError(
            "the loss does not take what the model returns and the targets in data: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Tensor) or not bool(found.isfinite().all()):
        raise ArgumentError(
            "the loss must return a tensor of finite numbers for the batches of data, "
            f"got {shown(found)}."
        )


def choose_order(
    model: nn.Module,
    groups: Groups,
    batches: Sequence[Batch],
    loss: Loss,
    progress: Progress,
) -> list[Leaving]:
    """Measure all units, and put those of each group in the order they should leave."""
    found, evidence = list[Leaving](), measure(model, groups, batches, loss)
    for number, group in enumerate(evidence):
        progress("ordering units", number, len(evidence))
        found.append(order_units(group))
    return found


def _silent(task: str, done: int, total: int) -> None:
    del task, done, total


def _taken(data: Iterable[Any], examples: int) -> list[Batch]:
    """As many batches as needed, from the beginning."""
    found, count = list[Batch](), 0
    for batch in data:
        found.append(_pair(batch))
        count += batch_size(found[-1][0])
        if count >= examples:
            break
    if not found:
        raise ArgumentError(
            "data has no batches: shrinking looks at some examples.\n"
            "Pass a DataLoader, or a list of pairs `[(inputs, targets), ...]`."
        )
    return found


def _pair(batch: object) -> Batch:
    if isinstance(batch, Mapping):
        return batch, batch
    if isinstance(batch, tuple | list) and len(batch) == 2:
        inputs, targets = batch
        return tuple(inputs) if isinstance(inputs, list) else inputs, targets
    raise ArgumentError(
        f"data yields a {type(batch).__name__}, where a pair of inputs and targets is "
        "expected, or a dict that holds both.\nFor a model of several inputs, yield "
        "`((first, second), targets)`."
    )


def _first(batches: Sequence[Batch], examples: int) -> list[Batch]:
    """Batches until there are so many examples."""
    found, count = list[Batch](), 0
    for batch in batches:
        if count >= examples:
            break
        found.append(batch)
        count += batch_size(batch[0])
    return found


def _limits(budget: Budget, network: Network, round_to: int) -> tuple[Limit, ...]:
    if not len(network.groups):
        raise ArgumentError(
            "nothing can be removed from this model; `print(dp.find_groups(model, x))` "
            "says why."
        )
    (limits,) = make_limits([budget], network)
    fewest = network.widths().clamp(max=round_to)
    check_reachable(limits, fewest, advice="or freeze less.")
    return limits


def _fitting(
    network: Network,
    leaving: Sequence[Leaving],
    limits: tuple[Limit, ...],
    round_to: int,
) -> tuple[dict[str, Bool[Tensor, " units"]], tuple[Limit, ...]]:
    """The units to keep, and limits that know what they cost.

    Where time is limited, what was chosen is timed, and chosen again if it takes more.
    """
    costs = as_costs(limits)
    fits_two = costs.fit(network.widths().clamp(max=max(LEAST_UNITS, round_to)))
    least = LEAST_UNITS if fits_two else 1
    widths = allocate(leaving, costs, least=least, round_to=round_to)
    for _ in range(_TRIALS if any(one.name == "latency" for one in limits) else 0):
        limits = _timed(network, limits, widths)
        if max(limit.used(_tensor(widths)) for limit in limits) <= 1:
            break
        costs = as_costs(limits)
        widths = allocate(leaving, costs, least=least, round_to=round_to)
    pairs = zip(leaving, widths, strict=True)
    return {group.name: group.keep(width) for group, width in pairs}, limits


def _timed(
    network: Network, limits: tuple[Limit, ...], widths: Sequence[int]
) -> tuple[Limit, ...]:
    at = _tensor(widths)
    small = network.narrow(at)
    now, whole = measure_in_turns([small, network.model], network.inputs)
    measured = Measured(now, whole)
    return tuple(
        limit.measured(at, measured) if limit.name == "latency" else limit
        for limit in limits
    )


def _tensor(widths: Iterable[int]) -> Widths:
    return torch.tensor([*widths], dtype=torch.float64)


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
    widths = _tensor(int(mask.sum()) for mask in keep.values())
    return {
        limit.name: (limit.whole, limit.most, float(limit.cost(widths)))
        for limit in limits
    }


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Sequence[Batch], loss: Loss) -> float:
    """Loss per example, in eval mode."""
    total, count = 0.0, 0
    with mode(model, training=False):
        for inputs, targets in batches:
            args, kwargs = call_arguments(inputs)
            value = loss(model(*args, **kwargs), targets)
            size = batch_size(inputs)
            total += float(value.mean()) * size
            count += size
    return total / count
