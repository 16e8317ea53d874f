"""What the networks of runs cost and how often they err, as far as it is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torch import Tensor, nn

from diffprune._graph import find_groups
from diffprune.lab.runs.records import WEIGHTS, Run, Widths


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network; None where nobody knows.

    Attributes:
        name: What the report calls it.
        error: On the test set, in percent.
        examples: In the test set.
        parameters: Their number.
        macs: Multiply-adds for one example.
        seconds: Measured, for one example.
        file_size: Of its weights, in bytes.
        widths: Units by gate.
    """

    name: str
    error: float | None = None
    examples: int | None = None
    parameters: int | None = None
    macs: int | None = None
    seconds: float | None = None
    file_size: int | None = None
    widths: Widths = field(default_factory=dict[str, int])


class LayerCost(NamedTuple):
    """What one layer costs, before and after pruning."""

    name: str
    parameters: tuple[int, int]
    macs: tuple[int, int]


def layer_costs(
    dense: nn.Module, small: nn.Module, inputs: Tensor
) -> tuple[LayerCost, ...]:
    """Count parameters and multiply-adds of every layer that has any of either.

    Args:
        dense: The network before.
        small: The same after; a layer that is gone costs nothing.
        inputs: One example.
    """
    before, after = _layer_costs(dense, inputs), _layer_costs(small, inputs)
    nothing = (0, 0)
    return tuple(
        LayerCost(name, *zip(costs, after.get(name, nothing), strict=True))
        for name, costs in before.items()
        if any(costs)
    )


def _layer_costs(model: nn.Module, inputs: Tensor) -> dict[str, tuple[int, int]]:
    macs = find_groups(model, inputs).macs_by_module()
    return {
        name or "the model itself": (
            sum(p.numel() for p in module.parameters(recurse=False)),
            macs.get(name, 0),
        )
        for name, module in model.named_modules()
    }


def network(run: Run, seconds: float | None) -> Network:
    """What a run has come to, by its records and by the clock."""
    latest, weights = run.latest, run.folder / WEIGHTS
    if latest is None:
        return Network(name=run.name)
    return Network(
        name=run.name,
        error=latest.test_error,
        examples=latest.test_examples or None,
        parameters=latest.parameters,
        macs=latest.macs,
        seconds=seconds,
        file_size=weights.stat().st_size if weights.exists() else None,
        widths=latest.effective,
    )


def dense_network(runs: Sequence[Run], rebuilt: Network | None) -> Network:
    """What there was before: the first run without gates, else the task's own network.

    A rebuilt network was never trained, so it has costs but no error.
    """
    trained = next((network(s, None) for s in runs if s.is_dense), None)
    known = [found for found in (trained, rebuilt) if found is not None]
    return _merged(Network(name="dense"), *known)


def uncertainty(network: Network) -> float | None:
    """One standard error of a test error, in percentage points, if it can be told.

    One wrong and one right answer are added, so that a few examples without any error
    are no certainty.

    Examples:
        >>> round(uncertainty(Network(name="a", error=2.0, examples=300)), 2)
        0.87
    """
    if network.error is None or not network.examples:
        return None
    count = network.examples
    share = (network.error / 100 * count + 1) / (count + 2)
    return 100 * (share * (1 - share) / count) ** 0.5


def has_lost(small: Network, dense: Network) -> bool | None:
    """Whether pruning has cost accuracy: by more than two standard errors.

    None if an error is not known, or not of how many examples.
    """
    ours, theirs = uncertainty(small), uncertainty(dense)
    if small.error is None or dense.error is None or ours is None or theirs is None:
        return None
    return small.error - dense.error > 2 * (ours**2 + theirs**2) ** 0.5


def ratio(part: float | None, whole: float | None) -> float | None:
    """What is left, if both are known."""
    return None if part is None or not whole else part / whole


def _merged(first: Network, *others: Network) -> Network:
    """For every number the first network that knows it; the first one's name."""
    for other in others:
        missing = {
            name: value
            for name, value in vars(other).items()
            if vars(first)[name] in (None, {}) and value is not None
        }
        first = replace(first, **missing)
    return first
