"""What is left of a model, gate by gate, as a table."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from diffprune._core.shown import Shown
from diffprune._core.types import Float
from diffprune._graph import PruneGroup
from diffprune._pruner.gated_model import RemovalRecord
from diffprune.gates import Gate, GateLike

HEADER = (
    *("group", "units", "open", "P(open)", "parameters/unit", "MACs/unit"),
    *("worth", "least"),
)


def summarise(
    gates: Mapping[str, GateLike],
    units: Mapping[str, PruneGroup],
    now: RemovalRecord,
    dense: RemovalRecord,
    asked: Sequence[str],
    squares: Mapping[str, Float[Tensor, " units"]],
) -> Shown:
    """Per gate: units left of all, open ones, costs and worth of one; then totals.

    Args:
        gates: By name.
        units: What each of them decides about.
        now: What is left of the model.
        dense: What there was at first.
        asked: Lines to close with: what a budget asks for.
        squares: What the units of each gate are worth, running squares of gradients.
    """
    rows = [
        (*_row(gate, units[name], dense.units[name]), *_worth(squares[name]))
        for name, gate in gates.items()
    ]
    totals = (
        f"{now.parameters:,} of {dense.parameters:,} parameters, "
        f"{now.macs:,} of {dense.macs:,} MACs for the example inputs"
    )
    return Shown([HEADER, *rows], numbers=range(1, len(HEADER)), after=[totals, *asked])


@torch.no_grad()
def _row(gate: GateLike, unit: PruneGroup, whole: int) -> tuple[str, ...]:
    is_ours = isinstance(gate, Gate)
    return (
        unit.name + (" (at its floor)" if is_ours and gate.at_floor() else ""),
        f"{gate.size} of {whole}",
        str(int(gate.is_open().sum())),
        f"{float(gate.prob_open().mean()):.2f}" if is_ours else "-",
        f"{unit.parameters:,}",
        f"{unit.macs:,}",
    )


def _worth(squares: Float[Tensor, " units"]) -> tuple[str, str]:
    """The mean and the least worth of a gate's units; the mean of all units is one."""
    if not bool(squares.any()):
        return "-", "-"
    return f"{float(squares.mean()):.2g}", f"{float(squares.min()):.2g}"
